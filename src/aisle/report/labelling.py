"""Add to a model the data that it is shown with, and what is known of their examples."""

import dataclasses
from pathlib import Path

import numpy as np

from aisle.data import Dataset, Table, spread
from aisle.data.cells import read_cells
from aisle.data.columns import encoded, inferred
from aisle.data.labels import known_labels
from aisle.data.tables import check_name
from aisle.errors import InputError
from aisle.report.columns import Labels, labels_of
from aisle.report.reading import Weights

# Held-out examples of each run.
_NUM_EXAMPLES = 1000
# Kinds of columns that label best.
_LEVELLED = ("category", "bit")


def with_data(
    weights: Weights, dataset: Dataset, label: str | None = None, data_dir: Path | None = None
) -> Weights:
    """Return a model with held-out examples, their labels, and the table that they are of.

    Args:
        weights: the model.
        dataset: its data.
        label: the column that labels examples; None for a condition, or else the first category.
        data_dir: where the named data sets are.
    """
    table, held_out = dataset.table, dataset.test
    if table is not None and dataset.valid is not None:
        # Tables are small: all rows that were not trained on.
        both = [part.numbers(np.arange(len(part))) for part in (dataset.valid, dataset.test)]
        held_out = dataclasses.replace(held_out, rows=np.sort(np.concatenate(both)))
    chosen = spread(len(held_out), _NUM_EXAMPLES)
    weights = weights._replace(
        examples=held_out.observe(chosen), context=held_out.context_of(chosen)
    )
    if table is None:
        return weights._replace(labels=_digits(dataset, label, data_dir, chosen))
    labels = _usual(table) if label is None else _named(table, dataset.source, label)
    if labels is not None:
        labels = labels._replace(codes=labels.codes[held_out.numbers(chosen)])
    return weights._replace(table=table, labels=labels)


def _digits(
    dataset: Dataset, label: str | None, data_dir: Path | None, chosen: np.ndarray
) -> Labels | None:
    """Return the labels of test examples of a named data set, where they are known."""
    if label is not None:
        raise InputError(
            f"is {label!r}, but {dataset.source} is no table: leave it out", argument="label"
        )
    if Path(dataset.source).stem == dataset.name:
        # A file that is called like a named data set.
        return None
    digits = known_labels(dataset.name, data_dir)
    return None if digits is None else Labels("digit", tuple("0123456789"), digits[chosen])


def _usual(table: Table) -> Labels | None:
    """Label rows by the first condition or column that has levels, or else any condition."""
    with_levels = [one for one in table.given if one[0].kind in _LEVELLED]
    for kind in _LEVELLED:
        with_levels += [pair for pair in table.pairs if pair[0].kind == kind]
    found = next(iter(with_levels + table.given), None)
    return None if found is None else labels_of(*found)


def _named(table: Table, source: str, label: str) -> Labels:
    """Label rows by a column of the model, by a condition, or by another one of the file."""
    for column, values in table.pairs + table.given:
        if column.name == label:
            return labels_of(column, values)
    raw = read_cells(source)
    every = {**raw.labels, **raw.columns}
    check_name(label, every, raw.place, "label")
    column = inferred(label, every[label], None, raw.place)
    return labels_of(column, encoded(column, every[label], raw.place))
