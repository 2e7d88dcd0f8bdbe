"""Plots of runs: against their costs, along their chains, over the examples."""

import numpy as np
import pytest

from aisle.evaluation.results import Bidirectional
from aisle.report.page import plots
from aisle.statistics import Mean
from pages import MINUS, cells, config, elements, make_run, page, plots_of, records, result


def test_curves_are_drawn_against_each_cost(both):
    labels = plots_of(both, "learning")
    assert len(labels) == 3
    for label, cost in zip(labels, ("updates", "decoder gradients", "seconds"), strict=True):
        assert f"against {cost}" in label
        assert f"first {MINUS}25.00 nats, second {MINUS}25.00 nats" in label


def test_runs_on_different_data_do_not_share_a_plot(tmp_path, first):
    other = make_run(tmp_path / "other", data="else", evaluations=[result(1.0, digest="x")])
    root = elements(page(first, other))
    assert len(plots_of(root, "learning")) == 6
    assert len(plots_of(root, "examples")) == 2
    assert root.one("h1").words == "first and other on things and else"


def test_chains_are_described_by_the_last_updates(one):
    labels = plots_of(one, "chains")
    assert "Acceptance by transition" in labels[0] and "first 0.70 to 0.90" in labels[0]
    # Of the last four of 40 updates, 0.1 times their mean number.
    assert "first 0.20 to 3.85" in labels[1]
    assert "at the end: first 0.75" in labels[2]
    assert "first 0.75 to 0.88" in labels[3]
    assert "first 0.20 to 0.50" in labels[4]


def test_without_chains_the_weights_are_still_drawn(tmp_path):
    run = make_run(tmp_path / "run", config("dreg"), metrics=records(has_chains=False))
    chains = elements(page(run)).one("section", id="chains")
    assert "No run has chains" in chains.words
    assert len(chains.all("svg", class_="plot")) == 1


@pytest.mark.parametrize("method", ["vae", "mh-hmc"])
def test_equal_weights_have_no_effective_sample_size(tmp_path, first, method):
    has_chains = method == "mh-hmc"
    run = make_run(tmp_path / "run", config(method), metrics=records(has_chains=has_chains))
    alone = elements(page(run))
    assert not [label for label in plots_of(alone, "chains") if "Effective" in label]
    words = alone.one("section", id="chains").words
    assert "An effective sample size needs iwae, dreg or ais" in words
    assert "samples of an example count" not in words
    root = elements(page(run, first))
    (label,) = (label for label in plots_of(root, "chains") if "Effective" in label)
    assert label.endswith("at the end: first 0.75.")
    assert "samples of an example count" in root.one("section", id="chains").words


def test_a_warm_up_does_not_hide_the_chains(tmp_path):
    early = [r | {"acceptance": [], "step_size": []} if r["update"] < 30 else r for r in records()]
    chains = make_run(tmp_path / "run", metrics=early).folder.history.chains
    np.testing.assert_allclose(chains.acceptance, [0.7, 0.8, 0.9])


def test_certificates_of_all_rounds_are_drawn(one):
    rows = cells(one, "certificates")
    assert [row["chains × T × L"] for row in rows] == ["2 × 2 × 3", "2 × 4 × 3"]
    assert rows[0]["lower"] == f"{MINUS}21.12 ± 0.50"
    assert rows[0]["upper"] == f"{MINUS}21.00 ± 0.50"
    assert rows[0]["gap"] == "0.125 ± 0.062"
    assert rows[0]["largest"] == "0.750"
    strips = one.one("section", id="certificates").all("svg", class_="strip")
    assert len(strips) == 2
    # From 0 to 0.25, twice the standard error above the gap: 5 to 195 of 200 units.
    assert strips[0].one("circle").attributes["cx"] == "100.0"
    assert strips[0].one("line", class_="axis").attributes["x1"] == "5.0"


def test_a_gap_below_zero_is_explained(tmp_path):
    gap = Bidirectional(Mean(-21.0, 0.5, 7), Mean(-21.125, 0.5, 7), Mean(-0.125, 0.25, 7), 0.5)
    rounds = [result().rounds[-1]._replace(bdmc=gap)]
    root = elements(page(make_run(tmp_path / "run", evaluations=[result(rounds=rounds)])))
    assert cells(root, "certificates")[0]["gap"] == f"{MINUS}0.125 ± 0.250"
    assert "A gap a little below zero is noise" in root.one("section", id="certificates").words


def test_strips_stay_inside_their_edges():
    scale = plots.strip_scale([0.5, -0.25], [0.25, 0.125])
    assert scale == (-0.5, 1.0)
    assert plots.strip_scale([0.001], [0.0001]) == (0.0, 0.1)
    drawn = elements(plots.strip(1, -0.25, 0.125, scale, "label"))
    places = [float(drawn.one("line", class_="whisker").attributes[n]) for n in ("x1", "x2")]
    assert places[0] == 5.0 and places[1] == pytest.approx(5 + 190 / 3, abs=0.05)


def test_curves_are_thinned_to_their_means():
    x = np.arange(10_000.0)
    for is_log in (False, True):
        thin_x, thin_y = plots.thinned(x + 1, 3 * x + 2, is_log=is_log)
        assert 20 < len(thin_x) <= 100
        np.testing.assert_allclose(thin_y, 3 * thin_x - 1)
        # The last stretch is as long as the others: it is not one noisy point.
        assert thin_x[-1] < 9_999
    few = plots.thinned(np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, np.nan]))
    np.testing.assert_array_equal(few, [[1.0], [1.0]])
