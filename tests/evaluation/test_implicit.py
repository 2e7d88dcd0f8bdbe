import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aisle.evaluation.implicit import draw_ais, draw_is, draw_many, tune
from aisle.experiments import problems

from aisle.annealing import Kernel, schedules
from aisle.annealing.kernel import run_forward
from aisle.errors import InputError
from aisle.evaluation import sample_posterior
from aisle.models import DiagonalNormal, PriorProposal, two_layer
from measures import z_score

pytestmark = pytest.mark.usefixtures("quick_compilation")

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


def draw_shifted(x=(1.0, -2.0), **settings):
    given = {"num_samples": 3, "num_temperatures": 2, "step_sizes": [0.4, 0.3]} | settings
    return np.asarray(sample_posterior(Shifted(), around, np.array(x), **given))


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


def unmoved(num_samples):
    """Return the kernel with which annealing is importance sampling."""
    return Kernel(schedules.linear(1), jnp.ones(1), num_samples, 1, last_move=False)


def both(num_samples):
    """Return q_IS and q_AIS of the same law, as functions of (key, q, log_joint)."""
    kernel = unmoved(num_samples)
    return {
        "is": lambda *given: draw_is(*given, num_samples),
        "ais": lambda *given: draw_ais(*given, kernel),
    }


def many(draw, number, *given, seed=0):
    keys = jax.random.split(jax.random.key(seed), number)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda k: draw(k, *given)))(keys))


def test_one_sample_is_a_sample_of_q():
    q = DiagonalNormal(jnp.array([0.3, -2.0]), jnp.array([0.1, 3.0]))
    for number in range(5):
        key = jax.random.key(number)
        z = draw_is(key, q, lambda z: -jnp.sum(z**4), 1)
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


@pytest.mark.slow
def test_long_annealing_draws_from_the_posterior():
    model, x, posterior = problems.linear_gaussian()
    exact = model.posterior(x)
    settings = {"num_samples": 4, "num_temperatures": 20, "step_sizes": [0.3] * 20}
    annealed, importance = (
        sample_posterior(
            model, lambda _: posterior.wide, x, method=method, num_draws=4000, seed=1, **settings
        )
        for method in ("ais", "is")
    )
    loc = np.asarray(exact.loc, float)
    truths = [*loc, *np.asarray(exact.covariance_matrix, float).flat]

    def z_scores(draws):
        draws = np.asarray(draws, float)
        away = draws - loc
        products = np.einsum("ni,nj->nij", away, away).reshape(len(draws), -1)
        columns = np.concatenate([draws, products], axis=1).T
        return np.array([z_score(*pair) for pair in zip(columns, truths, strict=True)])

    assert np.max(np.abs(z_scores(annealed))) < 4
    # The test can tell: as many samples without annealing are far off.
    assert np.max(np.abs(z_scores(importance))) > 10


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
    x = np.array([0, 1, 1, 0, 1, 0], np.float32)
    settings = {"num_temperatures": 2, "step_sizes": [0.3, 0.3], "precondition": 1.0}
    z = sample_posterior(model, proposal, x, num_draws=9, **settings)
    assert [part.shape for part in z] == [(9, 4), (9, 2)]
    for part in z:
        assert np.isfinite(part).all()
        assert len(np.unique(np.asarray(part)[:, 0])) == 9


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


def test_a_draw_depends_on_its_place_only():
    """Not on how many there are, nor on how they are tiled."""
    few, more = draw_shifted(num_draws=5), draw_shifted(num_draws=801)
    assert more.shape == (801, 2)
    np.testing.assert_allclose(few, more[:5], rtol=1e-4)
    assert len(np.unique(more[:, 0])) == 801


def test_seeds_and_step_sizes_matter():
    first = draw_shifted(num_draws=5)
    np.testing.assert_array_equal(first, draw_shifted(num_draws=5))
    assert np.all(first != draw_shifted(num_draws=5, seed=1))
    assert np.any(first != draw_shifted(num_draws=5, step_sizes=[0.4, 0.1]))


def test_a_kernel_is_what_training_takes_it_for():
    """Drawn with the names of the parts, and without."""
    tuned = {"num_leapfrog": 2, "schedule": "ramp", "precondition": 0.75, "momentum_refresh": 0.6}
    paper = {"num_leapfrog": 5, "schedule": "linear", "precondition": 0.0, "momentum_refresh": 1.0}

    def drawn(**settings):
        # Pilot chains too, as their target is a part of it.
        changes = {"num_temperatures": 4, "step_sizes": None, "num_draws": 5} | settings
        return draw_shifted(**changes)

    by_default, by_name = drawn(), drawn(kernel="paper")
    np.testing.assert_array_equal(by_default, drawn(kernel="paper", target_accept=0.8, **tuned))
    np.testing.assert_array_equal(by_name, drawn(target_accept=0.6, **paper))
    assert np.all(by_default != by_name)
    assert np.all(by_default != drawn(target_accept=0.6))


def test_compiled_once_for_all_observations_and_seeds():
    first, traced = draw_shifted(num_draws=5, step_sizes=None), len(TRACES)
    second = draw_shifted(num_draws=5, step_sizes=None, x=(0.5, 0.5), seed=5)
    assert len(TRACES) == traced > 0
    assert np.all(first != second)


