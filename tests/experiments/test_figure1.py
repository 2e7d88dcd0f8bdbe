import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

from aisle.annealing import Kernel, schedules
from aisle.errors import InputError
from aisle.experiments import figure1
from aisle.experiments.figure1 import (
    CorrelatedNormal,
    Row,
    Split,
    comparisons,
    divergence,
    proposal_divergence,
    verdict,
)

TARGET = CorrelatedNormal(0.95)
COVARIANCE = np.array([[1, 0.95], [0.95, 1]])


@pytest.fixture(scope="module")
def outcome():
    """The experiment with its smallest budget only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure1, "SPLITS", (Split(5, 1, 5),))
        return figure1.run(1, 10_001, 0.95, show_progress=False)


def exact_draws(seed, number, mean=(0.0, 0.0)):
    return np.random.default_rng(seed).multivariate_normal(mean, COVARIANCE, number)


def row(sampler, budget, distance, error=0.01, truth=None):
    return Row(sampler, budget, 1, 0, 0, 0, 0, distance, error, truth, 1.0, 0.1)


def table(*distances, target=0.0):
    """Return rows of the controls and of (IS, AIS) at the budgets 10, 100, ..."""
    rows = [row("target", 1, target, truth=0.0), row("proposal", 1, 1.12, truth=1.12)]
    for exponent, pair in enumerate(distances, start=1):
        rows += [row(*case) for case in zip(("is", "ais"), [10**exponent] * 2, pair, strict=True)]
    return rows


def test_every_budget_is_a_product_of_the_papers_numbers():
    assert [split.budget for split in figure1.SPLITS] == [25, 55, 275, 2750]


def test_target_density_and_draws():
    points = np.random.default_rng(0).normal(size=(20, 2))
    own = jax.vmap(TARGET.log_prob)(jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(own, multivariate_normal(cov=COVARIANCE).logpdf(points), rtol=1e-4)
    draws = jax.vmap(TARGET.sample)(jax.random.split(jax.random.key(0), 20_000))
    np.testing.assert_allclose(np.cov(np.asarray(draws).T), COVARIANCE, atol=0.04)


def test_whitening_makes_the_target_standard():
    white = TARGET.whiten(np.linalg.cholesky(COVARIANCE).T)
    np.testing.assert_allclose(white.T @ white, np.eye(2), atol=1e-12)


def test_the_proposal_is_the_best_independent_normal():
    """KL(q || p) is 1.164 there, and more for any other scales."""

    def distance(scales):
        covariance = np.diag(np.square(scales))
        inverse = np.linalg.inv(COVARIANCE)
        log_ratio = np.linalg.slogdet(COVARIANCE)[1] - np.linalg.slogdet(covariance)[1]
        return (np.trace(inverse @ covariance) - 2 + log_ratio) / 2

    q = TARGET.mean_field()
    best = distance(np.asarray(q.scale, float))
    assert abs(best - 1.16395) < 1e-5
    for change in ((1.02, 1), (0.98, 1), (1, 1.02), (1.02, 1.02), (0.98, 0.98), (1.02, 0.98)):
        assert distance(np.asarray(q.scale) * change) > best


@pytest.mark.slow
def test_cells_lose_little(monkeypatch):
    """The finer they are, the nearer to the KL of the densities, from below."""
    found = []
    for number in (8, 32, 128, 1024):
        monkeypatch.setattr(figure1, "NUM_CELLS", number)
        found.append(proposal_divergence(TARGET))
    assert abs(found[1] - 1.1198) < 1e-4
    assert found == sorted(found)
    assert 0 < 1.16395 - found[-1] < 0.01


def shifted_divergence(shift):
    """Return the exact figure for the target moved along its long axis."""
    edges = ndtri(np.linspace(0, 1, figure1.NUM_CELLS + 1))
    shares = np.diff(ndtr(edges - shift))
    return np.sum(shares * np.log(shares * figure1.NUM_CELLS))


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.1, 0.7])
def test_the_distance_is_right_and_so_is_its_error(shift):
    """Near 0 the standard error is too wide, by a factor of 1.4 or so, and never too narrow."""
    mean = np.full(2, shift * np.sqrt((1 + 0.95) / 2))
    found = [divergence(TARGET, exact_draws(seed, 20_000, mean)) for seed in range(40)]
    estimates, errors = np.array([(f.mean, f.standard_error) for f in found]).T
    assert abs(estimates.mean() - shifted_divergence(shift)) < 0.5 * errors.mean()
    assert 0.75 < errors.mean() / estimates.std(ddof=1) < 2


@pytest.mark.slow
def test_the_experiment_says_what_the_paper_says(outcome):
    target, proposal, importance, annealed = outcome.rows
    assert [r.sampler for r in outcome.rows] == ["target", "proposal", "is", "ais"]
    assert [d.shape for d in outcome.draws] == [(10_001, 2)] * 4
    assert abs(target.control_z) < 4
    assert abs(proposal.control_z) < 4
    assert proposal.divergence > importance.divergence > annealed.divergence > 0
    assert proposal.long_variance < importance.long_variance < annealed.long_variance < 1
    assert verdict(outcome.rows).startswith("AIS comes closer than IS at every budget")


@pytest.mark.slow
def test_both_costs_are_stated(outcome):
    importance, annealed = outcome.rows[2:]
    assert importance.budget == annealed.budget == 25
    assert (importance.num_samples, importance.evaluations, importance.gradients) == (25, 25, 0)
    assert (annealed.num_samples, annealed.evaluations, annealed.gradients) == (1, 0, 26)
    assert (annealed.num_leapfrog, annealed.num_temperatures) == (5, 5)
    assert [len(sizes) for sizes in outcome.step_sizes.values()] == [5]


@pytest.mark.slow
def test_draws_do_not_depend_on_their_number_nor_on_the_devices(monkeypatch):
    case = figure1._Case("target", 1, Kernel(schedules.linear(1), jnp.ones(1)))
    key, (device, *_) = jax.random.key(3), jax.devices()
    many = figure1._draw(key, TARGET, case, 1003)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    np.testing.assert_array_equal(many[:10], figure1._draw(key, TARGET, case, 10))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((9999, 0.95), "draws is 9999: it must be at least 10000"),
        ((10_000, 1.0), "correlation is 1.0: it must be above 0 and below 1"),
        ((10_000, float("nan")), "correlation is nan: it must be above 0 and below 1"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, words):
    with pytest.raises(InputError, match=words):
        figure1.run(0, *arguments)


def test_a_comparison_counts_standard_errors():
    (first, second) = comparisons(table((0.5, 0.2), (0.3, 0.31)))
    assert (first.budget, first.closer) == (10, "AIS")
    assert np.isclose(first.z, 0.3 / np.hypot(0.01, 0.01))
    assert (second.budget, second.closer) == (100, "neither")
    assert comparisons(table((0.2, 0.5)))[0].closer == "IS"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            table((0.5, 0.2), (0.4, 0.1)),
            "AIS comes closer than IS at every budget, as the paper says, by 21 standard errors or "
            "more. AIS at a cost of 10 is closer than IS at 100.",
        ),
        (
            table((0.5, 0.4), (0.3, 0.1)),
            "AIS comes closer than IS at every budget, as the paper says, by 7 standard errors or "
            "more.",
        ),
        (
            table((0.2, 0.5), (0.3, 0.3), (0.3, 0.1)),
            "The paper says that AIS comes closer at every budget. Here the closer one is AIS at "
            "1,000; IS at 10; neither at 100.",
        ),
        (
            table((0.2, 0.5)),
            "The paper says that AIS comes closer at every budget. Here the closer one is IS at "
            "10.",
        ),
        (
            table((0.5, 0.2), target=0.05),
            "A control is off by more than 4 standard errors: the distances are not to be used.",
        ),
        (
            table((0.5, 0.2), target=float("nan")),
            "A control is off by more than 4 standard errors: the distances are not to be used.",
        ),
    ],
)
def test_the_verdict_comes_from_the_figures(rows, words):
    assert verdict(rows) == words
