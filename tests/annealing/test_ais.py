import functools
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import HMC, Ladder, MoveInfo, Transition, anneal, anneal_reverse, schedules
from aisle.annealing.ais import sample_start
from aisle.annealing.path import Evaluation, evaluate, log_density
from aisle.errors import InputError
from aisle.evaluation import problems
from aisle.models import DiagonalNormal
from measures import z_score


class WalkState(NamedTuple):
    z: jax.Array
    direction: jax.Array
    point: Evaluation


@dataclass(frozen=True)
class GuidedWalk:
    """A transition of one's own: Metropolis steps that keep their direction until one is rejected.

    It is not reversible, so that its reversal has to be written down.
    """

    num_gradients: int = 1
    first_step_size: float = 0.5
    largest_step_size: float = 5.0

    def init(self, key, z, path):
        direction = jax.random.rademacher(key, (), z.dtype)
        return WalkState(z, direction, evaluate(path, z))

    def step(self, key, state, path, beta, step_size):
        key_length, key_accept = jax.random.split(key)
        length = step_size * jnp.abs(jax.random.normal(key_length))
        z = state.z + state.direction * length
        moved = WalkState(z, state.direction, evaluate(path, z))
        change = log_density(state.point, beta) - log_density(moved.point, beta)
        acceptance = jnp.exp(jnp.minimum(-change, 0))
        is_accepted = jax.random.uniform(key_accept) < acceptance
        chosen = jax.tree.map(lambda a, b: jnp.where(is_accepted, a, b), moved, flipped(state))
        return chosen, MoveInfo(acceptance, change, ~jnp.isfinite(change))

    def step_reversed(self, key, state, path, beta, step_size):
        moved, info = self.step(key, flipped(state), path, beta, step_size)
        return flipped(moved), info


def flipped(state):
    return state._replace(direction=-state.direction)


class Units(eqx.Module):
    """A distribution with other units than its own for the preconditioner."""

    inner: DiagonalNormal
    scale: jax.Array

    def sample(self, key):
        return self.inner.sample(key)

    def log_prob(self, z):
        return self.inner.log_prob(z)


def ladder(num_temperatures, size, transition, last_move=True, schedule=schedules.linear):
    betas = schedule(num_temperatures)
    return Ladder(betas, jnp.full(num_temperatures, size), transition, last_move)


# Steps so coarse that a good part of the proposals is rejected. A new transition joins here.
LADDERS = {
    "plain": ladder(6, 1.5, HMC(1)),
    "partial refresh": ladder(6, 1.5, HMC(1, refresh=0.4)),
    "preconditioned": ladder(6, 2.5, HMC(1, precondition=0.7)),
    "everything": ladder(6, 2.5, HMC(1, refresh=0.4, precondition=0.7), False),
    "a transition of one's own": ladder(6, 2.0, GuidedWalk()),
}
# What the other runs of HMC have of their own, "everything" has too.
over_ladders = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "everything")) for n in LADDERS]
)


@eqx.filter_jit
def forward(keys, q, log_joint, ladder):
    return jax.vmap(lambda k: anneal(k, q, log_joint, ladder))(keys)


@eqx.filter_jit
def backward(keys, sample, q, log_joint, ladder):
    def run(key):
        key_z, key = jax.random.split(key)
        return anneal_reverse(key, sample(key_z), q, log_joint, ladder)

    return jax.vmap(run)(keys)


@pytest.fixture(scope="module")
def keys():
    return jax.random.split(jax.random.key(11), 100_000)


def lopsided_ends():
    target = problems.lopsided()
    return Units(target.wide, jnp.array([0.5])), target.log_joint


@pytest.fixture(scope="module")
def both_ways(keys):
    """Return what runs a ladder forwards and backwards, each ladder once."""
    sample = problems.lopsided().sample

    @functools.cache
    def run(name):
        ends = lopsided_ends()
        there = forward(keys, *ends, LADDERS[name])
        return there, backward(keys, sample, *ends, LADDERS[name])

    return run


@over_ladders
def test_forward_weights_average_to_the_normaliser(both_ways, name):
    run, _ = both_ways(name)
    assert isinstance(LADDERS[name].transition, Transition)
    assert 0.4 < run.info.acceptance.mean() < 0.9
    assert abs(z_score(jnp.exp(run.log_weight - problems.lopsided().log_normaliser), 1)) < 4


