"""Plots of runs and of the features of their data."""

import re

import numpy as np
import pytest

from aisle.data import Column
from aisle.report import drawing, figures
from aisle.report.columns import bars_of, compared
from aisle.report.comparison import compare
from pages import elements, make_run, pixels, records


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


def test_a_run_may_be_called_data(tmp_path):
    (group,) = compare([make_run(tmp_path / "data")])
    values = np.random.default_rng(0).normal(size=(2, 50, 3))
    samples = {0: values[1]}
    found = figures.of_columns(group, figures.features(values[0], samples), samples)
    assert found["correlations"]["titles"] == ["data", "data"]
    assert [len(row) for _, row in found["correlations"]["pairs"]] == [2, 2, 2]


def test_curves_are_thinned_to_their_means():
    x = np.arange(10_000.0)
    thin_x, thin_y = drawing.thinned(x, 3 * x + 2)
    assert len(thin_x) == 100
    np.testing.assert_allclose(thin_y, 3 * thin_x + 2)
    few = drawing.thinned(np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, np.inf]))
    np.testing.assert_array_equal(few, [[1.0], [1.0]])


def texts(svg):
    return [text.words for text in elements(svg).all("text")]


def column(values, samples, kind="real", levels=()):
    own = Column("x", kind, levels)
    return compared(own, bars_of(own, values), values, {0: samples, 1: samples})


def test_a_column_of_numbers_is_drawn_once_for_the_data_and_once_for_each_run():
    values = np.random.default_rng(0).normal(size=200)
    svg = drawing.marginal(column(values, values + 1), "a label")
    assert elements(svg).one("svg").attributes["aria-label"] == "a label"
    assert [num_curves(svg, style) for style in (0, 1, 2)] == [1, 1, 0]
    assert len(re.findall(r"fill: var\(--faint\)", svg)) >= 1


def test_levels_have_bars_as_long_as_their_shares():
    """Three quarters and a quarter in the data, and the other way round in samples."""
    one = column(np.array([0.0, 0, 0, 1]), np.array([0.0, 1, 1, 1]), "bit", ("no", "yes"))
    svg = drawing.marginal(one, "bars")
    assert texts(svg)[-2:] == ["no", "yes"]

    def widths(name):
        paths = re.findall(rf'd="([^"]*)"[^>]*style="fill: var\(--{name}\)', svg)
        xs = [[float(x) for x in re.findall(r"[ML] ([-\d.]+) ", path)] for path in paths]
        return [max(x) - min(x) for x in xs if x]

    data, model = widths("faint"), widths("run-0")
    assert data[0] / data[1] == pytest.approx(3, rel=1e-3)
    assert model == pytest.approx(data[::-1], rel=1e-3)


def test_skewed_counts_have_ticks_at_powers_of_ten():
    values = np.random.default_rng(0).negative_binomial(1, 0.002, 300).astype(float)
    shown = texts(drawing.marginal(column(values, values, "count"), "counts"))
    assert shown == ["0", "1", "10", "100", "1k"]


def test_names_are_drawn_as_they_are_and_long_ones_are_cut():
    levels = ("$x_1$", "<b>&", "ein sehr langer Name eines Wertes", "\u6c34")
    svg = drawing.marginal(column(np.arange(4.0), np.arange(4.0), "category", levels), "names")
    assert texts(svg)[-4:] == ["$x_1$", "<b>&", "ein sehr langer N\u2026", "\u6c34"]
    shown = texts(drawing.heat_map(levels, np.eye(4), "names"))
    assert shown == [
        "1",
        "2",
        "3",
        "4",
        *(f"{drawing._short(x)} {i + 1}" for i, x in enumerate(levels)),
    ]


def test_a_strip_has_a_point_for_each_column_and_run():
    one = column(np.arange(9.0), np.arange(9.0) + 1)
    svg = drawing.strip([one] * 5, "others")
    assert [len(re.findall(rf"<use [^>]*--run-{style}", svg)) for style in (0, 1)] == [5, 5]


def test_correlations_are_opaque_by_their_strength_and_coloured_by_their_sign():
    svg = drawing.heat_map(
        ("a", "b", "c"), np.array([[1, -0.5, 0], [-0.5, 1, np.nan], [0, 0, 1]]), "map"
    )
    (image,) = elements(svg).all("image")
    found = pixels(image.attributes["href"])
    assert found.shape == (3, 3, 4)
    blue, orange = [0x2F, 0x86, 0xC9, 255], [0xD9, 0x66, 0x1F, 127]
    assert found[0, 0].tolist() == blue
    assert found[0, 1].tolist() == found[1, 0].tolist() == orange
    assert found[1, 2, 3] == found[0, 2, 3] == 0


def test_labels_have_a_colour_and_a_marker_each():
    marks = [drawing.mark(code) for code in range(12)]
    assert len(set(marks)) == 12
    points = np.random.default_rng(0).normal(size=(40, 2))
    codes = np.arange(40) % 8 - 1
    svg = drawing.latents(points, np.array([0.75, 0.25]), codes, "latents")
    assert len(re.findall("<use [^>]*--faint", svg)) >= 5
    assert sum(len(re.findall(rf"<use [^>]*--run-{i}", svg)) for i in range(6)) == 35
    assert "first principal component, 75% of the variance" in texts(svg)
    line = drawing.latents(points[:, :1], np.ones(1), codes, "line")
    assert "the only latent; the height means nothing" in texts(line)


def test_many_features_are_summarised_by_means_and_deviations():
    rng = np.random.default_rng(0)
    data, samples = rng.normal(size=(50, 13)), {0: rng.normal(size=(60, 13))}
    titles = [t for t in texts(drawing.moments(data, samples, "moments")) if "feature" in t]
    assert titles == [
        "mean of each feature in samples",
        "standard deviation of each feature in samples",
    ]
