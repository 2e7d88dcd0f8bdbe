"""Which kernels are compared, and what their results say."""

import numpy as np
import pytest

from aisle.statistics import Mean
from paper.core.chains import TRAINING
from paper.kernels import study
from paper.kernels.study import KernelResult
from paper.kernels.variants import VARIANTS


def test_what_is_compared():
    """One change at a time, and the two presets are those of training, evenly spaced."""
    for name, preset in TRAINING.items():
        assert VARIANTS[name] == preset._replace(schedule="linear")
    assert {name: tuple(preset) for name, preset in VARIANTS.items()} == {
        "paper": (5, "linear", 0, 1, 0.6),
        "paper, L=2": (2, "linear", 0, 1, 0.6),
        "paper, scale^0.5": (5, "linear", 0.5, 1, 0.6),
        "paper, scale^0.75": (5, "linear", 0.75, 1, 0.6),
        "paper, scale^1": (5, "linear", 1, 1, 0.6),
        "paper, scale^0.75, L=2": (2, "linear", 0.75, 1, 0.6),
        "paper, scale^0.75, L=2, refresh 0.6": (2, "linear", 0.75, 0.6, 0.6),
        "tuned": (2, "linear", 0.75, 0.6, 0.8),
        "tuned, scale^0.5": (2, "linear", 0.5, 0.6, 0.8),
        "tuned, scale^1": (2, "linear", 1, 0.6, 0.8),
        "tuned, L=1": (1, "linear", 0.75, 0.6, 0.8),
        "tuned, L=4": (4, "linear", 0.75, 0.6, 0.8),
        "tuned, refresh 0.4": (2, "linear", 0.75, 0.4, 0.8),
        "tuned, target 0.65": (2, "linear", 0.75, 0.6, 0.65),
        "tuned, target 0.9": (2, "linear", 0.75, 0.6, 0.9),
        "tuned, sigmoid schedule": (2, "sigmoid", 0.75, 0.6, 0.8),
        "tuned, ramp schedule": (2, "ramp", 0.75, 0.6, 0.8),
        "tuned, adapted schedule": (2, "adapted", 0.75, 0.6, 0.8),
        "paper, adapted schedule": (5, "adapted", 0, 1, 0.6),
    }


def result(variant, steps, gaps):
    gaps, none = np.array(gaps), Mean(0.0, 0.0, 3)
    return KernelResult(variant, VARIANTS["paper"], steps, 1, 2, none, none, 0.5, 0, 1.0, gaps)


RESULTS = [
    result("paper", 22, [4.0, 6.0, 8.0]),
    result("tuned", 22, [2.0, 3.0, 4.0]),
    result("tuned, L=1", 22, [9.0, 9.0, 9.0]),
    result("paper", 55, [3.0, 5.0, 4.0]),
    result("tuned", 55, [1.0, 0.5, 1.5]),
    result("tuned, L=1", 55, [9.0, 9.0, 9.0]),
]


def test_ratios_for_equal_steps():
    first, second = study.ratios(RESULTS)
    assert (first.steps, first.ratio) == (22, 0.5)
    # Exactly half in every example.
    assert first.standard_error == 0
    assert (second.steps, second.ratio) == (55, 0.25)
    rest = np.array([1 - 0.25 * 3, 0.5 - 0.25 * 5, 1.5 - 0.25 * 4])
    assert second.standard_error == pytest.approx(rest.std(ddof=1) / 3**0.5 / 4)


def test_the_error_of_a_ratio_is_that_of_repetitions():
    draws = np.random.default_rng(1)
    found = []
    for _ in range(400):
        paper = draws.gamma(4, size=100)
        tuned = 0.3 * paper + draws.normal(0.5, 0.4, size=100)
        found.append(study._ratio(22, tuned, paper))
    values, errors = np.array([(f.ratio, f.standard_error) for f in found]).T
    assert errors.mean() == pytest.approx(values.std(), rel=0.15)


def test_what_tuned_saves_is_paired_by_example():
    (saving,) = study.savings(RESULTS)
    assert (saving.tuned_steps, saving.paper_steps) == (22, 55)
    differences = np.array([1.0, 2.0, 0.0])
    assert saving.difference.mean == 1
    assert saving.difference.standard_error == pytest.approx(differences.std(ddof=1) / 3**0.5)
    assert study.savings(RESULTS[:3]) == []
