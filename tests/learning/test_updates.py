import functools
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

from aisle.annealing import HMC, Kernel, schedules
from aisle.annealing.tuning import nudge
from aisle.data import View
from aisle.learning import AIS, IWAE, VAE, DReG, Muon, updates
from aisle.learning.preparing import trained_arrays
from aisle.learning.updates import Batches, Step, TrainState, enter, init_state, make_chunk
from aisle.models import DiagonalNormal, LinearGaussian

BATCH_SIZE, NUM_EXAMPLES, CAPACITY = 8, 20, 6
KEY = jax.random.key(17)
EPSILON, RATE, TARGET = 1e-4, 0.05, 0.7
GREY = View(is_grey=True, binarize="dynamic")

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


@dataclass(frozen=True)
class Steps(HMC):
    """HMC whose largest step size is beyond those of these tests."""

    largest_step_size = 1.9


KERNEL = Kernel(schedules.linear, Steps(1), TARGET)


@dataclass(frozen=True, repr=False)
class Annealing(AIS):
    """AIS that starts from step sizes of its own, and counts how often it is traced."""

    num_samples: int = 2
    num_temperatures: int = 2
    kernel: Kernel = KERNEL
    num_traces: ClassVar[list] = []

    def init(self):
        return jnp.array(FIRST_STEPS)

    def estimate(self, *arguments):
        self.num_traces.append(1)
        return super().estimate(*arguments)


def make_step(method=Annealing(), *, model=MODEL, view=GREY, average=0.0):  # noqa: B008
    adam = optax.adam(RATE, eps=EPSILON)
    return Step(trained_arrays(model, ENCODER)[1], method, adam, view, average)


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


def start(step, model=MODEL):
    return init_state(trained_arrays(model, ENCODER)[0], step)


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


@jax.jit
def reference_gradients(params, step_sizes, update, rows, indices):
    """The mean gradient over the batch, written out: an example's key is of the update and it."""
    step = make_step()

    def loss(params):
        model, encoder = eqx.combine(params, step.static)

        def example(row, index):
            key = jax.random.fold_in(jax.random.fold_in(KEY, update), index)
            key_bits, key = jax.random.split(key)
            x = jax.random.bernoulli(key_bits, row / 255).astype(jnp.float32)
            return step.method.estimate(key, model, encoder, x, step_sizes)

        losses, metrics = jax.tree.map(lambda a: a.mean(axis=0), jax.vmap(example)(rows, indices))
        return losses.theta + losses.phi, (losses, metrics)

    return jax.grad(loss, has_aux=True)(params)


@pytest.fixture(scope="module")
def annealed():
    """A compiled chunk of annealing on one device, with its single updates."""
    step = make_step(average=0.9)
    run = make_chunk(step, mesh_of(1), BATCH_SIZE)
    states, logs = run_all(run, start(step), 6, batches=make_batches())
    return step, run, states, logs


@pytest.mark.slow
def test_an_update_is_a_step_along_the_mean_gradient(annealed):
    _, _, states, logs = annealed
    batches = make_batches()
    adam = optax.adam(RATE, eps=EPSILON)
    for i in (0, 3):
        before, indices = states[i], batches.indices[i]
        grads, (losses, metrics) = reference_gradients(
            before.params, before.method, i, batches.examples[indices], indices
        )
        parts = zip(grads, before.optimizer, before.params, strict=True)
        steps = [jax.jit(adam.update)(*part) for part in parts]
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


@pytest.mark.slow
def test_the_average_is_of_the_weights_after_each_update(annealed):
    """Not of those before the first one, which would stay in it for long."""
    _, _, states, _ = annealed
    params = [on_host(state.params) for state in states[1:]]
    for i, state in enumerate(states[1:]):
        assert_close(state.average, decayed(params[: i + 1], 0.9))
    assert differs(states[-1].average, states[-1].params)


@pytest.mark.slow
def test_step_sizes_follow_the_acceptance_of_the_batch(annealed):
    _, _, states, logs = annealed
    for before, after, log in zip(states, states[1:], logs, strict=False):
        np.testing.assert_array_equal(log.method, before.method)
        assert log.metrics.acceptance[0] > TARGET > log.metrics.acceptance[1]
        acceptance = jnp.asarray(log.metrics.acceptance)
        wanted = nudge(jnp.asarray(before.method), acceptance, target=TARGET, largest=1.9)
        np.testing.assert_allclose(after.method, wanted, rtol=1e-6)
    np.testing.assert_allclose(states[-1].method[0], 0.2 * 1.002**6, rtol=1e-5)
    np.testing.assert_allclose(states[-1].method[1], 1.8 * 0.998**6, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(6,), (2, 3, 1)], ids=str)