@over_ladders
def test_reverse_weights_average_to_the_normaliser(both_ways, name):
    _, run = both_ways(name)
    assert 0.4 < run.info.acceptance.mean() < 0.9
    assert abs(z_score(jnp.exp(problems.lopsided().log_normaliser - run.log_weight), 1)) < 4


@over_ladders
def test_the_reverse_run_is_the_reversal_of_the_forward_run(both_ways, name):
    """Crooks' relation: E_reverse[log w] = E_forward[w log w] / E_forward[w].

    It alone sees a wrong reversal: E[1/w] = 1/Z holds for any kernels that leave the densities
    invariant.
    """
    assert_crooks(*(np.asarray(run.log_weight, float) for run in both_ways(name)))


def assert_crooks(there, back):
    share = np.exp(there) / np.exp(there).mean()
    predicted = np.mean(share * there)
    # The forward side's error, as a spread added to the reverse side's samples.
    spread = share * (there - predicted)
    assert abs(z_score(back - predicted - spread, 0)) < 4


def test_moves_at_the_posterior_before_a_reverse_run_leave_crooks_relation_as_it_is(
    keys, both_ways
):
    """They are moves after a forward run, which its weight does not see."""
    short = LADDERS["everything"]
    long = short.lengthened(2)
    assert long.num_moves == short.num_moves + 2
    there = np.asarray(both_ways("everything")[0].log_weight, float)
    back = backward(keys, problems.lopsided().sample, *lopsided_ends(), long).log_weight
    assert_crooks(there, np.asarray(back, float))


LONG = ladder(8, 0.7, HMC(3, refresh=0.5), schedule=schedules.sigmoid)


@pytest.mark.slow
def test_weighted_samples_have_the_posterior_moments(keys):
    model, x, problem = problems.linear_gaussian()
    exact = model.posterior(x)
    run = forward(keys[:20_000], problem.wide, problem.log_joint, LONG)
    weight = np.exp(np.asarray(run.log_weight, float) - problem.log_normaliser)
    assert abs(z_score(weight, 1)) < 4
    centred = np.asarray(run.z, float) - np.asarray(exact.loc)
    for i, variance in enumerate(np.diagonal(exact.covariance_matrix)):
        assert abs(z_score(weight * centred[:, i], 0)) < 4
        assert abs(z_score(weight * (centred[:, i] ** 2 - variance), 0)) < 4


@pytest.mark.slow
def test_the_bounds_sandwich_the_truth(keys):
    _, _, problem = problems.linear_gaussian()
    plan = (problem.narrow, problem.log_joint, LONG)
    lower = forward(keys[:20_000], *plan).log_weight
    upper = backward(keys[:20_000], problem.sample, *plan).log_weight
    assert z_score(lower, problem.log_normaliser) < -4
    assert z_score(upper, problem.log_normaliser) > 4


def test_one_temperature_is_importance_sampling_bit_for_bit(keys):
    _, _, problem = problems.linear_gaussian()
    q, log_joint = problem.narrow, problem.log_joint

    @jax.vmap
    def importance(key):
        z = sample_start(key, q)
        return z, log_joint(z) - q.log_prob(z)

    # In one program: the compiler rounds the same sums otherwise in another.
    @jax.jit
    def both(keys):
        return forward(keys, q, log_joint, ladder(1, 1.0, HMC(), False)), importance(keys)

    run, (z, log_weight) = both(keys[:1000])
    np.testing.assert_array_equal(run.z, z)
    np.testing.assert_array_equal(run.log_weight, log_weight)


def test_a_proposal_equal_to_the_target_has_log_weight_zero(keys):
    q = DiagonalNormal(jnp.array([0.3, -2.0]), jnp.array([0.1, 3.0]))
    run = forward(keys[:1000], q, q.log_prob, ladder(20, 0.5, HMC(3)))
    np.testing.assert_array_equal(run.log_weight, 0)


