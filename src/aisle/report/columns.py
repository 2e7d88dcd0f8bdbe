"""What the columns of a table are in the data and in samples of models, as numbers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from aisle.data import Column, Table

# Bars of real values and of wide counts, at most; few rows have fewer.
_MOST_BARS = 30
# Counts up to here have a bar each.
_FEW = 20
# Levels with a bar of their own; the others share one.
_MOST_LEVELS = 8
# Counts are drawn on a logarithmic axis if the largest is so many times the median.
_SKEWED = 5


class Bars(NamedTuple):
    """The bars that the values of a column are counted in, the same for data and samples.

    Attributes:
        edges: of the bars, in the units of the column. What is beyond them is counted, not drawn.
        names: of the bars, where they are levels.
        bar_of: the bar of each code, where they are levels.
        is_log: whether edges are drawn at log(1 + x).
    """

    edges: np.ndarray
    names: tuple[str, ...] = ()
    bar_of: np.ndarray | None = None
    is_log: bool = False

    def shares(self, values: np.ndarray) -> np.ndarray:
        """Return the share of the observed values in each bar, with one beyond either end."""
        known = values[~np.isnan(values)]
        if self.bar_of is not None:
            # A model of another kind may draw what is no code at all.
            is_code = np.isin(known, np.arange(len(self.bar_of)))
            known = np.where(is_code, self.bar_of[np.where(is_code, known, 0).astype(int)], -1)
        places = np.searchsorted(self.edges, known, side="right")
        return np.bincount(places, minlength=len(self.edges) + 1) / max(1, len(known))


class Marginal(NamedTuple):
    """A column in the data and in the samples of models, by their style.

    Attributes:
        differences: the share of values that would have to change bars for samples to be as data.
        chance: what it would be, about, between data and as many samples of a perfect model.
    """

    column: Column
    bars: Bars
    data: np.ndarray
    models: dict[int, np.ndarray]
    chance: float

    @property
    def differences(self) -> dict[int, float]:
        """Half the sum of the differences of the bars, by style."""
        return {k: float(np.abs(own - self.data).sum() / 2) for k, own in self.models.items()}

    @property
    def excess(self) -> float:
        """By how much the largest difference exceeds that of chance."""
        return max(self.differences.values(), default=0.0) - self.chance


class Labels(NamedTuple):
    """A label of each example.

    Attributes:
        name: of what is told by it.
        levels: what it may be.
        codes: the place of each example's among these, -1 where it is missing.
    """

    name: str
    levels: tuple[str, ...]
    codes: np.ndarray

    def frequent(self, most: int) -> list[int]:
        """Return the codes of the most frequent levels, in order."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))
        found = np.argsort(-counts, kind="stable")[:most]
        return sorted(int(code) for code in found if counts[code])


def marginals(table: Table, samples: Mapping[int, np.ndarray]) -> list[Marginal]:
    """Compare each column in the data with it in samples, on bars that the data decide."""
    return [
        compared(column, bars_of(column, values), values, {k: s[:, i] for k, s in samples.items()})
        for i, (column, values) in enumerate(table.pairs)
    ]


def compared(
    column: Column, bars: Bars, values: np.ndarray, samples: Mapping[int, np.ndarray]
) -> Marginal:
    """Compare one column in the data with it in samples."""
    data = bars.shares(values)
    sizes = [np.sum(~np.isnan(values)), *map(len, samples.values())]
    variance = data * (1 - data) * sum(1 / max(1, size) for size in sizes[:2])
    # The mean distance from 0 of a normal number, summed over bars.
    chance = float(np.sqrt(variance * 2 / np.pi).sum() / 2)
    return Marginal(column, bars, data, {k: bars.shares(s) for k, s in samples.items()}, chance)


