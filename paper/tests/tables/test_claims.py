import numpy as np
import pytest

from aisle.statistics import Mean, summarise
from paper.tables import cells, claims

CLAIM = claims.Claim("more helps", "more", "less")
NO_GAP = Mean(0.0, 0.0, 9)


def result(name, gap=NO_GAP):
    return cells.CellResult(
        name,
        "mnist",
        "dreg",
        5,
        *[None] * 4,
        *(7, 100, 3.0),
        Mean(-87.0, 0.5, 4),
        gap,
        *(None, None, 4.0, 0, "", "aisle train"),
    )


def finished(name, log_p, **digests):
    return cells.FinishedCell(result(name), np.array(log_p), digests or None)


def test_cells_are_compared_on_the_same_examples():
    done = {"more": finished("more", [1.0, 5.5, 9.0]), "less": finished("less", [0.0, 4.0, 7.0])}
    gain = summarise(np.array([1.0, 1.5, 2.0]))
    assert claims.judge(CLAIM, done) == claims.Verdict("more helps", gain, "holds")
    assert claims.judge(CLAIM._replace(better="less", worse="more"), done) == claims.Verdict(
        "more helps", gain._replace(mean=-1.5), "does not hold"
    )


@pytest.mark.parametrize("name", ["more", "less"])
def test_a_cell_that_is_not_here_decides_nothing(name):
    assert claims.judge(CLAIM, {name: finished(name, [1.0, 2.0])}) is None


def test_cells_of_different_data_decide_nothing():
    done = {name: finished(name, [1.0, 2.0], test=name) for name in ("more", "less")}
    found = claims.judge(CLAIM, done)
    assert found == ("more helps", None, "undecided: the cells are of different data")


# Gain, gap of the better cell and of the worse one.
CASES = [
    ((0.10, 0.04), (0.0, 0.0), (0.0, 0.0), "holds"),
    ((0.10, 0.06), (0.0, 0.0), (0.0, 0.0), "undecided"),
    ((-0.10, 0.04), (0.0, 0.0), (0.0, 0.0), "does not hold"),
    # The bound of the one behind may be too low; that of the other only adds to its lead.
    ((0.10, 0.04), (0.0, 0.0), (0.05, 0.0), "undecided: the gap may be larger"),
    ((0.10, 0.04), (5.00, 1.0), (0.0, 0.0), "holds"),
    ((-0.10, 0.04), (0.05, 0.0), (0.0, 0.0), "undecided: the gap may be larger"),
    # A gap is as uncertain as its own error says, and below zero no credit.
    ((0.10, 0.04), (0.0, 0.0), (0.0, 0.05), "undecided: the gap may be larger"),
    ((0.10, 0.04), (0.0, 0.0), (-5.0, 0.0), "holds"),
    ((0.07, 0.04), (0.0, 0.0), (-5.0, 0.0), "undecided"),
    # Without a certificate, whatever the lead.
    ((9.00, 0.04), (0.0, 0.0), (np.inf, np.nan), "undecided: the gap may be larger"),
    ((9.00, 0.04), (0.0, 0.0), (np.nan, np.nan), "undecided: the gap may be larger"),
    ((np.nan, np.nan), (0.0, 0.0), (0.0, 0.0), "undecided"),
]


@pytest.mark.parametrize(("gain", "better", "worse", "verdict"), CASES)
def test_a_lead_must_exceed_the_gap_by_two_errors(gain, better, worse, verdict):
    results = [result(name, Mean(*gap, 9)) for name, gap in (("more", better), ("less", worse))]
    assert claims.by_gain(CLAIM, Mean(*gain, 9), *results).verdict == verdict


def test_a_result_survives_a_file_that_has_null_for_what_is_not_finite():
    plain = cells.as_plain(result("more", Mean(0.5, 0.1, 1)))
    plain["gap"]["standard_error"] = None
    found = cells.from_plain(cells.CellResult, plain)
    assert np.isnan(found.gap.standard_error)
    assert found._replace(gap=NO_GAP) == result("more")