def test_the_weight_is_the_sum_over_the_states_before_each_move(keys, both_ways):
    """Exact: replay the start of the chain by hand from the equation."""
    plan, (q, log_joint) = LADDERS["everything"], lopsided_ends()
    run, _ = both_ways("everything")
    wanted = np.asarray(run.info.log_ratio) @ np.diff(plan.betas)
    np.testing.assert_allclose(run.log_weight, wanted, rtol=1e-4, atol=1e-5)
    # A step of size zero moves nothing: this chain ends where the other one is after its first.
    first_only = eqx.tree_at(lambda a: a.step_sizes, plan, plan.step_sizes.at[1:].set(0))
    moved = forward(keys, q, log_joint, first_only).z

    @jax.jit
    @jax.vmap
    def log_ratios(key, z):
        start = q.sample(jax.random.split(key, 3)[0])
        return [log_joint(a) - q.log_prob(a) for a in (start, z)]

    for i, ratio in enumerate(log_ratios(keys[:50], moved[:50])):
        np.testing.assert_allclose(run.info.log_ratio[:50, i], ratio, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_points_outside_the_support_have_weight_zero_and_count(keys):
    """A half-normal target: q puts half of its mass where p is zero."""
    q = DiagonalNormal(jnp.zeros(1), jnp.ones(1))

    def log_joint(z):
        return jnp.where(jnp.all(z > 0), -jnp.sum(z**2) / 2, -jnp.inf)

    for schedule in (schedules.linear, schedules.immediate):
        run = forward(keys[:20_000], q, log_joint, ladder(4, 0.8, HMC(2), schedule=schedule))
        assert not jnp.any(jnp.isnan(run.log_weight))
        assert jnp.any(run.info.is_nonfinite)
        truth = np.sqrt(np.pi / 2)
        assert abs(z_score(jnp.exp(run.log_weight), truth)) < 4


def test_single_precision_keeps_the_sum_over_ten_thousand_temperatures(keys):
    shift = 150.0
    q = DiagonalNormal(jnp.zeros(50), jnp.full(50, 0.3))

    def log_joint(z):
        return jnp.sum(-((z - 0.2) ** 2)) - shift

    plan = ladder(10_000, 0.1, HMC(1), schedule=schedules.sigmoid)
    run = forward(keys[:2], q, log_joint, plan)
    exact = np.diff(np.asarray(plan.betas, np.float64)) * np.asarray(run.info.log_ratio, float)
    assert np.max(np.abs(run.log_weight - exact.sum(axis=1))) < 2e-4


def few_chains(keys):
    target = problems.lopsided()
    plan = (target.wide, target.log_joint, ladder(4, 0.9, HMC(2, refresh=0.4)))
    return forward(keys, *plan), plan


def assert_ends_alike(one, other):
    np.testing.assert_allclose(one.z, other.z, rtol=1e-5)
    np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_compiled_and_plain_runs_agree(keys):
    compiled, plan = few_chains(keys[:1])
    with jax.disable_jit():
        plain = anneal(keys[0], *plan)
    assert_ends_alike(jax.tree.map(lambda a: a[0], compiled), plain)


@pytest.mark.slow
def test_many_chains_are_each_what_they_are_alone(keys):
    together, _ = few_chains(keys[:20])
    alone = [few_chains(keys[i : i + 1])[0] for i in (0, 7, 19)]
    for i, one in zip((0, 7, 19), alone, strict=True):
        assert_ends_alike(
            jax.tree.map(lambda a, i=i: a[i], together), jax.tree.map(lambda a: a[0], one)
        )


@pytest.mark.slow
def test_draws_of_an_example_do_not_depend_on_batch_order_or_devices():
    model, _, problem = problems.linear_gaussian()
    q = problem.wide
    root, num_examples = jax.random.key(3), 16
    xs = jax.random.normal(jax.random.key(4), (num_examples, 4))
    plan = ladder(4, 0.5, HMC(2))

    @jax.jit
    @jax.vmap
    def log_weights(index, x):
        def log_joint(z):
            return model.log_prior(z) + model.log_likelihood(x, z)

        keys = jax.random.split(jax.random.fold_in(root, index), 3)
        return jax.vmap(lambda k: anneal(k, q, log_joint, plan).log_weight)(keys)

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
    target, key = problems.lopsided(), jax.random.key(0)
    with pytest.raises(InputError, match="5 step sizes for 5 inverse temperatures"):
        Ladder(schedules.linear(4), jnp.ones(5))
    plan = ladder(4, 1.0, HMC(precondition=1.0))

    def run(scale):
        jax.eval_shape(lambda: anneal(key, Units(target.wide, scale), target.log_joint, plan))

    with pytest.raises(InputError, match=r"scale has the shapes \(2,\) and the latent \(1,\)"):
        run(jnp.ones(2))
    with pytest.raises(
        InputError, match="precondition is 1 but the proposal's distribution has no"
    ):
        run(None)
