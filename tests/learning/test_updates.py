import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

from aisle.annealing import Kernel, schedules
from aisle.annealing.tuning import nudge
from aisle.learning import updates
from aisle.learning.estimators import METHODS
from aisle.learning.optimizers import optimizer
from aisle.learning.updates import Batches, Recipe, TrainState, init_state, make_chunk, split_arrays
from aisle.models import DiagonalNormal, LinearGaussian

BATCH_SIZE, NUM_EXAMPLES, CAPACITY = 8, 20, 6
KEY = jax.random.key(17)
EPSILON, RATE, TARGET, LARGEST_STEP = 1e-4, 0.05, 0.7, 1.9

# So different that the chains accept nearly always at one temperature, and seldom at the other.
FIRST_STEPS = (0.2, 1.8)

MODEL = LinearGaussian(
    jnp.array([[1.0, 0.2], [-0.5, 1.0], [2.0, 0.0]]), jnp.array([0.2, 0.0, -1.0]), jnp.log(0.8)
)


pytestmark = pytest.mark.usefixtures("quick_compilation")


class Encoder(eqx.Module):
    weight: Array
    log_scale: Array

    def __call__(self, x):
        return DiagonalNormal(self.weight @ x, jnp.exp(self.log_scale))


ENCODER = Encoder(jnp.array([[0.3, 0.1, 0.2], [0.0, -0.4, 0.1]]), jnp.full(2, -0.3))


class Fragile(eqx.Module):
    """A linear-Gaussian model whose density, and so its gradient, is NaN for marked examples."""

    inner: LinearGaussian

    def log_prior(self, z):
        return self.inner.log_prior(z)

    def log_likelihood(self, x, z):
        return self.inner.log_likelihood(x, z) * jnp.where(x[0] > 0.99, jnp.nan, 1.0)

    def sample_prior(self, key):
        return self.inner.sample_prior(key)

    def sample_observation(self, key, z):
        return self.inner.sample_observation(key, z)


class Counted:
    """A method whose estimator counts how often it is traced."""

    def __init__(self, name):
        self.num_traces = 0
        self.method = METHODS[name]._replace(estimate=self._estimate)
        self._plain = METHODS[name].estimate

    def _estimate(self, *arguments):
        self.num_traces += 1
        return self._plain(*arguments)


def make_recipe(method="ais", *, model=MODEL, binarize="dynamic", ema=0.0, last_move=True):
    method = METHODS[method] if isinstance(method, str) else method
    kernel = Kernel(
        schedules.linear(2), jnp.array(FIRST_STEPS), num_samples=2, num_leapfrog=1,
        last_move=last_move,
    )  # fmt: skip
    return Recipe(
        static=split_arrays(model, ENCODER)[1],
        method=method,
        kernel=kernel,
        optimizer=optax.adam(RATE, eps=EPSILON),
        binarize=binarize,
        shape=(3,),
        target_accept=TARGET,
        largest_step=LARGEST_STEP,
        ema=ema,
    )


def mesh_of(num_devices):
    return jax.sharding.Mesh(jax.devices()[:num_devices], ("batch",))


def make_batches(marked=()):
    """Return `CAPACITY` batches, with the marked example in some of them."""
    generator = np.random.default_rng(3)
    rows = generator.integers(0, 250, (NUM_EXAMPLES, 3)).astype(np.uint8)
    rows[0] = 255
    indices = [1 + generator.permutation(NUM_EXAMPLES - 1)[:BATCH_SIZE] for _ in range(CAPACITY)]
    indices = np.asarray(indices, np.int32)
    for update in marked:
        indices[update, 5] = 0
    return Batches(jnp.asarray(rows), jnp.asarray(indices), jnp.asarray(indices))


def later(batches, first):
    """Return the batches from `first` on, as many as before."""
    chosen = (first + np.arange(CAPACITY)) % CAPACITY
    return batches._replace(positions=batches.positions[chosen], indices=batches.indices[chosen])


def start(recipe, model=MODEL):
    return init_state(model, ENCODER, recipe, jnp.array(FIRST_STEPS))


def on_host(tree):
    return jax.tree.map(np.array, tree)


def run_all(run, state, number, *, batches):
    """Make updates one by one; return the states, the first one too, and the logs."""
    states, logs = [on_host(state)], []
    for i in range(number):
        state, log = run(state, KEY, later(batches, i), jnp.int32(1))
        states.append(on_host(state))
        logs.append(jax.tree.map(lambda a: np.array(a[0]), log))
    return states, logs


def assert_identical(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)


def assert_close(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    compare = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=1e-5)
    jax.tree.map(compare, left, right)


def differs(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.any(np.asarray(a) != np.asarray(b)) for a, b in pairs)


