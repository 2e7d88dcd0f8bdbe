"""Draws from q_IS and q_AIS: their laws, what they depend on, and the exact posterior."""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from aisle import HMC, ImportanceSampler, Kernel, Ladder, MoveInfo, Sampler, View, schedules
from aisle.annealing.path import Evaluation, evaluate, log_density
from aisle.data import Split
from aisle.errors import InputError
from aisle.evaluation import log_likelihood, problems, sample_posterior
from aisle.evaluation.posterior import draw_many, draw_one
from aisle.models import DiagonalNormal, LinearGaussian, PriorProposal, two_layer
from evaluating import chosen
from measures import z_score

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")

# The label 0 has no weight: a draw of which all samples are 0 has nothing to choose by.
TABLE = np.array([0.0, 1.0, 4.0])

# How often a `Shifted` model was traced.
TRACES = []


class Labels(eqx.Module):
    """0, 1 or 2, each with probability 1/3, as a latent: everything about it can be counted."""

    def sample(self, key):
        return jax.random.randint(key, (1,), 0, 3).astype(jnp.float32)

    def log_prob(self, z):
        return jnp.sum(0 * z) - jnp.log(3.0)


class Unscaled(eqx.Module):
    """A distribution that does not tell its standard deviations."""

    def sample(self, key):
        return jax.random.normal(key, (2,))

    def log_prob(self, z):
        return -jnp.sum(z**2) / 2


class Shifted(eqx.Module):
    """x is z plus noise, of two dimensions."""

    def log_prior(self, z):
        return -jnp.sum(z**2) / 2

    def log_likelihood(self, x, z):
        TRACES.append(1)
        return -2 * jnp.sum((x - z) ** 2)

    def sample_prior(self, key):
        return jax.random.normal(key, (2,))

    def sample_observation(self, key, z):
        return z + jax.random.normal(key, (2,)) / 2


def around(x):
    """Return a proposal for `Shifted`: one function, so that calls share a compilation."""
    return DiagonalNormal(x, jnp.ones(2))


X = np.array([[1.0, -2.0], [0.5, 0.5], [1.0, -2.0]], np.float32)
LINEAR = Kernel(schedules.linear, HMC(2), 0.65)


def draw_shifted(
    x=X, kernel=LINEAR, num_chains=3, num_temperatures=2, step_sizes=(0.4, 0.3), **settings
):
    sampler = Sampler(num_chains, num_temperatures, kernel)
    sizes = None if step_sizes is None else np.array(step_sizes)
    return np.asarray(
        sample_posterior(Shifted(), around, x, sampler=sampler, step_sizes=sizes, **settings)
    )


def log_label(z):
    return jnp.log(jnp.asarray(TABLE, jnp.float32))[z[0].astype(int)]


def label_probabilities(num_samples):
    """Return P(draw = 0), P(1), P(2) and P(undefined), by going through all samples."""
    found = np.zeros(4)
    for labels in itertools.product(range(3), repeat=num_samples):
        weights = TABLE[list(labels)]
        if not weights.sum():
            found[3] += 1
        for label, weight in zip(labels, weights, strict=True):
            found[label] += weight / weights.sum() if weights.sum() else 0
    return found / 3**num_samples


# With this ladder annealing is importance sampling.
UNMOVED = Ladder(schedules.linear(1), jnp.ones(1), HMC(1), last_move=False)


def both(num_samples):
    """Return q_IS and q_AIS of the same law, as functions of (key, q, log_joint)."""
    return {
        "is": lambda *given: draw_one(*given, None, num_samples),
        "ais": lambda *given: draw_one(*given, UNMOVED, num_samples),
    }


def many(draw, number, *given, seed=0):
    keys = jax.random.split(jax.random.key(seed), number)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda k: draw(k, *given)))(keys))


