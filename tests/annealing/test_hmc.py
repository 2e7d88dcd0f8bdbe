import functools

import blackjax.mcmc.hmc as blackjax_hmc
import blackjax.mcmc.integrators as blackjax_integrators
import blackjax.mcmc.metrics as blackjax_metrics
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import HMC, hmc
from aisle.annealing.path import Path, evaluate
from aisle.evaluation import problems
from measures import z_score

BETA = 0.7
SCALE = np.array([0.5, 1.0, 2.0])

step, step_reversed = eqx.filter_jit(HMC.step), eqx.filter_jit(HMC.step_reversed)
leapfrog = eqx.filter_jit(hmc.leapfrog)


def quartic_path():
    """A target that is neither symmetric nor separable, so that no error cancels."""

    def log_p(z):
        return -jnp.sum(z**4) / 4 + jnp.sum(jnp.sin(z)) + z[0] * z[1] / 2

    return Path(lambda z: -jnp.sum(z**2) / 2, log_p)


def start(path, scale=1.0):
    z, momentum = jnp.array([0.4, -1.1, 0.2]), jnp.array([1.0, 0.3, -0.8])
    return hmc.HMCState(z, momentum, evaluate(path, z), jnp.broadcast_to(scale, 3).astype(z.dtype))


def without_noise(num_leapfrog):
    """HMC that keeps its momentum; the checks of its fields would refuse it."""
    kernel = HMC(num_leapfrog)
    object.__setattr__(kernel, "refresh", 0.0)
    return kernel


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("num_steps", [1, 7])
def test_leapfrog_returns_to_its_start_when_the_momentum_is_negated(num_steps):
    path = quartic_path()
    begin, plan = start(path, SCALE), (path, jnp.array(BETA), jnp.array(0.3), num_steps)
    there = leapfrog(begin, *plan)
    back = leapfrog(there._replace(momentum=-there.momentum), *plan)
    assert jnp.max(jnp.abs(there.z - begin.z)) > 0.1
    np.testing.assert_allclose(back.z, begin.z, atol=1e-14)
    np.testing.assert_allclose(-back.momentum, begin.momentum, atol=1e-14)


@pytest.mark.usefixtures("double")
def test_energy_error_of_leapfrog_is_of_order_two():
    path, beta = quartic_path(), jnp.array(BETA)
    begin = start(path, SCALE)

    def error(num_steps):
        end = leapfrog(begin, path, beta, jnp.array(0.8 / num_steps), num_steps)
        return hmc.energy(end, beta) - hmc.energy(begin, beta)

    errors = jnp.array([error(n) for n in (32, 64, 128)])
    np.testing.assert_allclose(jnp.log2(errors[:-1] / errors[1:]), 2, atol=0.02)


@pytest.mark.usefixtures("double")
def test_preconditioned_hmc_is_plain_hmc_in_units_of_the_scale():
    """Draw by draw, from a q whose latents have scales of their own."""
    bare = quartic_path()
    q = Path(bare.log_q, bare.log_p, jnp.asarray(SCALE))
    rescaled = Path(lambda u: bare.log_q(SCALE * u), lambda u: bare.log_p(SCALE * u))
    z, size, beta = jnp.array([0.4, -1.1, 0.2]), jnp.array(0.35), jnp.array(BETA)

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def walk(kernel, is_rescaled):
        path, begin = (rescaled, z / SCALE) if is_rescaled else (q, z)

        def move(state, key):
            state, info = kernel.step(key, state, path, beta, size)
            return state, (state.z, info.energy_change)

        begin = kernel.init(jax.random.key(0), begin, path)
        return jax.lax.scan(move, begin, jax.random.split(jax.random.key(1), 20))[1]

    found, wanted = (
        jax.tree.map(np.asarray, walk(HMC(3, refresh=0.5, precondition=power), bool(1 - power)))
        for power in (1.0, 0.0)
    )
    np.testing.assert_allclose(found[0], SCALE * wanted[0], atol=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-12)
    assert len(np.unique(found[0][:, 0])) > 10


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_the_preconditioner_is_a_power_of_the_scale_of_the_proposal(power):
    path = quartic_path()._replace(scale=jnp.asarray(SCALE, jnp.float32))
    state = HMC(precondition=power).init(jax.random.key(0), jnp.ones(3), path)
    np.testing.assert_allclose(state.scale, SCALE**power, rtol=1e-6)


