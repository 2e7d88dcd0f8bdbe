"""Which runs are compared by which evaluations, and what is said about them."""

from pathlib import Path

import numpy as np
import pytest

from aisle.report.comparison import _names, compare, differing_settings, result, warnings
from aisle.report.words import number, with_error
from aisle.statistics import Mean, summarise
from pages import ABOUT, MINUS, config, log_p, make_run, records


def sentences(*runs):
    (group,) = compare(runs)
    return " ".join(result(group)[1])


def test_a_gain_is_paired_on_the_same_examples(first, second):
    (group,) = compare([first, second])
    assert group.base == "first"
    gain = group.members[1].gain
    assert gain == summarise(log_p(2.0, noise=0.125) - log_p())
    best, _ = result(group)
    assert best.name == "second"
    assert f"Better than first by {with_error(gain)} nats" in sentences(first, second)


def test_equal_evaluations_are_called_the_same(tmp_path, first):
    copy = make_run(tmp_path / "copy", evaluations=[log_p()])
    said = sentences(first, copy)
    assert "The evaluation is the same as that of copy: log p(x) is equal for every" in said
    assert "0.00" not in said and "etter than" not in said


def test_numbers_that_round_to_nothing_are_called_small():
    assert with_error(Mean(0.0, 0.0, 3)) == with_error(Mean(-0.004, 0.001, 3)) == "less than 0.01"
    assert with_error(Mean(0.004, 0.001, 3), 3) == "0.004\u202f±\u202f0.001"
    assert with_error(Mean(0.0, 0.02, 3)) == "0.00\u202f±\u202f0.02"


def test_numbers_that_are_not_finite_are_named():
    assert number(float("nan")) == with_error(Mean(-np.inf, np.nan, 3)) == "not finite"
    assert with_error(Mean(-1.5, np.nan, 1)) == f"{MINUS}1.50"


def test_different_data_are_never_compared(tmp_path, first):
    """Not even if their names, or the digests of the evaluated examples, are the same."""
    other = make_run(tmp_path / "other", config(digest="d2"), evaluations=[log_p(9.0)])
    third = make_run(tmp_path / "third", config(data="else", digest="d3"), evaluations=[log_p()])
    groups = compare([first, other, third])
    assert [group.data for group in groups] == ["things (d1)", "things (d2)", "else"]
    assert [[m.name for m in group.members] for group in groups] == [
        ["first"],
        ["other"],
        ["third"],
    ]
    assert all(group.members[0].gain.mean == 0 for group in groups)


OTHERS = {
    "other examples": (log_p(2.0), {"digest": "another"}),
    "fewer examples": (log_p()[:5], {"is_complete": False}),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_other_examples_are_not_compared(tmp_path, first, other):
    run = make_run(tmp_path / "other", evaluations=[other])
    (group,) = compare([first, run])
    assert sum(m.gain is not None for m in group.members) == 1
    assert "Not evaluated on the same examples: " in sentences(first, run)


def test_runs_are_compared_by_the_evaluation_that_they_share(tmp_path, first):
    several = [log_p(1.0), (log_p(9.0), {"digest": "another"})]
    (group,) = compare([first, make_run(tmp_path / "other", evaluations=several)])
    assert group.members[1].gain.mean == pytest.approx(1)


def test_the_newest_evaluation_counts(tmp_path):
    several = [log_p(1.0), log_p(2.0), log_p(3.0)]
    (group,) = compare([make_run(tmp_path / "run", evaluations=several)])
    assert group.members[0].evaluation.means["log_p"].mean == pytest.approx(-17)


LESSER = {
    "other data": {"data": "other.npy"},
    "training data": {"split": "train"},
    "earlier weights": {"update": 30},
}


@pytest.mark.parametrize("changes", LESSER.values(), ids=LESSER.keys())
def test_own_test_data_and_present_weights_come_first(tmp_path, changes):
    several = [log_p(1.0), (log_p(9.0), {"about": ABOUT | changes})]
    (group,) = compare([make_run(tmp_path / "run", evaluations=several)])
    assert group.members[0].evaluation.means["log_p"].mean == pytest.approx(-19)
    (group,) = compare([make_run(tmp_path / "alone", evaluations=several[1:])])
    is_chosen = group.members[0].evaluation is not None
    # Earlier weights are better than none.
    assert is_chosen == ("update" in changes)


LEADS = [(0.0, 0.05, "Not clearly"), (0.0, 0.5, "Better"), (1.0, 0.5, "Not"), (None, 9.0, "Not")]


@pytest.mark.parametrize(("gap", "lead", "words"), LEADS)
def test_a_lead_must_exceed_the_gap(tmp_path, gap, lead, words):
    """A bound that may be too low by a nat is not clearly worse by half of one."""
    low = make_run(tmp_path / "low", evaluations=[(log_p(), {"gap": gap})])
    high = make_run(tmp_path / "high", evaluations=[(log_p(lead, noise=0.5), {"gap": gap})])
    said = sentences(low, high)
    assert [word in said for word in ("Better than low", "Not clearly better than low")] == [
        words == "Better",
        words != "Better",
    ]
    assert ("There is no certificate" in said) == (gap is None)


def test_a_diverged_run_is_shown_as_such(tmp_path):
    (group,) = compare([make_run(tmp_path / "run", metrics=records(bad_from=31))])
    (text,) = warnings(group.members[0])
    assert text == "run: training diverged: the bound is not finite from update 31 on."
    (group,) = compare([make_run(tmp_path / "all", metrics=records(bad_from=1))])
    assert "from update 1 on" in warnings(group.members[0])[0]
    some = [r | ({"bound": None} if r["update"] == 7 else {}) for r in records()]
    (group,) = compare([make_run(tmp_path / "some", metrics=some)])
    assert warnings(group.members[0]) == ["some: the bound was not finite in 1 of 40 updates."]


def test_an_evaluation_that_is_not_finite_is_shown_as_such_and_not_ranked(tmp_path, first):
    values = log_p(9.0)
    values[3] = -np.inf
    bad = make_run(tmp_path / "bad", evaluations=[values])
    (group,) = compare([bad, first])
    assert warnings(group.members[0]) == ["bad: log p(x) is not finite for 1 of 20 examples."]
    best, said = result(group)
    assert (best.name, group.base) == ("first", "first")
    assert "etter than bad" not in " ".join(said)
    (group,) = compare([bad])
    assert result(group) == (None, ["No evaluation is finite."])


def test_a_run_that_was_not_evaluated(tmp_path, first):
    bare = make_run(tmp_path / "bare")
    assert sentences(bare) == "No run has been evaluated yet."
    assert "Not evaluated on the same examples: bare." in sentences(bare, first)


def test_only_settings_that_differ_are_listed(tmp_path, first):
    other = make_run(tmp_path / "other", config("vae", provenance={"machine": "new"}))
    (group,) = compare([first, other])
    assert differing_settings(group) == {"method.method": ["ais", "vae"]}


def test_names_are_short_where_they_can_be(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    paths = [Path("a/x"), Path("b/y"), Path(), Path("b/x")]
    assert _names(paths) == ["a/x", "y", "here", "b/x"]
