import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.errors import InputError
from paper.core.chains import Kernel, schedules
from paper.figure1 import study
from paper.figure1.study import SamplerResult, Split, comparisons, verdict
from paper.figure1.target import CorrelatedNormal

TARGET = CorrelatedNormal(0.95)


@pytest.fixture(scope="module")
def measured(quick_compilation):
    """The study at its smallest cost only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "SPLITS", (Split(5, 1, 5),))
        return study.measure(1, 10_001, 0.95, show_progress=False)


def result(sampler, cost, distance, error=0.01, truth=None):
    return SamplerResult(sampler, cost, 1, 0, 0, 0, 0, distance, error, truth, 1.0, 0.1)


def table(*distances, target=0.0):
    """Return results of the controls and of (IS, AIS) at the costs 10, 100, ..."""
    results = [result("target", 1, target, truth=0.0), result("proposal", 1, 1.12, truth=1.12)]
    for exponent, pair in enumerate(distances, start=1):
        cases = zip(("is", "ais"), [10**exponent] * 2, pair, strict=True)
        results += [result(*case) for case in cases]
    return results


def test_every_cost_is_a_product_of_the_papers_numbers():
    assert [split.cost for split in study.SPLITS] == [25, 55, 275, 2750]


@pytest.mark.slow
def test_the_study_says_what_the_paper_says(measured):
    target, proposal, importance, annealed = measured.results
    assert [r.sampler for r in measured.results] == ["target", "proposal", "is", "ais"]
    assert [d.shape for d in measured.draws] == [(10_001, 2)] * 4
    assert abs(target.control_z) < 4
    assert abs(proposal.control_z) < 4
    assert proposal.divergence > importance.divergence > annealed.divergence > 0
    assert proposal.long_variance < importance.long_variance < annealed.long_variance < 1
    assert verdict(measured.results).startswith("AIS comes closer than IS at every cost")


@pytest.mark.slow
def test_both_costs_are_stated(measured):
    importance, annealed = measured.results[2:]
    assert importance.cost == annealed.cost == 25
    assert (importance.num_samples, importance.evaluations, importance.gradients) == (25, 25, 0)
    assert (annealed.num_samples, annealed.evaluations, annealed.gradients) == (1, 0, 26)
    assert (annealed.num_leapfrog, annealed.num_temperatures) == (5, 5)
    assert [len(sizes) for sizes in measured.step_sizes.values()] == [5]


def test_draws_do_not_depend_on_their_number_nor_on_the_devices(monkeypatch):
    case = study._Case("target", 1, Kernel(schedules.linear(1), jnp.ones(1)))
    key, (device, *_) = jax.random.key(3), jax.devices()
    many = study._draw(key, TARGET, case, 1003)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    np.testing.assert_array_equal(many[:10], study._draw(key, TARGET, case, 10))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((9999, 0.95), "draws is 9999: it must be at least 10000"),
        ((10_000, 1.0), "correlation is 1.0: it must be above 0 and below 1"),
        ((10_000, float("nan")), "correlation is nan: it must be above 0 and below 1"),
    ],
)
def test_mistakes_are_reported_in_one_line(arguments, words):
    with pytest.raises(InputError, match=words):
        study.measure(0, *arguments)


def test_a_comparison_counts_standard_errors():
    (first, second) = comparisons(table((0.5, 0.2), (0.3, 0.31)))
    assert (first.cost, first.closer) == (10, "AIS")
    assert np.isclose(first.z, 0.3 / np.hypot(0.01, 0.01))
    assert (second.cost, second.closer) == (100, "neither")
    assert comparisons(table((0.2, 0.5)))[0].closer == "IS"


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (
            table((0.5, 0.2), (0.4, 0.1)),
            "AIS comes closer than IS at every cost, as the paper says, by 21 standard errors or "
            "more. AIS at a cost of 10 is closer than IS at 100.",
        ),
        (
            table((0.5, 0.4), (0.3, 0.1)),
            "AIS comes closer than IS at every cost, as the paper says, by 7 standard errors or "
            "more.",
        ),
        (
            table((0.2, 0.5), (0.3, 0.3), (0.3, 0.1)),
            "The paper says that AIS comes closer at every cost. Here the closer one is AIS at "
            "1,000; IS at 10; neither at 100.",
        ),
        (
            table((0.2, 0.5)),
            "The paper says that AIS comes closer at every cost. Here the closer one is IS at 10.",
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
def test_the_verdict_comes_from_the_numbers(results, words):
    assert verdict(results) == words
