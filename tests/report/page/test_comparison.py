"""Runs side by side: which figures are compared, and what is said of them."""

import numpy as np
import pytest

from aisle.evaluation import Round
from aisle.evaluation.results import Bidirectional
from aisle.report.page.subjects import Origin
from aisle.statistics import Mean, summarise
from pages import (
    NUM_EXAMPLES,
    NUM_UPDATES,
    cells,
    commands,
    config,
    elements,
    make_run,
    page,
    plots_of,
    result,
    shown,
    stored,
)


def test_the_comparison_has_the_figures_of_the_results(first, second, both):
    rows = cells(both, "comparison")
    for row, subject in zip(rows, (first, second), strict=True):
        found = stored(subject)
        assert row["log p(x)"] == shown(found["log_likelihood"])
        gap = {"mean": found["bdmc"]["gap"], "standard_error": found["bdmc"]["gap_standard_error"]}
        assert row["gap"] == shown(gap)
        values = {float(data.attributes["value"]) for data in both.all("data")}
        assert {found["log_likelihood"]["mean"], found["bdmc"]["lower"]} <= values
    importance = stored(first)["importance"]
    assert rows[0]["importance-weighted bound"] == f"{shown(importance['bound'])}K = 500"
    assert rows[0]["ELBO"] == shown(importance["elbo"])
    assert rows[1]["ELBO"] == "\N{EN DASH}"
    assert rows[0]["decoder gradients"] == "4,000"
    assert (rows[0]["updates"], rows[0]["seconds"]) == ("40", "20")
    assert [rows[0][name] for name in ("method", "K", "T", "L", "kernel")] == [
        *("ais", "2", "3", "2", "tuned")
    ]


def test_a_difference_is_paired_on_the_same_examples(first, second, both):
    log_p = [
        np.load(s.folder.evaluations[0].path / "examples.npz")["log_p"] for s in (first, second)
    ]
    mean = summarise(log_p[1] - log_p[0])
    assert mean.standard_error < 0.01
    rows = cells(both, "comparison")
    assert rows[1]["to first"] == shown(mean._asdict(), sign="+")
    assert rows[0]["to first"] == "\N{EN DASH}"
    words = both.one("header").words
    assert f"Better than first by {shown(mean._asdict())} nats" in words
    assert "log p(x) of second" in words
    assert len(both.one("table", class_="standings").one("tbody").all("tr")) == 2