@pytest.mark.usefixtures("double")
def test_trajectory_and_acceptance_agree_with_blackjax():
    path, size, num_steps = quartic_path(), 0.35, 4
    begin, beta = start(path, SCALE), jnp.array(BETA)

    def log_density(z):
        return (1 - BETA) * path.log_q(z) + BETA * path.log_p(z)

    # BlackJAX's momentum is that of the mass matrix 1 / scale^2; ours is standard normal.
    metric = blackjax_metrics.gaussian_euclidean(SCALE**2)
    proposal = blackjax_hmc.hmc_proposal(
        blackjax_integrators.velocity_verlet(log_density, metric.kinetic_energy),
        metric.kinetic_energy,
        size,
        num_steps,
    )

    @jax.jit
    def reference(z, momentum):
        theirs = blackjax_integrators.new_integrator_state(log_density, z, momentum)
        return proposal(jax.random.key(0), theirs)[1]

    wanted = reference(begin.z, begin.momentum / SCALE)
    ours = leapfrog(begin, path, beta, jnp.array(size), num_steps)
    acceptance = jnp.exp(jnp.minimum(0, hmc.energy(begin, beta) - hmc.energy(ours, beta)))
    np.testing.assert_allclose(ours.z, wanted.proposal.position, rtol=1e-12)
    np.testing.assert_allclose(ours.momentum, -SCALE * wanted.proposal.momentum, rtol=1e-12)
    np.testing.assert_allclose(hmc.energy(ours, beta), wanted.energy, rtol=1e-12)
    np.testing.assert_allclose(acceptance, wanted.acceptance_rate, rtol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("size", "is_accepted"), [(0.01, True), (5.0, False)])
def test_reversed_step_undoes_a_step(size, is_accepted):
    """Exact, whether the proposal is accepted or not: without noise the two are inverse."""
    path, kernel = quartic_path(), without_noise(3)
    begin, plan = start(path), (path, jnp.array(BETA), jnp.array(size))
    there, info = step(kernel, jax.random.key(3), begin, *plan)
    back, _ = step_reversed(kernel, jax.random.key(3), there, *plan)
    assert bool(jnp.any(there.z != begin.z)) == is_accepted
    assert is_accepted == (info.acceptance > 0.9)
    np.testing.assert_allclose(back.z, begin.z, atol=1e-12)
    np.testing.assert_allclose(back.momentum, begin.momentum, atol=1e-12)


def test_momentum_is_negated_on_rejection_and_kept_on_acceptance():
    path, kernel = quartic_path(), without_noise(2)
    begin = start(path)
    for size, sign in [(1e-4, 1), (5.0, -1)]:
        plan = (path, jnp.array(BETA), jnp.array(size))
        state, _ = step(kernel, jax.random.key(0), begin, *plan)
        np.testing.assert_allclose(state.momentum, sign * begin.momentum, atol=1e-2)


@pytest.mark.parametrize("value", [jnp.nan, -jnp.inf, jnp.inf])
def test_a_nonfinite_energy_is_rejected_and_counted(value):
    def log_q(z):
        return -jnp.sum(z**2) / 2

    path = Path(log_q, lambda z: jnp.where(jnp.sum(z) > 1, value, log_q(z)))
    z = jnp.array([0.9])
    begin = hmc.HMCState(z, jnp.array([2.0]), evaluate(path, z), jnp.ones(1))
    plan = (path, jnp.array(BETA), jnp.array(0.5))
    state, info = step(without_noise(1), jax.random.key(0), begin, *plan)
    assert info.is_nonfinite
    assert info.acceptance == 0
    assert state.z == begin.z
    assert jnp.isfinite(state.point.log_p)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["step", "step_reversed"])
def test_the_target_is_invariant(name):
    """Exact samples stay so, with steps coarse enough that a third of them is rejected."""
    target = problems.lopsided()
    path = Path(target.wide.log_prob, target.log_joint)
    kernel = HMC(1, refresh=0.4)

    def chain(key):
        key_z, key_momentum, key = jax.random.split(key, 3)
        exact = target.sample(key_z)
        state = kernel.init(key_momentum, exact, path)

        def transition(state, key):
            move = getattr(kernel, name)
            state, info = move(key, state, path, jnp.float32(1), jnp.float32(1.4))
            return state, info.acceptance

        state, acceptance = jax.lax.scan(transition, state, jax.random.split(key, 4))
        return state.z[0], exact[0], acceptance

    keys = jax.random.split(jax.random.key(5), 50_000)
    z, exact, acceptance = jax.jit(jax.vmap(chain))(keys)
    assert 0.4 < acceptance.mean() < 0.9
    for moment in (1, 2, 3):
        difference = np.asarray(z, float) ** moment - np.asarray(exact, float) ** moment
        assert abs(z_score(difference, 0)) < 4


def test_a_pytree_latent_is_moved_like_its_leaves():
    path = quartic_path()

    def join(tree):
        return jnp.concatenate([tree[0], tree[1]["rest"]])

    def part(array):
        return (array[:1], {"rest": array[1:]})

    tree_path = Path(lambda t: path.log_q(join(t)), lambda t: path.log_p(join(t)))
    flat = start(path, SCALE)
    z, momentum, scale = map(part, (flat.z, flat.momentum, flat.scale))
    begin = hmc.HMCState(z, momentum, evaluate(tree_path, z), scale)
    beta, size = jnp.float32(BETA), jnp.float32(0.2)
    end = leapfrog(begin, tree_path, beta, size, 3)
    flat_end = leapfrog(flat, path, beta, size, 3)
    np.testing.assert_allclose(join(end.z), flat_end.z, rtol=1e-6)
    np.testing.assert_allclose(hmc.energy(end, beta), hmc.energy(flat_end, beta), rtol=1e-6)