@functools.partial(jax.jit, static_argnums=0)
def reference_gradients(recipe_of, params, step_sizes, update, rows, indices):
    """The mean gradient over the batch, written out: an example's key is of the update and it."""
    recipe = recipe_of()
    kernel = eqx.tree_at(lambda k: k.step_sizes, recipe.kernel, step_sizes)

    def loss(params):
        model, encoder = eqx.combine(params, recipe.static)

        def example(row, index):
            key = jax.random.fold_in(jax.random.fold_in(KEY, update), index)
            key_bits, key = jax.random.split(key)
            x = jax.random.bernoulli(key_bits, row / 255).astype(jnp.float32)
            return recipe.method.estimate(key, model, encoder, x, kernel)

        losses, metrics = jax.tree.map(lambda a: a.mean(axis=0), jax.vmap(example)(rows, indices))
        return losses.theta + losses.phi, (losses, metrics)

    return jax.grad(loss, has_aux=True)(params)


@pytest.fixture(scope="module")
def annealed():
    """A compiled chunk of `ais` on one device, with its single updates."""
    counted = Counted("ais")
    recipe = make_recipe(counted.method, ema=0.9)
    run = make_chunk(recipe, mesh_of(1), BATCH_SIZE)
    states, logs = run_all(run, start(recipe), 6, batches=make_batches())
    return counted, recipe, run, states, logs


def test_an_update_is_a_step_along_the_mean_gradient(annealed):
    _, _, _, states, logs = annealed
    batches = make_batches()
    adam = optax.adam(RATE, eps=EPSILON)
    for i in (0, 3):
        before, indices = states[i], batches.indices[i]
        grads, (losses, metrics) = reference_gradients(
            make_recipe, before.params, before.step_sizes, i, batches.examples[indices], indices
        )
        parts = zip(grads, before.optimizer, before.params, strict=True)
        steps = [adam.update(*part) for part in parts]
        changes, optimizer = zip(*steps, strict=True)
        assert_close(states[i + 1].params, optax.apply_updates(before.params, changes))
        assert_close(states[i + 1].optimizer, on_host(optimizer))
        assert_close(logs[i].losses, losses)
        assert_close(logs[i].metrics, metrics)
        assert differs(before.params, states[i + 1].params)
    assert [int(state.update) for state in states] == list(range(7))
    assert not any(log.is_skipped for log in logs)


def decayed(weights, ema):
    """Return the mean of weights, the newest last, each counting `ema` as much as the next."""
    shares = ema ** np.arange(len(weights))[::-1]
    return jax.tree.map(lambda *a: np.average(a, axis=0, weights=shares), *weights)


def test_the_average_is_of_the_weights_after_each_update(annealed):
    """Not of those before the first one, which would stay in it for long."""
    _, _, _, states, _ = annealed
    params = [on_host(state.params) for state in states[1:]]
    for i, state in enumerate(states[1:]):
        assert_close(state.average, decayed(params[: i + 1], 0.9))
    assert differs(states[-1].average, states[-1].params)


def test_step_sizes_follow_the_acceptance_of_the_batch(annealed):
    _, _, _, states, logs = annealed
    for before, after, log in zip(states, states[1:], logs, strict=False):
        np.testing.assert_array_equal(log.step_sizes, before.step_sizes)
        assert log.metrics.acceptance[0] > TARGET > log.metrics.acceptance[1]
        wanted = nudge(
            jnp.asarray(before.step_sizes),
            jnp.asarray(log.metrics.acceptance),
            target=TARGET,
            largest=LARGEST_STEP,
        )
        np.testing.assert_allclose(after.step_sizes, wanted, rtol=1e-6)
    np.testing.assert_allclose(states[-1].step_sizes[0], 0.2 * 1.002**6, rtol=1e-5)
    np.testing.assert_allclose(states[-1].step_sizes[1], 1.8 * 0.998**6, rtol=1e-5)


@pytest.mark.parametrize("lengths", [(6,), (2, 3, 1)], ids=str)
def test_chunks_of_any_length_give_the_same_bits_with_one_compilation(annealed, lengths):
    counted, recipe, run, states, logs = annealed
    num_traces, first, state = counted.num_traces, 0, start(recipe)
    for length in lengths:
        state, log = run(state, KEY, later(make_batches(), first), jnp.int32(length))
        first += length
        assert_identical(on_host(state), states[first])
        for i in range(length):
            found = jax.tree.map(lambda a, i=i: np.array(a[i]), log)
            assert_identical(found, logs[first - length + i])
        rest = jax.tree.map(lambda a, n=length: np.array(a[n:]), log)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(rest))
    assert counted.num_traces == num_traces > 0


def test_the_callers_arrays_outlive_the_state(annealed):
    _, recipe, run, states, _ = annealed
    sizes = jnp.array(FIRST_STEPS)
    state = init_state(MODEL, ENCODER, recipe, sizes)
    run(state, KEY, make_batches(), jnp.int32(1))
    # The memory of the state itself was taken over: that is why it needs its own.
    assert state.params[0].weight.is_deleted()
    assert_identical(on_host(split_arrays(MODEL, ENCODER)[0]), states[0].params)
    np.testing.assert_array_equal(sizes, np.float32(FIRST_STEPS))
    np.testing.assert_array_equal(recipe.kernel.step_sizes, np.float32(FIRST_STEPS))


