"""Models compared by log-likelihoods of the same examples."""

import types

import numpy as np
import pytest

from aisle import InputError, compare
from aisle.evaluation.comparing import compared
from aisle.statistics import Mean

SMALL_GAP = Mean(0.01, 0.001, 10)
BASE = np.linspace(-9, -1, 20)
NOISE = np.resize([-0.1, 0.1], 20)


def test_differences_are_paired_and_the_best_is_first():
    found = compared({"a": (BASE - 0.5 + NOISE, SMALL_GAP), "b": (BASE, SMALL_GAP)})
    assert [model.name for model in found.models] == ["b", "a"]
    assert found.best == "b" and found.is_decided
    behind = found.models[1].behind
    np.testing.assert_allclose(behind.mean, 0.5)
    # Of the differences, and not of log p(x), which varies far more.
    np.testing.assert_allclose(behind.standard_error, 0.1 / np.sqrt(19))


@pytest.mark.parametrize(
    ("shift", "gap", "is_decided"),
    [
        (0.5, SMALL_GAP, True),
        (0.01, SMALL_GAP, False),  # chance
        (0.5, Mean(0.49, 0.001, 10), False),  # the gap of the one behind
        (0.5, None, False),
        (np.inf, None, True),
    ],
)
def test_what_is_decided(shift, gap, is_decided):
    found = compared({"a": (BASE, SMALL_GAP), "b": (BASE - shift + NOISE, gap)})
    assert found.best == "a" and found.is_decided == is_decided


def result(examples="same", number=20):
    settings = {"examples": examples}
    return types.SimpleNamespace(
        log_p=BASE[:number], indices=np.arange(number), settings=settings, gap=SMALL_GAP
    )


@pytest.mark.usefixtures("as_users_have_it")
def test_other_examples_are_refused():
    for other in (result("other"), result(number=19)):
        with pytest.raises(InputError, match="other examples for 'b' than for 'a'"):
            compare({"a": result(), "b": other})
    with pytest.raises(InputError, match="at least 2"):
        compare([result()])
    assert compare([result(), result()]).best == "0"


def test_it_prints_itself_as_a_table():
    lines = str(compared({"a": (BASE - 1, None), "b": (BASE, SMALL_GAP)})).splitlines()
    assert lines[0].split() == ["model", "log", "p(x)", "gap", "behind", "by"]
    assert lines[1].startswith("b ") and lines[1].endswith("best")
    assert "no certificate" in lines[2] and lines[2].endswith("not decided")
