"""Plots of runs and of the features of their data."""

import re

import numpy as np
import pytest

from aisle.report import drawing
from aisle.report.comparison import compare
from pages import elements, make_run, records


def num_curves(svg, style):
    """Return how many parts of a plot are drawn in the colour of a run."""
    return len(re.findall(rf"stroke: var\(--run-{style}\)", svg))


def test_training_is_drawn_by_each_cost(first, second):
    (group,) = compare([first, second])
    labels = [elements(p).one("svg").attributes["aria-label"] for p in drawing.training(group)]
    costs = ("updates", "seconds", "decoder gradients")
    names = "first and second"
    assert labels == [f"Training and held-out bounds of {names} by {cost}." for cost in costs]


def test_training_is_drawn_as_far_as_it_is_finite(tmp_path):
    (group,) = compare([make_run(tmp_path / "run", metrics=records(bad_from=31))])
    assert num_curves(drawing.training(group)[0], 0) > 0
    for name, metrics in {"none": (), "bad": records(bad_from=1)}.items():
        (group,) = compare([make_run(tmp_path / name, metrics=metrics)])
        assert drawing.training(group) == []


def test_gains_are_drawn_if_there_is_something_to_compare(tmp_path, first, second):
    (group,) = compare([first, second])
    label = elements(drawing.gains(group)).one("svg").attributes["aria-label"]
    assert "over first, in nats: " in label and "second 2.00" in label
    (alone,) = compare([first])
    assert drawing.gains(alone) == ""
    bad = make_run(tmp_path / "bad", evaluations=[np.full(20, -np.inf)])
    (group,) = compare([first, bad])
    assert drawing.gains(group) == ""


def test_curves_are_thinned_to_their_means():
    x = np.arange(10_000.0)
    thin_x, thin_y = drawing.thinned(x, 3 * x + 2)
    assert len(thin_x) == 100
    np.testing.assert_allclose(thin_y, 3 * thin_x + 2)
    few = drawing.thinned(np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, np.inf]))
    np.testing.assert_array_equal(few, [[1.0], [1.0]])


def texts(svg):
    return [text.words for text in elements(svg).all("text")]


def test_up_to_twelve_features_have_histograms(tmp_path, first):
    (group,) = compare([first])
    rng = np.random.default_rng(0)
    for number in (1, 12):
        data, samples = rng.normal(size=(50, number)), {0: rng.normal(size=(60, number))}
        names = [t for t in texts(drawing.marginals(group, data, samples)) if "feature" in t]
        assert names == [f"feature {i + 1}" for i in range(number)]


def test_more_features_are_summarised_by_means_and_deviations(first):
    (group,) = compare([first])
    rng = np.random.default_rng(0)
    data, samples = rng.normal(size=(50, 13)), {0: rng.normal(size=(60, 13))}
    titles = [t for t in texts(drawing.marginals(group, data, samples)) if "feature" in t]
    assert titles == [
        "mean of each feature in samples",
        "standard deviation of each feature in samples",
    ]


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_constant_features_are_drawn(first, value):
    (group,) = compare([first])
    data = np.full((50, 2), value)
    assert texts(drawing.marginals(group, data, {0: data, 1: data + 1e6}))
