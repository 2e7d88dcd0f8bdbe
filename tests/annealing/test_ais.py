import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import anneal, anneal_reverse, schedules
from aisle.annealing.ais import sample_start
from aisle.errors import InputError
from aisle.experiments import problems
from aisle.models import DiagonalNormal
from measures import z_score

# Options as arrays, so that those of one shape share a compilation.
FULL = {"refresh": jnp.array(1.0), "jitter": jnp.array(0.0), "scale": jnp.array([1.0])}
KERNELS = {
    "plain": FULL,
    "partial refresh": FULL | {"refresh": jnp.array(0.4)},
    "jitter": FULL | {"jitter": jnp.array(0.5)},
    "preconditioned": FULL | {"scale": jnp.array([0.6])},
    "without last move": FULL | {"last_move": False},
    "everything": {
        "refresh": jnp.array(0.4),
        "jitter": jnp.array(0.3),
        "scale": jnp.array([0.6]),
        "last_move": False,
    },
}


@eqx.filter_jit
def forward(keys, q, log_joint, betas, step_sizes, num_leapfrog, **options):
    run = functools.partial(anneal, **options)
    return jax.vmap(lambda k: run(k, q, log_joint, betas, step_sizes, num_leapfrog))(keys)


@eqx.filter_jit
def backward(keys, sample, q, log_joint, betas, step_sizes, num_leapfrog, **options):
    def run(key):
        key_z, key = jax.random.split(key)
        z = sample(key_z)
        return anneal_reverse(key, z, q, log_joint, betas, step_sizes, num_leapfrog, **options)

    return jax.vmap(run)(keys)


@pytest.fixture(scope="module")
def keys():
    return jax.random.split(jax.random.key(11), 200_000)


def lopsided_plan(num_temperatures=6):
    """Steps so coarse that a good part of the proposals is rejected."""
    target = problems.lopsided()
    sizes = jnp.full(num_temperatures, 1.5)
    return (target.wide, target.log_joint, schedules.linear(num_temperatures), sizes, 1)


@pytest.fixture(scope="module")
def both_ways(keys):
    """Return what runs a kernel forwards and backwards, each kernel once."""
    sample = problems.lopsided().sample

    @functools.cache
    def run(name):
        there = forward(keys, *lopsided_plan(), **KERNELS[name])
        return there, backward(keys, sample, *lopsided_plan(), **KERNELS[name])

    return run


@pytest.mark.parametrize("name", KERNELS)
def test_forward_weights_average_to_the_normaliser(both_ways, name):
    run, _ = both_ways(name)
    assert 0.4 < run.info.acceptance.mean() < 0.9
    assert abs(z_score(jnp.exp(run.log_weight - problems.lopsided().log_normaliser), 1)) < 4


@pytest.mark.parametrize("name", KERNELS)
def test_reverse_weights_average_to_the_normaliser(both_ways, name):
    _, run = both_ways(name)
    assert 0.4 < run.info.acceptance.mean() < 0.9
    assert abs(z_score(jnp.exp(problems.lopsided().log_normaliser - run.log_weight), 1)) < 4


@pytest.mark.parametrize("name", KERNELS)
def test_the_reverse_run_is_the_reversal_of_the_forward_run(both_ways, name):
    """Crooks' relation: E_reverse[log w] = E_forward[w log w] / E_forward[w].

    It alone sees a wrong reversal: E[1/w] = 1/Z holds for any kernels that leave the densities
    invariant.
    """
    there, back = (np.asarray(run.log_weight, float) for run in both_ways(name))
    share = np.exp(there) / np.exp(there).mean()
    predicted = np.mean(share * there)
    # The forward side's error, as a spread added to the reverse side's samples.
    spread = share * (there - predicted)
    assert abs(z_score(back - predicted - spread, 0)) < 4


@pytest.mark.parametrize("num_temperatures", [10, 30, 100])
def test_narrow_normal(keys, num_temperatures):
    """A kernel that starts from the energy of the temperature before is off by 0.1 and more."""
    target, betas = problems.narrow_normal(), schedules.linear(num_temperatures)
    sizes = jnp.full(num_temperatures, 0.25)
    run = forward(keys[:20_000], target.wide, target.log_joint, betas, sizes, 3)
    assert abs(z_score(jnp.exp(run.log_weight), 1)) < 4