def bars_of(column: Column, values: np.ndarray) -> Bars:
    """Return the bars for a column, whose data decide them: a model that strays has no say."""
    known = values[~np.isnan(values)]
    if column.kind in ("bit", "category"):
        return _level_bars(column, known)
    low, middle, high = np.quantile(known, [0.005, 0.5, 0.995]) if len(known) else (0.0, 0.5, 1.0)
    number = int(np.clip(2 * len(known) ** (1 / 3), 5, _MOST_BARS))
    if column.kind != "count":
        margin = 0.2 * (high - low) or 0.5
        return Bars(np.linspace(low - margin, high + margin, number + 1))
    # Between whole numbers, so that each is clearly in one bar.
    if high > _FEW and high > _SKEWED * (middle + 1):
        edges = np.rint(np.expm1(np.linspace(0, 1.1 * np.log1p(high), number + 1)))
        return Bars(np.unique(edges) - 0.5, is_log=True)
    start, high = np.floor(low) if low > _FEW else 0.0, np.ceil(high)
    step = 1.0 if high - start <= _FEW else np.ceil((high - start) / number)
    return Bars(np.arange(start, high + 2 * step, step) - 0.5)


def _level_bars(column: Column, known: np.ndarray) -> Bars:
    counts = np.bincount(known.astype(int), minlength=max(2, len(column.levels)))
    names = column.levels or tuple(map(str, range(len(counts))))
    if len(names) <= _MOST_LEVELS + 1:
        bar_of = np.arange(len(names))
    else:
        frequent = np.sort(np.argsort(-counts, kind="stable")[:_MOST_LEVELS])
        bar_of = np.full(len(names), _MOST_LEVELS)
        bar_of[frequent] = np.arange(_MOST_LEVELS)
        names = (*(names[i] for i in frequent), f"{len(names) - _MOST_LEVELS} others")
    return Bars(np.arange(len(names) + 1) - 0.5, tuple(names), bar_of)


def correlations(values: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of each pair of columns, over the rows that have both.

    Ranks are among all values of a column. Where a column does not vary it is NaN.
    """
    ranks = rankdata(values, axis=0, nan_policy="omit")
    is_known = ~np.isnan(ranks)
    ranks = np.where(is_known, ranks - np.nanmean(ranks, axis=0), 0.0)
    here = is_known.astype(float)
    number, sums, squares = here.T @ here, ranks.T @ here, (ranks**2).T @ here
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.sqrt(squares - sums**2 / number)
        found = (ranks.T @ ranks - sums * sums.T / number) / (deviation * deviation.T)
    return np.clip(np.where(np.isfinite(found), found, np.nan), -1, 1)


def largest_differences(
    data: np.ndarray, models: Sequence[np.ndarray], number: int
) -> list[tuple[int, int]]:
    """Return the pairs of columns whose correlations in any model differ most from the data's."""
    pairs = np.stack(np.triu_indices(len(data), 1), axis=1)
    distances = [np.nan_to_num(np.abs(own - data))[tuple(pairs.T)] for own in models]
    order = np.argsort(-np.max(distances, axis=0), kind="stable")[:number]
    return [(int(i), int(j)) for i, j in pairs[order]]


def principal_components(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first two principal components of points, and the shares of variance they have.

    Their signs are such that the largest loading of each is positive. One dimension has one.
    """
    centred = points - points.mean(axis=0)
    _, scales, axes = np.linalg.svd(centred, full_matrices=False)
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1, keepdims=True), axis=1)
    axes = (axes * np.where(largest < 0, -1, 1))[:2]
    return centred @ axes.T, scales[:2] ** 2 / max(np.sum(scales**2), 1e-30)


def labels_of(column: Column, values: np.ndarray) -> Labels:
    """Return the levels of a column as labels; numbers are cut into thirds."""
    is_known = ~np.isnan(values)
    if column.kind in ("bit", "category"):
        highest = int(values[is_known].max(initial=1))
        names = column.levels or tuple(map(str, range(highest + 1)))
        codes = np.where(is_known, values, -1).astype(int)
        return Labels(column.name, names, codes)
    low, high = np.quantile(values[is_known], [1 / 3, 2 / 3]) if is_known.any() else (0.0, 0.0)
    names = (f"up to {low:.3g}", f"to {high:.3g}", f"above {high:.3g}")
    codes = np.where(is_known, (values > low).astype(int) + (values > high), -1)
    return Labels(column.name, names, codes)