@pytest.mark.parametrize(
    "num_devices", [*(pytest.param(number, marks=pytest.mark.slow) for number in (2, 4)), 8]
)
def test_the_number_of_devices_does_not_matter(annealed, num_devices):
    _, recipe, _, states, logs = annealed
    run = make_chunk(recipe, mesh_of(num_devices), BATCH_SIZE)
    state, log = run(start(recipe), KEY, make_batches(), jnp.int32(2))
    assert len(state.params[0].weight.sharding.device_set) == num_devices
    assert_close(on_host(state), states[2])
    for i in range(2):
        assert_close(jax.tree.map(lambda a, i=i: np.array(a[i]), log), logs[i])


def test_networks_stepped_on_a_device_each_are_stepped_as_on_all():
    """The first devices have one network each, and those beyond none; muon alone is so stepped."""
    steps = optimizer(
        "muon", "cosine", learning_rate=None, num_epochs=1, updates_per_epoch=CAPACITY
    )
    recipe = make_recipe("dreg")._replace(optimizer=steps)
    found = []
    for is_shared_out in (False, True):
        run = make_chunk(recipe._replace(is_shared_out=is_shared_out), mesh_of(4), BATCH_SIZE)
        found.append(on_host(run(start(recipe), KEY, make_batches(), jnp.int32(3))[0]))
    assert differs(found[0].params, on_host(start(recipe)).params)
    assert_close(found[1], found[0])


def test_tiles_do_not_matter(annealed, monkeypatch):
    """Seven chains at most, two for an example: four tiles of two examples."""
    _, recipe, _, states, logs = annealed
    monkeypatch.setattr(updates, "CHAINS_PER_TILE", 7)
    assert updates._num_tiles(BATCH_SIZE, recipe.kernel) == 4
    run = make_chunk(recipe, mesh_of(1), BATCH_SIZE)
    state, log = run(start(recipe), KEY, make_batches(), jnp.int32(2))
    assert_close(on_host(state), states[2])
    for i in range(2):
        assert_close(jax.tree.map(lambda a, i=i: np.array(a[i]), log), logs[i])


def test_the_smallest_number_of_tiles_that_fit():
    def number(num_local, num_samples):
        return updates._num_tiles(num_local, Kernel(jnp.ones(2), jnp.ones(1), num_samples))

    assert [number(128, k) for k in (1, 8, 9, 50, 1024, 5000)] == [1, 4, 4, 16, 128, 128]
    assert number(7, 200) == 7
    assert number(1, 5000) == 1


def test_a_step_size_without_a_move_stays_put():
    recipe = make_recipe(last_move=False)
    run = make_chunk(recipe, mesh_of(1), BATCH_SIZE)
    state, log = run(start(recipe), KEY, make_batches(), jnp.int32(3))
    assert log.metrics.acceptance.shape == (CAPACITY, 1)
    assert state.step_sizes[0] != FIRST_STEPS[0]
    assert state.step_sizes[1] == np.float32(FIRST_STEPS[1])
    assert state.average is None


@pytest.fixture(scope="module")
def fragile():
    """Six updates by `vae`, of which the second, third and fifth meet a marked example."""
    model = Fragile(MODEL)
    recipe = make_recipe("vae", model=model, binarize="none", ema=0.5)
    run = make_chunk(recipe, mesh_of(1), BATCH_SIZE)
    batches = make_batches(marked=(1, 2, 4))
    return run_all(run, start(recipe, model), 6, batches=batches)


def test_updates_that_are_not_finite_are_skipped_and_counted(fragile):
    states, logs = fragile
    assert [bool(log.is_skipped) for log in logs] == [False, True, True, False, True, False]
    assert [int(state.num_skipped) for state in states] == [0, 0, 1, 2, 2, 3, 3]
    assert [int(state.num_skipped_in_row) for state in states] == [0, 0, 1, 2, 0, 1, 0]
    assert [int(state.update) for state in states] == list(range(7))
    for before, after, log in zip(states, states[1:], logs, strict=False):
        if log.is_skipped:
            assert_identical(after.params, before.params)
            assert_identical(after.optimizer, before.optimizer)
            assert_identical(after.average, before.average)
            assert np.isnan(log.losses.theta)
        else:
            assert differs(after.params, before.params)
            assert differs(after.optimizer, before.optimizer)
            assert differs(after.average, before.average)
    kept = [on_host(states[i].params) for i in (1, 4, 6)]
    assert_close(states[-1].average, decayed(kept, 0.5))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(states[-1]))


def test_step_sizes_stay_put_without_chains(fragile):
    states, logs = fragile
    for state in states:
        np.testing.assert_array_equal(state.step_sizes, np.float32(FIRST_STEPS))
    assert logs[0].metrics.acceptance.shape == (0,)


def test_the_first_state(annealed):
    _, recipe, _, states, _ = annealed
    state = states[0]
    assert isinstance(state, TrainState)
    assert (state.update, state.num_skipped, state.num_skipped_in_row) == (0, 0, 0)
    first = tuple(recipe.optimizer.init(part) for part in state.params)
    assert_identical(state.optimizer, on_host(first))
    assert start(recipe._replace(ema=0.0)).average is None
