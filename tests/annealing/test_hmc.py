import blackjax.mcmc.hmc as blackjax_hmc
import blackjax.mcmc.integrators as blackjax_integrators
import blackjax.mcmc.metrics as blackjax_metrics
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import hmc
from aisle.annealing.path import Path, evaluate
from aisle.experiments import problems
from measures import z_score

BETA = 0.7

step, step_reversed = eqx.filter_jit(hmc.step), eqx.filter_jit(hmc.step_reversed)
leapfrog = eqx.filter_jit(hmc.leapfrog)


def quartic_path():
    """A target that is neither symmetric nor separable, so that no error cancels."""

    def log_p(z):
        return -jnp.sum(z**4) / 4 + jnp.sum(jnp.sin(z)) + z[0] * z[1] / 2

    return Path(lambda z: -jnp.sum(z**2) / 2, log_p)


def start(path, z, momentum):
    z, momentum = jnp.asarray(z), jnp.asarray(momentum)
    return hmc.HMCState(z, momentum, evaluate(path, z))


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("num_steps", [1, 2, 7])
def test_leapfrog_returns_to_its_start_when_the_momentum_is_negated(num_steps):
    path = quartic_path()
    scale = jnp.array([0.5, 1.0, 2.0])
    begin = start(path, [0.4, -1.1, 0.2], [1.0, 0.3, -0.8])
    there = leapfrog(begin, path, jnp.array(BETA), jnp.array(0.3), scale, num_steps)
    back = leapfrog(
        there._replace(momentum=-there.momentum),
        path,
        jnp.array(BETA),
        jnp.array(0.3),
        scale,
        num_steps,
    )
    assert jnp.max(jnp.abs(there.z - begin.z)) > 0.1
    np.testing.assert_allclose(back.z, begin.z, atol=1e-14)
    np.testing.assert_allclose(-back.momentum, begin.momentum, atol=1e-14)


@pytest.mark.usefixtures("double")
def test_energy_error_of_leapfrog_is_of_order_two():
    path = quartic_path()
    begin = start(path, [0.4, -1.1, 0.2], [1.0, 0.3, -0.8])
    scale = jnp.array([0.5, 1.0, 2.0])

    def error(num_steps):
        size = jnp.array(0.8 / num_steps)
        end = leapfrog(begin, path, jnp.array(BETA), size, scale, num_steps)
        return hmc.energy(end, jnp.array(BETA)) - hmc.energy(begin, jnp.array(BETA))

    errors = jnp.array([error(n) for n in (16, 32, 64, 128)])
    np.testing.assert_allclose(jnp.log2(errors[:-1] / errors[1:]), 2, atol=0.02)


