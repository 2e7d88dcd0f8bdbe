"""Columns in data and in samples, as numbers: bars, differences, correlations, components."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from aisle.data import Column, Table
from aisle.report.columns import (
    bars_of,
    compared,
    correlations,
    labels_of,
    largest_differences,
    marginals,
    principal_components,
)

CATEGORY = Column("colour", "category", ("blue", "green", "red"))
NAN = np.nan


def test_levels_have_a_bar_each_and_what_is_missing_has_none():
    values = np.array([0.0, 2, 2, NAN, 1, 2])
    bars = bars_of(CATEGORY, values)
    assert bars.names == CATEGORY.levels
    # Nothing is beyond the levels, on either side.
    assert bars.shares(values).tolist() == [0, 0.2, 0.2, 0.6, 0]


def test_what_is_no_level_is_counted_beyond_them():
    """As a model that knows nothing of levels may draw it."""
    bars = bars_of(CATEGORY, np.arange(3.0))
    assert bars.shares(np.array([0.5, -1, 7, 1])).tolist() == [0.75, 0, 0.25, 0, 0]


def test_rare_levels_share_a_bar():
    """Ten levels; the two that are seen least, b and d, are put together."""
    column = Column("letter", "category", tuple("abcdefghij"))
    values = np.repeat(np.arange(10.0), [5, 1, 5, 2, 5, 5, 5, 5, 5, 5])
    bars = bars_of(column, values)
    assert bars.names == (*"acefghij", "2 others")
    np.testing.assert_allclose(bars.shares(values)[1:-1], [*[5 / 43] * 8, 3 / 43])


def test_few_counts_have_a_bar_each():
    bars = bars_of(Column("visits", "count"), np.array([0.0, 1, 1, 3]))
    assert bars.edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5]
    assert bars.shares(np.array([0.0, 3, 9, 9])).tolist() == [0, 0.25, 0, 0, 0.25, 0.5]


def test_skewed_counts_are_on_a_logarithmic_axis():
    column, random = Column("reads", "count"), np.random.default_rng(0)
    skewed = bars_of(column, random.negative_binomial(1, 0.01, 500).astype(float))
    even = bars_of(column, random.poisson(300, 500).astype(float))
    assert (skewed.is_log, even.is_log) == (True, False)
    for bars in (skewed, even):
        # A whole number is never on an edge.
        assert np.all(bars.edges % 1 == 0.5) and np.all(np.diff(bars.edges) >= 1)
    assert skewed.edges[:3].tolist() == [-0.5, 0.5, 1.5] and even.edges[0] > 200


def test_the_data_decide_the_bars_and_what_is_beyond_them_counts():
    values = np.linspace(0, 1, 101)
    bars = bars_of(Column("x", "real"), values)
    assert bars.edges[0] < 0 and bars.edges[-1] > 1
    shares = bars.shares(np.array([-100.0, 0.5, 100.0, 100.0]))
    assert (shares[0], shares[-1], shares.sum()) == (0.25, 0.5, 1)
    assert bars.shares(values)[[0, -1]].tolist() == [0, 0]


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_constant_columns_have_bars(value):
    for kind in ("real", "count"):
        bars = bars_of(Column("x", kind), np.full(9, value))
        assert bars.shares(np.full(9, value))[1:-1].max() == 1
    assert np.all(np.isfinite(bars_of(Column("x", "real"), np.full(3, NAN)).edges))


def test_a_difference_is_the_share_that_would_have_to_move():
    """0.5, 0.3, 0.2 in the data against 0.2, 0.3, 0.5: three tenths go from first to last."""
    values, other = np.repeat(np.arange(3.0), [5, 3, 2]), np.repeat(np.arange(3.0), [2, 3, 5])
    one = compared(CATEGORY, bars_of(CATEGORY, values), values, {0: values, 4: other})
    assert one.differences == {0: 0, 4: pytest.approx(0.3)}
    assert one.excess == pytest.approx(0.3 - one.chance)


@pytest.mark.parametrize("kind", ["real", "bit"])
def test_chance_is_the_mean_difference_between_samples_of_one_law(kind):
    random = np.random.default_rng(0)

    def draw(number):
        values = random.normal(size=number)
        return (values > 0.3).astype(float) if kind == "bit" else values

    column, first = Column("x", kind), draw(10_000)
    bars = bars_of(column, first)
    found = [compared(column, bars, draw(200), {0: draw(300)}) for _ in range(200)]
    differences = np.array([one.differences[0] - one.chance for one in found])
    error = differences.std() / np.sqrt(len(found))
    # A bar with few values has a spread that the normal law overstates a little.
    assert abs(differences.mean()) < 4 * error + 0.05 * found[0].chance


def test_columns_are_compared_each_with_itself_on_bars_of_the_data():
    values = np.array([[0.0, 1, 5], [1, 1, 6], [1, 0, 7], [NAN, 0, 8]])
    columns = (Column("a", "bit"), Column("b", "bit"), Column("c", "real"))
    found = marginals(Table(values, columns), {2: np.array([[1.0, 0, 7], [1, 0, 1e6]])})
    assert [one.column for one in found] == list(columns)
    first, second, third = found
    assert first.data[1:-1].tolist() == [1 / 3, 2 / 3]
    assert first.models[2][1:-1].tolist() == [0, 1] and second.differences == {2: 0.5}
    np.testing.assert_array_equal(third.bars.edges, bars_of(columns[2], values[:, 2]).edges)
    assert third.models[2][-1] == 0.5


def test_correlations_are_spearman_s():
    values = np.random.default_rng(0).normal(size=(60, 4))
    values[:, 1] = np.exp(values[:, 0])
    values[:, 2] = values[:, 3].round() - values[:, 0].round()
    found = correlations(values)
    np.testing.assert_allclose(found, spearmanr(values).statistic, atol=1e-12)
    assert found[0, 1] == pytest.approx(1)


def test_correlations_are_of_the_rows_that_have_both():
    """Rows 0 to 5 rise together; in the others, one of the two is missing."""
    first = np.array([1.0, 2, 3, 4, 5, 6, -9, NAN, 0])
    second = np.array([1.0, 4, 9, 16, 25, 36, NAN, -9, NAN])
    found = correlations(np.stack([first, second, np.ones(9)], axis=1))
    assert found[0, 1] == found[1, 0] == pytest.approx(1)
    # A column that does not vary has no correlation with any.
    assert np.isnan(found[2]).all()


def test_the_pairs_that_differ_most_come_first():
    data, model, other = np.eye(4), np.eye(4), np.eye(4)
    model[0, 2] = model[2, 0] = 0.5
    other[1, 3] = other[3, 1] = -0.75
    other[0, 1] = other[1, 0] = NAN
    assert largest_differences(data, [model, other], 2) == [(1, 3), (0, 2)]


def test_components_are_those_of_the_largest_spread():
    """Points on the axes of a rectangle, turned: the long side first, signs by the loadings."""
    turned = np.array([[0.6, 0.8, 0], [0.8, -0.6, 0]])
    places = np.array([[3.0, 0], [-3, 0], [0, 1], [0, -1]])
    found, shares = principal_components(places @ turned + 5)
    np.testing.assert_allclose(found, places, atol=1e-12)
    np.testing.assert_allclose(shares, [0.9, 0.1])
    line, shares = principal_components(np.array([[1.0], [3.0]]))
    assert line.tolist() == [[-1], [1]] and shares.tolist() == [1]


def test_levels_are_labels_and_numbers_are_cut_into_thirds():
    labels = labels_of(CATEGORY, np.array([2.0, NAN, 0]))
    assert (labels.name, labels.levels, labels.codes.tolist()) == (
        "colour",
        CATEGORY.levels,
        [2, -1, 0],
    )
    assert labels_of(Column("b", "bit"), np.array([1.0, 0])).levels == ("0", "1")
    thirds = labels_of(Column("age", "real"), np.array([1.0, 2, 3, 4, 5, 6, NAN]))
    assert thirds.codes.tolist() == [0, 0, 1, 1, 2, 2, -1]
    assert thirds.levels == ("up to 2.67", "to 4.33", "above 4.33")