@pytest.mark.slow
def test_one_sample_is_a_sample_of_q():
    q = DiagonalNormal(jnp.array([0.3, -2.0]), jnp.array([0.1, 3.0]))
    for number in range(5):
        key = jax.random.key(number)
        z = draw_one(key, q, lambda z: -jnp.sum(z**4), None, 1)
        own = q.sample(jax.random.split(jax.random.split(key)[0], 1)[0])
        np.testing.assert_array_equal(z, own)


@pytest.mark.parametrize("method", ["is", "ais"])
@pytest.mark.parametrize("num_samples", [1, 4])
def test_a_draw_follows_the_normalised_weights(method, num_samples):
    number = 20_000
    draws = many(both(num_samples)[method], number, Labels(), log_label, seed=num_samples)[:, 0]
    expected = number * label_probabilities(num_samples)
    counts = np.array([*(np.sum(draws == label) for label in range(3)), np.isnan(draws).sum()])
    assert counts.sum() == number
    assert counts[0] == expected[0] == 0
    errors = np.sqrt(expected * (1 - expected / number))
    assert np.all(np.abs(counts - expected)[1:] < 4 * errors[1:])


@pytest.mark.slow
def test_annealing_without_a_move_is_importance_sampling():
    """Given the same samples and the same key of the choice, it is the same draw."""
    q = DiagonalNormal(jnp.zeros(2), jnp.ones(2))

    class SameStart(eqx.Module):
        """The proposal, drawing where a chain with the same key starts."""

        def sample(self, key):
            return q.sample(jax.random.split(key, 3)[0])

        def log_prob(self, z):
            return q.log_prob(z)

    def log_joint(z):
        return -2 * jnp.sum((z - 1) ** 2)

    importance = many(both(7)["is"], 200, SameStart(), log_joint)
    annealed = many(both(7)["ais"], 200, q, log_joint)
    np.testing.assert_allclose(importance, annealed, rtol=1e-6)


@pytest.mark.slow
def test_density_of_two_samples():
    """q_IS(z) = 2 p(z) E[1 / (w(z) + w(z'))] with z' ~ q, against the draws' histogram."""
    problem = problems.lopsided()
    grid = np.linspace(-6, 6, 1201)
    points = jnp.asarray(grid, jnp.float32)[:, None]
    log_p = np.asarray(jax.vmap(problem.log_joint)(points), float) - problem.log_normaliser
    log_q = np.asarray(jax.vmap(problem.narrow.log_prob)(points), float)
    weights, step = np.exp(log_p - log_q), grid[1] - grid[0]
    mean = np.sum(np.exp(log_q) * step / (weights[:, None] + weights), axis=1)
    mass = 2 * np.exp(log_p) * mean * step
    assert abs(mass.sum() - 1) < 1e-4

    number, edges = 20_000, np.arange(-1.75, 2.3, 0.25)
    draws = many(both(2)["is"], number, problem.narrow, problem.log_joint)[:, 0]
    # Edges lie on points of the grid, which count half to either side.
    expected = [
        number * (mass[(grid > a) & (grid < b)].sum() + mass[np.isclose(grid, a)].sum() / 2)
        + number * mass[np.isclose(grid, b)].sum() / 2
        for a, b in itertools.pairwise(edges + 1e-9)
    ]
    counts = np.histogram(draws, edges)[0]
    assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected))


class WalkState(NamedTuple):
    z: Array
    point: Evaluation


@dataclass(frozen=True)
class Walk:
    """A transition of one's own, which is its own reversal: random-walk Metropolis."""

    num_gradients: int = 1
    first_step_size: float = 1.0
    largest_step_size: float = 10.0

    def init(self, key, z, path):
        return WalkState(z, evaluate(path, z))

    def step(self, key, state, path, beta, step_size):
        key_move, key_accept = jax.random.split(key)
        z = state.z + step_size * jax.random.normal(key_move, state.z.shape)
        moved = WalkState(z, evaluate(path, z))
        change = log_density(state.point, beta) - log_density(moved.point, beta)
        acceptance = jnp.exp(jnp.minimum(-change, 0))
        is_accepted = jax.random.uniform(key_accept) < acceptance
        chosen = jax.tree.map(lambda a, b: jnp.where(is_accepted, a, b), moved, state)
        return chosen, MoveInfo(acceptance, change, jnp.array(False))

    step_reversed = step


