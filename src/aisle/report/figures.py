"""The plots of a page that belong to its data: columns, correlations, latents, conditions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from aisle.data import Column, Table
from aisle.models import encode
from aisle.report import drawing
from aisle.report.columns import (
    Labels,
    Marginal,
    bars_of,
    compared,
    correlations,
    largest_differences,
    marginals,
    principal_components,
)
from aisle.report.comparison import Group, Member
from aisle.report.words import joined, number

# Columns with a plot of their own, and in the plot of correlations.
_MOST_PLOTS, _MOST_CORRELATED = 20, 24
# Pairs of columns that are listed.
_NUM_PAIRS = 8
# Levels of a condition, and columns, that are drawn by it.
_MOST_CONDITIONS, _MOST_BY_CONDITION = 6, 4
# Labels with a mark of their own; examples with others are grey.
_MOST_LABELS = 12

# Samples of each run, by its style.
Samples = Mapping[int, np.ndarray]


class Plot(NamedTuple):
    """A drawing with its caption, and a note on it."""

    caption: str
    note: str
    drawing: str


def features(data: np.ndarray, samples: Samples) -> Table:
    """Return an array as a table: whole numbers are taken for such if they are in samples too."""
    own = np.concatenate([data, *samples.values()])
    is_whole, is_bit = np.all(own == np.rint(own), axis=0), np.all((own == 0) | (own == 1), axis=0)
    is_count = is_whole & np.all(own >= 0, axis=0)
    kinds = np.where(is_bit, "bit", np.where(is_count, "count", "real")).tolist()
    columns = tuple(Column(f"feature {i + 1}", kind) for i, kind in enumerate(kinds))
    return Table(np.asarray(data, np.float64), columns)


def of_columns(group: Group, table: Table, samples: Samples) -> dict[str, Any]:
    """Draw the columns in which data and samples differ the most, and the others in one strip."""
    found = marginals(table, samples)
    order = sorted(range(len(found)), key=lambda i: -found[i].excess)
    chosen, rest = (sorted(order[:_MOST_PLOTS]), [found[i] for i in order[_MOST_PLOTS:]])
    about = f"in {group.data} and in samples of {group.names}"
    names = [one.column.name for one in rest]
    return {
        "number": len(found),
        "plots": [_plot(found[i], f"Column {found[i].column.name} {about}.") for i in chosen],
        "strip": drawing.strip(rest, f"Differences of other columns {about}.") if rest else "",
        "rest": joined(names),
        "correlations": _of_correlations(group, table, samples, order) if len(found) > 1 else None,
    }


def _plot(one: Marginal, label: str, caption: str | None = None) -> Plot:
    differences = joined([number(value) for value in one.differences.values()])
    note = f"{differences} ({number(one.chance)} by chance)" if differences else ""
    return Plot(caption or one.column.name, note, drawing.marginal(one, label))


def _of_correlations(
    group: Group, table: Table, samples: Samples, order: Sequence[int]
) -> dict[str, Any]:
    chosen = sorted(order[:_MOST_CORRELATED])
    names = [table.columns[i].name for i in chosen]
    titles = {m.style: m.name for m in group.members}
    data = correlations(table.values[:, chosen])
    models = {style: correlations(own[:, chosen]) for style, own in samples.items()}
    pairs = largest_differences(data, list(models.values()), _NUM_PAIRS) if models else []
    found, runs = [data, *models.values()], [titles[style] for style in models]
    places = ["the data", *(f"samples of {name}" for name in runs)]
    about = f"Correlations of the columns of {group.data}"
    return {
        "number": len(names),
        "maps": [
            drawing.heat_map(names, own, f"{about} in {place}.")
            for own, place in zip(found, places, strict=True)
        ],
        "titles": ["data", *runs],
        "pairs": [
            (f"{names[i]}, {names[j]}", [number(own[i, j]) for own in found]) for i, j in pairs
        ],
    }


def of_latents(member: Member) -> dict[str, Any] | None:
    """Draw the encoder's means of held-out examples, coloured by their labels, or return None."""
    weights = member.run.weights
    if weights is None or weights.examples is None or len(weights.examples) < 3:
        return None
    means = encode(weights.proposal, weights.examples, weights.context)
    leaves = [np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(means)]
    points = np.concatenate(leaves, axis=1).astype(np.float64)
    if not np.isfinite(points).all() or not np.ptp(points, axis=0).any():
        return None
    places, shares = principal_components(points)
    key, codes = _marks(weights.labels, len(points), member.style)
    name = weights.labels.name if weights.labels else ""
    by = f", coloured by {name}" if name else ""
    label = f"Encoder's means of held-out examples of {member.name} in two dimensions{by}."
    return {"name": name, "key": key, "drawing": drawing.latents(places, shares, codes, label)}


def _marks(
    labels: Labels | None, number: int, style: int
) -> tuple[list[tuple[str, str, str]], np.ndarray]:
    """Return the key, as variable of the colour, symbol and name, and the mark of each example."""
    if labels is None:
        return [], np.full(number, style)
    shown = labels.frequent(_MOST_LABELS)
    codes = np.full(number, -1)
    for mark, code in enumerate(shown):
        codes[labels.codes == code] = mark
    key = [(*drawing.mark_in_text(mark), labels.levels[code]) for mark, code in enumerate(shown)]
    if (codes < 0).any():
        key.append((*drawing.mark_in_text(-1), "others or missing"))
    return key, codes


def by_condition(
    table: Table, of_rows: Labels, samples: np.ndarray, of_samples: np.ndarray, member: Member
) -> dict[str, list[Plot]]:
    """Draw the columns that differ the most between data and samples of the same condition.

    Args:
        table: the data.
        of_rows: the condition of each row.
        samples: of the member's model.
        of_samples: the code of the condition that each was drawn for.
        member: the run.
    """
    codes = of_rows.frequent(_MOST_CONDITIONS)
    found = []
    for i, (column, values) in enumerate(table.pairs):
        bars = bars_of(column, values)
        drawn = {code: {member.style: samples[of_samples == code, i]} for code in codes}
        found.append([compared(column, bars, values[of_rows.codes == c], drawn[c]) for c in codes])
    found.sort(key=lambda row: -max(one.excess for one in row))
    shown = {}
    for row in found[:_MOST_BY_CONDITION]:
        name, plots = row[0].column.name, []
        for one, code in zip(row, codes, strict=True):
            caption = f"{of_rows.name}: {of_rows.levels[code]}"
            label = f"Column {name}, {caption}, in data and samples of {member.name}."
            plots.append(_plot(one, label, caption))
        shown[name] = plots
    return shown