@pytest.mark.parametrize("options", [{}, {"refresh": 0.5}], ids=["full", "partial"])
def test_weighted_samples_have_the_posterior_moments(keys, options):
    model, x, problem = problems.linear_gaussian()
    exact = model.posterior(x)
    run = forward(
        keys[:50_000],
        problem.wide,
        problem.log_joint,
        schedules.sigmoid(8),
        jnp.full(8, 0.7),
        3,
        **options,
    )
    weight = jnp.exp(run.log_weight - problem.log_normaliser)
    assert abs(z_score(weight, 1)) < 4
    for i in range(3):
        assert abs(z_score(weight * (run.z[:, i] - exact.loc[i]), 0)) < 4
        square = (run.z[:, i] - exact.loc[i]) ** 2 - exact.covariance_matrix[i, i]
        assert abs(z_score(weight * square, 0)) < 4


@pytest.mark.parametrize("last_move", [True, False])
def test_the_bounds_sandwich_the_truth(keys, last_move):
    _, _, problem = problems.linear_gaussian()
    plan = (problem.narrow, problem.log_joint, schedules.linear(3), jnp.full(3, 0.4), 2)
    lower = forward(keys[:20_000], *plan, last_move=last_move).log_weight
    upper = backward(keys[:20_000], problem.sample, *plan, last_move=last_move)
    assert z_score(lower, problem.log_normaliser) < -4
    assert z_score(upper.log_weight, problem.log_normaliser) > 4


def test_one_temperature_is_importance_sampling_bit_for_bit(keys):
    _, _, problem = problems.linear_gaussian()
    q, log_joint = problem.narrow, problem.log_joint

    @jax.jit
    @jax.vmap
    def importance(key):
        z = sample_start(key, q)
        return z, log_joint(z) - q.log_prob(z)

    betas, size = schedules.linear(1), jnp.ones(1)
    run = forward(keys[:1000], q, log_joint, betas, size, 5, last_move=False)
    z, log_weight = importance(keys[:1000])
    np.testing.assert_array_equal(run.z, z)
    np.testing.assert_array_equal(run.log_weight, log_weight)


def test_a_proposal_equal_to_the_target_has_log_weight_zero(keys):
    q = DiagonalNormal(jnp.array([0.3, -2.0]), jnp.array([0.1, 3.0]))
    run = forward(keys[:1000], q, q.log_prob, schedules.sigmoid(20), jnp.full(20, 0.5), 3)
    np.testing.assert_array_equal(run.log_weight, 0)


def test_the_weight_is_the_sum_over_the_states_before_each_move(keys):
    """Exact: replay the chain by hand from the equation, one temperature at a time."""
    target, betas = problems.lopsided(), schedules.sigmoid(5)
    run = forward(keys[:50], target.wide, target.log_joint, betas, jnp.full(5, 0.9), 2)
    wanted = jnp.sum(jnp.diff(betas)[None] * run.info.log_ratio, axis=1)
    np.testing.assert_allclose(run.log_weight, wanted, rtol=1e-5)
    starts = jax.vmap(lambda k: target.wide.sample(jax.random.split(k, 3)[0]))(keys[:50])
    first = jax.vmap(lambda z: target.log_joint(z) - target.wide.log_prob(z))(starts)
    np.testing.assert_allclose(run.info.log_ratio[:, 0], first, rtol=1e-5, atol=1e-6)
    one_move = forward(keys[:50], target.wide, target.log_joint, betas[:2], jnp.full(1, 0.9), 2)
    second = jax.vmap(lambda z: target.log_joint(z) - target.wide.log_prob(z))(one_move.z)
    np.testing.assert_allclose(run.info.log_ratio[:, 1], second, rtol=1e-5, atol=1e-6)


def test_points_outside_the_support_have_weight_zero_and_count(keys):
    """A half-normal target: q puts half of its mass where p is zero."""
    q = DiagonalNormal(jnp.zeros(1), jnp.ones(1))

    def log_joint(z):
        return jnp.where(jnp.all(z > 0), -jnp.sum(z**2) / 2, -jnp.inf)

    for betas in (schedules.linear(4), schedules.immediate(4)):
        run = forward(keys[:20_000], q, log_joint, betas, jnp.full(4, 0.8), 2)
        assert not jnp.any(jnp.isnan(run.log_weight))
        assert jnp.any(run.info.is_nonfinite)
        truth = np.sqrt(np.pi / 2)
        assert abs(z_score(jnp.exp(run.log_weight), truth)) < 4