def test_a_model_that_is_no_pytree_may_change_between_calls():
    class Plain:
        noise = 0.1
        log_prior, sample_prior = (getattr(Shifted(), n) for n in ("log_prior", "sample_prior"))
        sample_observation = Shifted().sample_observation

        def log_likelihood(self, x, z):
            return -jnp.sum((x - z) ** 2) / (2 * self.noise**2)

    model, options = Plain(), {"method": "is", "num_samples": 200, "num_draws": 300}
    near = sample_posterior(model, around, np.ones(2), **options)
    model.noise = 10.0
    far = sample_posterior(model, around, np.ones(2), **options)
    assert np.std(near) < 0.2 < 0.5 < np.std(far)


def test_memory_is_that_of_a_tile():
    q = DiagonalNormal(jnp.zeros(50), jnp.ones(50))

    def temporary(number):
        draw = jax.jit(lambda keys: draw_many(keys, q, q.log_prob, unmoved(64), "is"))
        compiled = draw.lower(jax.random.split(jax.random.key(0), number)).compile()
        return compiled.memory_analysis().temp_size_in_bytes - number * 50 * 4

    assert temporary(4096) < 1.5 * temporary(256)


def test_pilot_reaches_its_acceptance():
    q, start = around(jnp.ones(2)), Kernel(schedules.linear(3), jnp.full(3, 0.01), 3, 2)

    def log_joint(z):
        return -2 * jnp.sum((z - 1) ** 2)

    kernel = jax.jit(lambda key: tune(key, q, log_joint, start))(jax.random.key(0))
    assert (kernel.num_samples, kernel.num_leapfrog) == (3, 2)
    run = jax.jit(jax.vmap(lambda key: run_forward(key, q, log_joint, kernel).info.acceptance))
    acceptance = run(jax.random.split(jax.random.key(1), 2000))
    assert np.all(np.abs(acceptance.mean(axis=0) - 0.65) < 0.1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"method": "mcmc"}, "method is 'mcmc': choose from is, ais"),
        ({"num_samples": 0}, "num_samples is 0: it must be at least 1"),
        ({"num_draws": 0}, "num_draws is 0: it must be at least 1"),
        ({"num_temperatures": 0}, "num_temperatures is 0: it must be at least 1"),
        ({"num_leapfrog": -1}, "num_leapfrog is -1: it must be at least 1"),
        ({"precondition": float("nan")}, "precondition is nan: it must be finite"),
        ({"momentum_refresh": 0.0}, "momentum_refresh is 0.0: it must be above 0 and at most 1"),
        ({"target_accept": 1.0}, "target_accept is 1.0: it must be between 0 and 1"),
        ({"kernel": "best"}, "kernel is 'best': choose from tuned, paper"),
        ({"precondition": -1.0}, "precondition is -1.0: it must be finite, and 0 or more"),
        ({"seed": -1}, "seed is -1: it must be from 0 to 4294967295"),
        ({"schedule": "cubic"}, "schedule is 'cubic': choose from linear"),
        ({"step_sizes": [0.1] * 3}, r"shape \(3,\) and num_temperatures is 11: give one step size"),
        ({"step_sizes": [[0.1] * 11]}, r"step_sizes has the shape \(1, 11\) and num_temperatures"),
        ({"step_sizes": [0.1] * 10 + [0.0]}, "the value 0: each must be finite and positive"),
        ({"step_sizes": [0.1] * 10 + [np.inf]}, "the value inf: each must be finite and positive"),
        ({"num_samples": 2.0}, "num_samples is 2.0: it must be a whole number"),
        ({"x": np.ma.masked_greater([0.0, 2.0], 1)}, "the values of x have 1 masked values"),
        ({"x": np.array([0, 1e39])}, r"x has the value 1e\+39: every value must be a finite"),
        ({"proposal": Unscaled()}, "the proposal is a Unscaled: give an encoder"),
        ({"x": np.array([0, 1, np.nan, 2])}, "x has the value nan: every value must be a finite"),
        ({"x": np.array([0, 1, -np.inf, 2])}, "x has the value -inf: every value must be"),
        ({"x": np.zeros((9, 2))}, r"x has the shape \(9, 2\) but those that the model simulates"),
    ],
)
def test_mistakes_are_told_in_one_line(as_users_have_it, wrong, words):
    given = {"proposal": around, "x": np.zeros(2)} | wrong
    with pytest.raises(InputError, match=words) as caught:
        sample_posterior(Shifted(), **given)
    assert "\n" not in str(caught.value)


def test_a_preconditioner_needs_a_scale():
    with pytest.raises(InputError, match="precondition is 1 but Unscaled has no `scale`"):
        sample_posterior(Shifted(), lambda _: Unscaled(), np.zeros(2), precondition=1.0)


def test_without_an_encoder_the_prior_is_the_proposal():
    options = {"x": np.ones(2), "method": "is", "num_draws": 3}
    found = sample_posterior(Shifted(), None, **options)
    np.testing.assert_array_equal(
        found, sample_posterior(Shifted(), PriorProposal(Shifted()), **options)
    )