@pytest.mark.usefixtures("double")
def test_preconditioned_hmc_is_plain_hmc_on_the_rescaled_target():
    path, scale = quartic_path(), jnp.array([0.5, 1.0, 2.0])
    rescaled = Path(lambda u: path.log_q(scale * u), lambda u: path.log_p(scale * u))
    z = jnp.array([0.4, -1.1, 0.2])
    size, beta, ones = jnp.array(0.35), jnp.array(BETA), jnp.ones(3)
    state = hmc.init(jax.random.key(0), z, path)
    plain = hmc.init(jax.random.key(0), z / scale, rescaled)
    for key in jax.random.split(jax.random.key(1), 20):
        state, info = step(key, state, path, beta, hmc.HMCParams(size, scale, 3, 0.5))
        plain, plain_info = step(key, plain, rescaled, beta, hmc.HMCParams(size, ones, 3, 0.5))
        np.testing.assert_allclose(state.z, scale * plain.z, atol=1e-12)
        np.testing.assert_allclose(info.energy_change, plain_info.energy_change, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_trajectory_and_acceptance_agree_with_blackjax():
    path, scale = quartic_path(), jnp.array([0.5, 1.0, 2.0])
    size, num_steps = 0.35, 4
    z, velocity = jnp.array([0.4, -1.1, 0.2]), jnp.array([1.0, 0.3, -0.8])

    def log_density(z):
        return (1 - BETA) * path.log_q(z) + BETA * path.log_p(z)

    # BlackJAX's momentum is that of the mass matrix 1 / scale^2; ours is standard normal.
    metric = blackjax_metrics.gaussian_euclidean(scale**2)
    proposal = blackjax_hmc.hmc_proposal(
        blackjax_integrators.velocity_verlet(log_density, metric.kinetic_energy),
        metric.kinetic_energy,
        size,
        num_steps,
    )
    theirs = blackjax_integrators.new_integrator_state(log_density, z, velocity / scale)
    _, wanted, _ = proposal(jax.random.key(0), theirs)

    begin, beta = start(path, z, velocity), jnp.array(BETA)
    ours = leapfrog(begin, path, beta, jnp.array(size), scale, num_steps)
    acceptance = jnp.exp(jnp.minimum(0, hmc.energy(begin, beta) - hmc.energy(ours, beta)))
    np.testing.assert_allclose(ours.z, wanted.proposal.position, rtol=1e-12)
    np.testing.assert_allclose(ours.momentum, -scale * wanted.proposal.momentum, rtol=1e-12)
    np.testing.assert_allclose(hmc.energy(ours, beta), wanted.energy, rtol=1e-12)
    np.testing.assert_allclose(acceptance, wanted.acceptance_rate, rtol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("size", "is_accepted"), [(0.01, True), (5.0, False)])
def test_reversed_step_undoes_a_step(size, is_accepted):
    """Exact, whether the proposal is accepted or not: without noise the two are inverse."""
    path = quartic_path()
    begin = start(path, [0.4, -1.1, 0.2], [1.0, 0.3, -0.8])
    params = hmc.HMCParams(jnp.array(size), jnp.ones(3), 3, refresh=0.0)
    key = jax.random.key(3)
    there, info = step(key, begin, path, jnp.array(BETA), params)
    back, _ = step_reversed(key, there, path, jnp.array(BETA), params)
    assert bool(jnp.any(there.z != begin.z)) == is_accepted
    assert is_accepted == (info.acceptance > 0.9)
    np.testing.assert_allclose(back.z, begin.z, atol=1e-12)
    np.testing.assert_allclose(back.momentum, begin.momentum, atol=1e-12)


def test_momentum_is_negated_on_rejection_and_kept_on_acceptance():
    path = quartic_path()
    begin = start(path, [0.4, -1.1, 0.2], [1.0, 0.3, -0.8])
    for size, sign in [(1e-4, 1), (5.0, -1)]:
        params = hmc.HMCParams(jnp.array(size), jnp.ones(3), 2, refresh=0.0)
        state, _ = step(jax.random.key(0), begin, path, jnp.array(BETA), params)
        np.testing.assert_allclose(state.momentum, sign * begin.momentum, atol=1e-2)


@pytest.mark.parametrize("value", [jnp.nan, -jnp.inf, jnp.inf])
def test_a_nonfinite_energy_is_rejected_and_counted(value):
    path = Path(
        lambda z: -jnp.sum(z**2) / 2,
        lambda z: jnp.where(jnp.sum(z) > 1, value, -jnp.sum(z**2) / 2),
    )
    begin = start(path, [0.9], [2.0])
    params = hmc.HMCParams(jnp.array(0.5), jnp.ones(1), 1, refresh=0.0)
    state, info = step(jax.random.key(0), begin, path, jnp.array(BETA), params)
    assert info.is_nonfinite
    assert info.acceptance == 0
    assert state.z == begin.z
    assert jnp.isfinite(state.point.log_p)


def test_jitter_spreads_the_step_size():
    path = quartic_path()
    begin = start(path, [0.4, -1.1, 0.2], [1.0, 0.3, -0.8])
    keys = jax.random.split(jax.random.key(0), 1000)
    params = hmc.HMCParams(jnp.array(1e-3), jnp.ones(3), 1, refresh=0.0, jitter=0.4)
    moved = jax.vmap(lambda k: step(k, begin, path, jnp.array(BETA), params)[0].z)(keys)
    # Over such a short step the path is straight, and its length is the step size.
    sizes = (moved[:, 0] - begin.z[0]) / begin.momentum[0]
    assert jnp.min(sizes) == pytest.approx(0.6e-3, rel=2e-2)
    assert jnp.max(sizes) == pytest.approx(1.4e-3, rel=2e-2)


@pytest.mark.parametrize("kernel", [hmc.step, hmc.step_reversed])
def test_the_target_is_invariant(kernel):
    """Exact samples stay so, with steps coarse enough that a third of them is rejected."""
    target = problems.lopsided()
    path = Path(target.wide.log_prob, target.log_joint)

    def chain(key, refresh):
        key_z, key_momentum, key = jax.random.split(key, 3)
        state = hmc.init(key_momentum, target.sample(key_z), path)
        params = hmc.HMCParams(jnp.array(1.4), jnp.ones(1), 1, refresh)

        def transition(state, key):
            state, info = kernel(key, state, path, jnp.float32(1), params)
            return state, info.acceptance

        state, acceptance = jax.lax.scan(transition, state, jax.random.split(key, 4))
        return state.z[0], acceptance

    num_chains = 200_000
    keys = jax.random.split(jax.random.key(5), num_chains)
    exact = jax.vmap(target.sample)(jax.random.split(jax.random.key(6), num_chains))[:, 0]
    run = jax.jit(jax.vmap(chain, in_axes=(0, None)))
    for refresh in (1.0, 0.4):
        z, acceptance = run(keys, jnp.array(refresh))
        assert 0.4 < acceptance.mean() < 0.9
        for moment in (1, 2, 3):
            difference = np.asarray(z, float) ** moment - np.asarray(exact, float) ** moment
            assert abs(z_score(difference, 0)) < 4


def test_a_pytree_latent_is_moved_like_its_leaves():
    problem = problems.linear_gaussian().posterior
    path = Path(problem.narrow.log_prob, problem.log_joint)

    def join(tree):
        return jnp.concatenate([tree[0], tree[1]["rest"]])

    tree_path = Path(lambda t: path.log_q(join(t)), lambda t: path.log_p(join(t)))
    tree = (jnp.array([0.5]), {"rest": jnp.array([-0.2, 0.1])})
    momentum = (jnp.array([1.0]), {"rest": jnp.array([0.3, -0.5])})
    ones = jax.tree.map(jnp.ones_like, tree)
    begin = hmc.HMCState(tree, momentum, evaluate(tree_path, tree))
    flat = start(path, join(tree), join(momentum))
    beta, size = jnp.float32(BETA), jnp.float32(0.2)
    end = leapfrog(begin, tree_path, beta, size, ones, 3)
    flat_end = leapfrog(flat, path, beta, size, jnp.ones(3), 3)
    np.testing.assert_allclose(join(end.z), flat_end.z, rtol=1e-6)
    np.testing.assert_allclose(hmc.energy(end, beta), hmc.energy(flat_end, beta), rtol=1e-6)