def test_single_precision_keeps_the_sum_over_ten_thousand_temperatures(keys):
    shift = 150.0
    q = DiagonalNormal(jnp.zeros(50), jnp.full(50, 0.3))

    def log_joint(z):
        return jnp.sum(-((z - 0.2) ** 2)) - shift

    betas = schedules.sigmoid(10_000)
    run = forward(keys[:8], q, log_joint, betas, jnp.full(10_000, 0.1), 1)
    exact = np.diff(np.asarray(betas, np.float64)) * np.asarray(run.info.log_ratio, np.float64)
    assert np.max(np.abs(run.log_weight - exact.sum(axis=1))) < 2e-4


def test_compiled_and_plain_runs_agree(keys):
    target, betas = problems.lopsided(), schedules.linear(4)
    plan = (target.wide, target.log_joint, betas, jnp.full(4, 0.9), 2)
    compiled = forward(keys[:1], *plan, refresh=0.4)
    with jax.disable_jit():
        plain = anneal(keys[0], *plan, refresh=0.4)
    np.testing.assert_allclose(compiled.z[0], plain.z, rtol=1e-5)
    np.testing.assert_allclose(compiled.log_weight[0], plain.log_weight, rtol=1e-5)


def test_vmap_equals_a_loop(keys):
    target, betas = problems.lopsided(), schedules.linear(4)
    plan = (target.wide, target.log_joint, betas, jnp.full(4, 0.9), 2)
    together = forward(keys[:20], *plan)
    alone = [forward(keys[i : i + 1], *plan) for i in range(20)]
    np.testing.assert_allclose(together.z, jnp.concatenate([a.z for a in alone]), rtol=1e-5)
    np.testing.assert_allclose(
        together.log_weight, jnp.concatenate([a.log_weight for a in alone]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_draws_of_an_example_do_not_depend_on_batch_order_or_devices():
    model, _, problem = problems.linear_gaussian()
    q = problem.wide
    root, num_examples = jax.random.key(3), 16
    xs = jax.random.normal(jax.random.key(4), (num_examples, 4))
    betas, sizes = schedules.linear(4), jnp.full(4, 0.5)

    @jax.jit
    @jax.vmap
    def log_weights(index, x):
        def log_joint(z):
            return model.log_prior(z) + model.log_likelihood(x, z)

        keys = jax.random.split(jax.random.fold_in(root, index), 3)
        return jax.vmap(lambda k: anneal(k, q, log_joint, betas, sizes, 2).log_weight)(keys)

    index = jnp.arange(num_examples)
    wanted = log_weights(index, xs)
    halves = [log_weights(index[part], xs[part]) for part in (slice(0, 5), slice(5, None))]
    np.testing.assert_allclose(jnp.concatenate(halves), wanted, rtol=1e-5)
    order = jax.random.permutation(jax.random.key(0), index)
    np.testing.assert_allclose(log_weights(order, xs[order]), wanted[order], rtol=1e-5)
    for num_devices in (2, 8):
        mesh = jax.sharding.Mesh(jax.devices()[:num_devices], ("batch",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
        sharded = log_weights(*jax.device_put((index, xs), sharding))
        assert len(sharded.sharding.device_set) == num_devices
        np.testing.assert_allclose(sharded, wanted, rtol=1e-5)


def test_bad_arguments_get_one_clear_line():
    target, betas, key = problems.lopsided(), schedules.linear(4), jax.random.key(0)
    with pytest.raises(InputError, match="5 step sizes for 5 inverse temperatures"):
        anneal(key, target.wide, target.log_joint, betas, jnp.ones(5), 2)
    with pytest.raises(InputError, match="num_leapfrog is 0"):
        anneal(key, target.wide, target.log_joint, betas, jnp.ones(4), 0)
    with pytest.raises(InputError, match=r"scale has the shapes \(2,\) and the latent \(1,\)"):
        anneal(key, target.wide, target.log_joint, betas, jnp.ones(4), 2, scale=jnp.ones(2))