# The latents are correlated given x, and the observations far apart: no example's draws would do
# for another.
EXACT = LinearGaussian(jnp.array([[2.0, 0.5], [0.5, 1.0], [-1.0, 1.0]]), jnp.ones(3), jnp.log(0.7))
EXACT_X = np.array([[3.0, 1.0, -2.0], [-2.0, 0.0, 1.0]], np.float32)


def wide(x):
    """Wider than the posterior and off by a standard deviation, so that weights are bounded."""
    posterior = EXACT.mean_field_posterior(x)
    return DiagonalNormal(posterior.loc + posterior.scale, 1.5 * posterior.scale)


def z_scores(draws, posterior):
    """Compare means and products of deviations with the exact posterior's."""
    loc = np.asarray(posterior.loc, float)
    away = np.asarray(draws, float) - loc
    products = np.einsum("ni,nj->nij", away, away).reshape(len(away), -1)
    columns = np.concatenate([away, products], axis=1).T
    truths = [*np.zeros(len(loc)), *np.asarray(posterior.covariance_matrix, float).flat]
    return np.array([z_score(*pair) for pair in zip(columns, truths, strict=True)])


OWN = Kernel(schedules.linear, Walk(), 0.5)
# Each with its step sizes, as those of a pilot would be.
SAMPLERS = {
    "annealing": (Sampler(4, 10, LINEAR), np.full(10, 0.35)),
    "importance sampling": (ImportanceSampler(60), None),
    "a transition of one's own": (Sampler(8, 10, OWN), np.full(10, 0.5)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_of_a_batch_agree_with_the_exact_posteriors(name):
    sampler, sizes = SAMPLERS[name]
    draws = sample_posterior(
        EXACT, wide, EXACT_X, sampler=sampler, step_sizes=sizes, num_draws=2000, seed=1
    )
    assert draws.shape == (2, 2000, 2)
    for found, x in zip(draws, EXACT_X, strict=True):
        assert np.max(np.abs(z_scores(found, EXACT.posterior(jnp.asarray(x))))) < 4.5


@pytest.mark.slow
def test_the_comparison_can_tell():
    """Two samples without annealing are far off."""
    options = {"sampler": ImportanceSampler(2), "num_draws": 2000}
    draws = sample_posterior(EXACT, wide, EXACT_X, **options)
    assert np.max(np.abs(z_scores(draws[0], EXACT.posterior(jnp.asarray(EXACT_X[0]))))) > 10


@pytest.mark.slow
def test_a_transition_of_ones_own_bounds_log_p_from_both_sides(untuned):
    options = chosen(num_chains=4, num_temperatures=10, kernel=OWN, num_simulated=200)
    x = np.tile(EXACT_X, (100, 1))
    result = log_likelihood(EXACT, wide, x, **options)
    exact = np.tile(jax.vmap(EXACT.log_marginal)(jnp.asarray(EXACT_X)), 100)
    assert abs(z_score(np.exp(result.log_p - exact), 1)) < 4
    assert result.gap.mean > -4 * result.gap.standard_error
    assert result.settings["num_leapfrog"] == 1


@pytest.mark.slow
def test_the_parts_of_a_latent_stay_together():
    class Pair(eqx.Module):
        def sample(self, key):
            z = jax.random.normal(key, (2,))
            return {"one": z, "two": jnp.stack([z, 2 * z])}

        def log_prob(self, z):
            return -jnp.sum(z["one"] ** 2) / 2 + 0 * jnp.sum(z["two"])

    def log_joint(z):
        return -jnp.sum((z["one"] - 1) ** 2) + 0 * jnp.sum(z["two"])

    for draw in both(6).values():
        draws = many(draw, 50, Pair(), log_joint)
        np.testing.assert_array_equal(draws["two"], np.stack([draws["one"], 2 * draws["one"]], 1))


@pytest.mark.slow
def test_two_stochastic_layers():
    model, proposal = two_layer(jax.random.key(0), np.full(6, 0.4), num_latents=2, num_hidden=4)
    x = np.array([[0, 1, 1, 0, 1, 0]], np.float32)
    sampler = Sampler(5, 2, Kernel.tuned(schedule=schedules.linear))
    z = sample_posterior(
        model, proposal, x, sampler=sampler, num_draws=9, step_sizes=np.array([0.3, 0.3])
    )
    assert [part.shape for part in z] == [(1, 9, 4), (1, 9, 2)]
    for part in z:
        assert np.isfinite(part).all()
        assert len(np.unique(np.asarray(part)[0, :, 0])) == 9


@pytest.mark.parametrize("method", ["is", "ais"])
def test_weights_that_allow_no_choice_give_nan(method):
    q, draw = DiagonalNormal(jnp.zeros(2), jnp.ones(2)), both(3)[method]

    @jax.jit
    @jax.vmap
    def broken(value):
        return draw(jax.random.key(0), q, lambda z: jnp.where(z[0] < 9, value, 0.0))

    draws = np.asarray(broken(jnp.array([-jnp.inf, jnp.nan, jnp.inf, 0.0])))
    assert np.isnan(draws[:3]).all()
    assert np.isfinite(draws[3]).all()


@pytest.mark.slow
def test_a_draw_depends_on_its_place_only():
    """Not on how many there are, nor on how they are tiled, nor on the other examples."""
    few, more = draw_shifted(num_draws=5), draw_shifted(X[:1], num_draws=801)
    assert (few.shape, more.shape) == ((3, 5, 2), (1, 801, 2))
    np.testing.assert_allclose(few[0], more[0, :5], rtol=1e-4)
    assert len(np.unique(more[..., 0])) == 801
    # Equal examples at other places have other draws.
    assert np.all(few[0] != few[2])


@pytest.mark.slow
def test_seeds_and_step_sizes_matter():
    first = draw_shifted(num_draws=5)
    np.testing.assert_array_equal(first, draw_shifted(num_draws=5))
    assert np.all(first != draw_shifted(num_draws=5, seed=1))
    assert np.any(first != draw_shifted(num_draws=5, step_sizes=[0.4, 0.1]))


@pytest.mark.slow
def test_the_acceptance_of_the_kernel_matters():
    """Pilot chains too, as their target is a part of it.

    A draw by one chain is the same for two targets exactly where, by both, both of the chain's
    moves are rejected: it ends at the sample of q where it began.
    """
    options = {"num_chains": 1, "num_draws": 40}
    usual, eager = (
        draw_shifted(kernel=Kernel(schedules.linear, HMC(2), target), step_sizes=None, **options)
        for target in (0.65, 0.3)
    )
    # Steps so large that every move is rejected.
    start = draw_shifted(step_sizes=(1e3, 1e3), **options)
    is_stuck = np.all((usual == start) & (eager == start), axis=-1)
    np.testing.assert_array_equal(usual == eager, np.stack([is_stuck, is_stuck], -1))
    assert 0 < is_stuck.sum() < is_stuck.size / 2


@pytest.mark.slow
def test_compiled_once_for_all_observations_and_seeds():
    first, traced = draw_shifted(num_draws=5, step_sizes=None), len(TRACES)
    second = draw_shifted(X + 1, num_draws=5, step_sizes=None, seed=5)
    assert len(TRACES) == traced > 0
    assert np.all(first != second)


@pytest.mark.slow
def test_a_model_that_is_no_pytree_may_change_between_calls():
    class Plain:
        noise = 0.1
        log_prior, sample_prior = (getattr(Shifted(), n) for n in ("log_prior", "sample_prior"))
        sample_observation = Shifted().sample_observation

        def log_likelihood(self, x, z):
            return -jnp.sum((x - z) ** 2) / (2 * self.noise**2)

    model, options = Plain(), {"sampler": ImportanceSampler(200), "num_draws": 300}
    near = sample_posterior(model, around, np.ones((1, 2)), **options)
    model.noise = 10.0
    far = sample_posterior(model, around, np.ones((1, 2)), **options)
    assert np.std(near) < 0.2 < 0.5 < np.std(far)


@pytest.mark.slow
def test_a_split_is_seen_through_its_view():
    bits = Split(np.uint8([[255, 0], [0, 255]]), None, View(is_grey=True))
    plain = draw_shifted(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), num_draws=3)
    np.testing.assert_array_equal(draw_shifted(bits, num_draws=3), plain)


@pytest.mark.slow
def test_memory_is_that_of_a_tile():
    q = DiagonalNormal(jnp.zeros(50), jnp.ones(50))

    def temporary(number):
        draw = jax.jit(lambda keys: draw_many(keys, q, q.log_prob, None, 64))
        compiled = draw.lower(jax.random.split(jax.random.key(0), number)).compile()
        return compiled.memory_analysis().temp_size_in_bytes - number * 50 * 4

    assert temporary(4096) < 1.5 * temporary(256)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"sampler": "ais"}, r"sampler is 'ais': give an aisle\.Sampler or an aisle\.Importance"),
        ({"num_draws": 0}, "num_draws is 0: it must be at least 1"),
        ({"seed": -1}, "seed is -1: it must be at least 0"),
        ({"step_sizes": [0.1] * 3}, r"shape \(3,\) and num_temperatures is 11: give one step size"),
        ({"step_sizes": [[0.1] * 11]}, r"step_sizes has the shape \(1, 11\) and num_temperatures"),
        ({"step_sizes": [0.1] * 10 + [0.0]}, "the value 0: each must be finite and positive"),
        ({"step_sizes": [0.1] * 10 + [np.inf]}, "the value inf: each must be finite and positive"),
        ({"x": np.ma.masked_greater([[0.0, 2.0]], 1)}, "x have 1 masked values"),
        ({"x": np.array([[0, 1e39]])}, r"x has the value 1e\+39 in row 0: every value must be"),
        ({"proposal": Unscaled()}, "the proposal is a Unscaled: give an encoder"),
        ({"x": np.array([[0, 1], [np.nan, 2]])}, "x has the value nan in row 1: every value must"),
        ({"x": np.zeros(2)}, r"x have the shape \(2,\): give examples along the first axis"),
        ({"x": np.zeros((9, 3))}, r"an example has the shape \(3,\) but those that the model"),
        ({"x": np.full((1, 2), 2**40)}, "x has the value 1099511627776 in row 0.*int32"),
    ],
)
def test_mistakes_are_told_in_one_line(as_users_have_it, wrong, words):
    given = {"proposal": around, "x": np.zeros((1, 2))} | wrong
    with pytest.raises(InputError, match=words) as caught:
        sample_posterior(Shifted(), **given)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_proposal_without_a_scale_is_not_preconditioned():
    def unscaled(x):
        return Unscaled()

    kernels = (Kernel.tuned(), Kernel.tuned(transition=HMC(2, 0.6, 0.0)))
    sizes = np.full(3, 0.4)
    given, plain = (
        sample_posterior(
            Shifted(), unscaled, X[:1], sampler=Sampler(2, 3, kernel), step_sizes=sizes, seed=3
        )
        for kernel in kernels
    )
    np.testing.assert_array_equal(given, plain)


def test_without_an_encoder_the_prior_is_the_proposal():
    options = {"x": np.ones((1, 2)), "sampler": ImportanceSampler(5), "num_draws": 3}
    found = sample_posterior(Shifted(), None, **options)
    np.testing.assert_array_equal(
        found, sample_posterior(Shifted(), PriorProposal(Shifted()), **options)
    )