OTHERS = {
    "other examples": result(2.0, digest="another"),
    "fewer examples": result(
        indices=np.arange(5),
        log_p=np.linspace(-22, -18, 5),
        effective_sample_size=np.ones(5),
        num_nonfinite=np.zeros(5, int),
        is_complete=False,
    ),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_other_examples_are_not_compared(tmp_path, first, other):
    root = elements(page(first, make_run(tmp_path / "other", evaluations=[other])))
    assert "to first" not in cells(root, "comparison")[1]
    assert "no evaluation of the same examples" in root.one("header").words
    assert not root.all("table", class_="standings")


def test_runs_are_compared_by_the_evaluation_that_they_share(tmp_path, first):
    both = [result(1.0), result(9.0, digest="another")]
    root = elements(page(first, make_run(tmp_path / "other", evaluations=both)))
    estimate = both[0].estimate._asdict()
    assert cells(root, "comparison")[1]["log p(x)"] == shown(estimate)


def test_of_several_evaluations_the_newest_counts(tmp_path):
    several = [result(1.0, digest="a"), result(2.0, digest="b"), result(3.0, digest="b")]
    root = elements(page(make_run(tmp_path / "run", evaluations=several)))
    assert cells(root, "comparison")[0]["log p(x)"] == shown(several[-1].estimate._asdict())


def with_newest(run, origin):
    """Say how the newest evaluation of a run came about."""
    newest = run.folder.evaluations[0].path.name
    return run._replace(origins=run.origins | {newest: origin})


FOREIGN = Origin("test", NUM_UPDATES, "aisle evaluate run --data other.npy", "other.npy")
LESSER = {
    "other data": FOREIGN,
    "earlier weights": Origin("test", 30, "x"),
    "other data and earlier weights": FOREIGN._replace(update=30),
}


@pytest.mark.parametrize("origin", LESSER.values(), ids=LESSER.keys())
def test_own_data_and_present_weights_come_before_the_newest(tmp_path, first, origin):
    both = [result(1.0), result(9.0, digest="another")]
    run = with_newest(make_run(tmp_path / "run", evaluations=both), origin)
    for pages in ([run], [run, first]):
        root = elements(page(*pages))
        assert cells(root, "comparison")[0]["log p(x)"] == shown(both[0].estimate._asdict())
        assert "log p(x) of run, a stochastic" in root.one("p", class_="label").words
        assert "20 test examples of things." in root.one("header").words


def test_own_data_at_earlier_weights_come_before_other_data(tmp_path):
    both = [result(1.0), result(9.0, digest="another")]
    run = with_newest(make_run(tmp_path / "run", evaluations=both), FOREIGN)
    old = Origin("test", 30, "x")
    run = run._replace(origins=run.origins | {run.folder.evaluations[1].path.name: old})
    root = elements(page(run))
    assert cells(root, "comparison")[0]["log p(x)"] == shown(both[0].estimate._asdict())
    assert "the evaluation is of update 30" in root.one("ul", class_="notes").words


def test_certificates_name_other_data_and_earlier_weights(tmp_path):
    run = make_run(tmp_path / "run", evaluations=[result(), result()])
    root = elements(page(with_newest(run, FOREIGN._replace(update=30))))
    evaluated = [row["evaluated"] for row in cells(root, "certificates")]
    assert evaluated == 2 * ["test, 20of other data, other.npy, at update 30"] + 2 * ["test, 20"]
    assert FOREIGN.command in commands(root.one("section", id="settings"))


def test_an_evaluation_of_nothing_but_other_data_is_named_so(tmp_path):
    run = with_newest(make_run(tmp_path / "run", evaluations=[result()]), FOREIGN)
    root = elements(page(run))
    header = root.one("header").words
    assert "log p(x) of run on other data, other.npy, a stochastic lower bound" in header
    assert "20 test examples of other.npy." in header
    of_other = "of other data, other.npy"
    assert cells(root, "comparison")[0]["log p(x)"].endswith(of_other)
    comparison = root.one("section", id="comparison")
    assert "run has no evaluation yet but of other data." in comparison.words
    assert "aisle evaluate run" in commands(comparison)
    assert cells(root, "examples")[0]["run"] == f"run{of_other}"
    assert root.one("section", id="chains").all("ul", class_="key")[1].words == f"run{of_other}"
    examples = root.one("section", id="examples")
    assert not examples.all("img")
    assert "The evaluation is of other data, other.npy, which are not shown here." in examples.words


def test_the_headline_is_of_own_data_if_any_run_has_that(tmp_path, first):
    others = [
        with_newest(make_run(tmp_path / n, evaluations=[result(9.0, digest="x")]), FOREIGN)
        for n in ("a", "b")
    ]
    root = elements(page(*others, first))
    assert "log p(x) of first, a stochastic" in root.one("p", class_="label").words
    # Densities of different data have nothing to do with another.
    assert len(plots_of(root, "examples")) == 2


def test_log_p_stands_beside_the_name(both):
    assert list(cells(both, "comparison")[0])[:2] == ["run", "log p(x)"]


def test_a_gain_is_explained(both):
    words = both.one("table", class_="standings").one("caption").words
    assert words == (
        "Gain over first in nats, ± one standard error. The lines reach two standard errors to "
        "each side."
    )


LEADS = [
    (0.0, 0.05, "Level with"),
    (0.0, 0.5, "Better than"),
    (1.0, 0.5, "Level with"),
    (np.inf, 0.5, "Ahead of"),
]


@pytest.mark.parametrize(("gap", "lead", "words"), LEADS)
def test_a_lead_must_exceed_the_gap(tmp_path, gap, lead, words):
    """Bounds that may be too low by a nat are level if they differ by half of one."""
    zero = np.zeros(NUM_EXAMPLES)
    noise = np.resize([-0.5, 0.5], NUM_EXAMPLES)
    bdmc = Bidirectional(Mean(-21.0, 1.0, 7), Mean(-20.0, 1.0, 7), Mean(gap, 0.001, 7), gap)
    runs = []
    for name, log_p in (("low", zero - 20), ("high", zero - 20 + lead + noise)):
        rounds = [Round(2, summarise(log_p), bdmc, None, 1, 1.0)]
        found = result(log_p=log_p, rounds=rounds)
        runs.append(make_run(tmp_path / name, evaluations=[found]))
    said = elements(page(*runs)).one("p", class_="sentences").words
    assert [verb for verb in ("Better than", "Level with", "Ahead of") if verb in said] == [words]
    assert f"{words} low" in said


def test_examples_without_a_likelihood(tmp_path, first):
    log_p = result().log_p.copy()
    log_p[3] = -np.inf
    rounds = [result().rounds[-1]._replace(estimate=summarise(log_p))]
    other = make_run(tmp_path / "other", evaluations=[result(log_p=log_p, rounds=rounds)])
    root = elements(page(first, other))
    assert cells(root, "comparison")[1]["log p(x)"] == "not finite"
    assert "other: 1 example without a finite log p(x)." in root.one("ul", class_="notes").words
    assert "log p(x) of first" in root.one("header").words
    assert "other by" not in root.one("header").words
    assert "not finite" in root.one("section", id="examples").words


def test_what_a_reader_must_know_is_said(tmp_path):
    found = result(is_complete=False, is_tolerance_reached=False)
    run = make_run(tmp_path / "run", evaluations=[found])
    notes = elements(page(run)).one("ul", class_="notes").words
    assert "run: the time was up before all examples were done." in notes
    assert "run: the tolerance of 0.01 nats was not reached" in notes
    folder = run.folder.evaluations[0].path.name
    old = run._replace(origins={folder: Origin("test", 30, "aisle evaluate")})
    notes = elements(page(old)).one("ul", class_="notes").words
    assert "the evaluation is of update 30, the run is at 40; evaluate again." in notes
    unknown = elements(page(run._replace(origins={})))
    assert "does not tell which weights" in unknown.one("ul", class_="notes").words
    assert not unknown.one("section", id="examples").all("img")
    assert "By number, with log p(x): 0 (" in unknown.one("section", id="examples").words


def test_a_run_that_starts_from_another_says_so(tmp_path):
    train = config() | {"model": {"init_from": "/somewhere/cheap"}}
    root = elements(page(make_run(tmp_path / "run", train)))
    assert (
        "starts from cheap, whose costs are not counted"
        in root.one("section", id="comparison").words
    )


def test_an_evaluation_of_training_examples_is_no_test(tmp_path):
    run = make_run(tmp_path / "run", evaluations=[result()])
    folder = run.folder.evaluations[0].path.name
    root = elements(page(run._replace(origins={folder: Origin("train", NUM_UPDATES, "x")})))
    assert cells(root, "comparison")[0]["log p(x)"] == "not measured"
    assert "no evaluation of test examples yet" in root.one("section", id="comparison").words
    # Its certificate is one all the same.
    assert len(cells(root, "certificates")) == 2