def test_chunks_of_any_length_give_the_same_bits_with_one_compilation(annealed, lengths):
    step, run, states, logs = annealed
    num_traces, first, state = len(step.method.num_traces), 0, start(step)
    for length in lengths:
        state, log = run(state, KEY, later(make_batches(), first), jnp.int32(length))
        first += length
        assert_identical(on_host(state), states[first])
        for i in range(length):
            found = jax.tree.map(lambda a, i=i: np.array(a[i]), log)
            assert_identical(found, logs[first - length + i])
        rest = jax.tree.map(lambda a, n=length: np.array(a[n:]), log)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(rest))
    assert len(step.method.num_traces) == num_traces > 0


@pytest.mark.slow
def test_the_callers_arrays_outlive_the_state(annealed):
    step, run, states, _ = annealed
    state = start(step)
    run(state, KEY, make_batches(), jnp.int32(1))
    # The memory of the state itself was taken over: that is why it needs its own.
    assert state.params[0].weight.is_deleted()
    assert_identical(on_host(trained_arrays(MODEL, ENCODER)[0]), states[0].params)


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [2, 4, 8])
def test_the_number_of_devices_does_not_matter(annealed, num_devices):
    step, _, states, logs = annealed
    run = make_chunk(step, mesh_of(num_devices), BATCH_SIZE)
    state, log = run(start(step), KEY, make_batches(), jnp.int32(2))
    assert len(state.params[0].weight.sharding.device_set) == num_devices
    assert_close(on_host(state), states[2])
    for i in range(2):
        assert_close(jax.tree.map(lambda a, i=i: np.array(a[i]), log), logs[i])


@pytest.mark.slow
def test_networks_stepped_on_a_device_each_are_stepped_as_on_all():
    """The first devices have one network each, and those beyond none; Muon alone is so stepped."""
    step = make_step(DReG(2))._replace(optimizer=Muon().build(CAPACITY, CAPACITY))
    found = []
    for is_shared_out in (False, True):
        run = make_chunk(step._replace(is_shared_out=is_shared_out), mesh_of(4), BATCH_SIZE)
        found.append(on_host(run(start(step), KEY, make_batches(), jnp.int32(3))[0]))
    assert differs(found[0].params, on_host(start(step)).params)
    assert_close(found[1], found[0])


@pytest.mark.slow
def test_tiles_do_not_matter(annealed, monkeypatch):
    """Seven chains at most, two for an example: four tiles of two examples."""
    step, _, states, logs = annealed
    monkeypatch.setattr(updates, "CHAINS_PER_TILE", 7)
    assert updates._num_tiles(BATCH_SIZE, step.method) == 4
    run = make_chunk(step, mesh_of(1), BATCH_SIZE)
    state, log = run(start(step), KEY, make_batches(), jnp.int32(2))
    assert_close(on_host(state), states[2])
    for i in range(2):
        assert_close(jax.tree.map(lambda a, i=i: np.array(a[i]), log), logs[i])


def test_the_smallest_number_of_tiles_that_fit():
    def number(num_local, num_samples):
        return updates._num_tiles(num_local, IWAE(num_samples))

    assert [number(128, k) for k in (1, 8, 9, 50, 1024, 5000)] == [1, 4, 4, 16, 128, 128]
    assert number(7, 200) == 7
    assert number(1, 5000) == 1


@pytest.mark.slow
def test_a_phase_begins_with_new_states_of_optimiser_and_method(annealed):
    _, _, states, _ = annealed
    other = make_step(average=0.9)._replace(optimizer=optax.sgd(0.1, momentum=0.9))
    entered = on_host(enter(states[-1], other))
    assert_identical(entered.optimizer, on_host(start(other).optimizer))
    np.testing.assert_array_equal(entered.method, np.float32(FIRST_STEPS))
    for name in ("update", "params", "average", "num_skipped"):
        assert_identical(getattr(entered, name), getattr(states[-1], name))


@pytest.fixture(scope="module")
def fragile():
    """Six updates of a VAE, of which the second, third and fifth meet a marked example."""
    model = Fragile(MODEL)
    step = make_step(VAE(2), model=model, view=View(is_grey=True), average=0.5)
    run = make_chunk(step, mesh_of(1), BATCH_SIZE)
    batches = make_batches(marked=(1, 2, 4))
    return run_all(run, start(step, model), 6, batches=batches)


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


@pytest.mark.slow
def test_the_first_state(annealed):
    step, _, states, _ = annealed
    state = states[0]
    assert isinstance(state, TrainState)
    assert (state.update, state.num_skipped, state.num_skipped_in_row) == (0, 0, 0)
    first = tuple(step.optimizer.init(part) for part in state.params)
    assert_identical(state.optimizer, on_host(first))
    assert_identical(state.average, state.params)
    assert start(step._replace(average=0.0)).average is None
    assert start(make_step(VAE())).method == ()
