"""Add to a model the data that it is shown with, and what is known of their examples."""

import dataclasses
from pathlib import Path

import numpy as np

from aisle.data import Dataset, read_table, spread
from aisle.data.labels import known_labels
from aisle.errors import InputError
from aisle.report.columns import Labels, labels_of
from aisle.report.reading import Weights

# Held-out examples of each run.
_NUM_EXAMPLES = 1000


def with_data(
    weights: Weights, dataset: Dataset, label: str | None = None, data_dir: Path | None = None
) -> Weights:
    """Return a model with held-out examples, their labels, and the table that they are of.

    Args:
        weights: the model.
        dataset: its data.
        label: the column that labels examples; None for the first condition or category.
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
    rows, labels = dataclasses.replace(held_out, rows=None), _labels(dataset, label)
    return weights._replace(
        table=table,
        rows_context=rows.context_of(np.arange(len(rows))),
        labels=labels and labels._replace(codes=labels.codes[held_out.numbers(chosen)]),
    )


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


def _labels(dataset: Dataset, label: str | None) -> Labels | None:
    """Return the labels of all rows of a table."""
    table = dataset.table
    assert table is not None
    if label is None:
        kinds = [column.kind for column in table.columns]
        place = next((kinds.index(kind) for kind in ("category", "bit") if kind in kinds), None)
        return None if place is None else labels_of(table.columns[place], table.values[:, place])
    names = [column.name for column in table.columns]
    if label not in names:
        # Left out of the model, but still in its file.
        table = read_table(dataset.source)
        names = [column.name for column in table.columns]
    if label not in names:
        raise InputError(
            f"is {label!r}: choose from {', '.join(names)}, or leave it out", argument="label"
        )
    place = names.index(label)
    return labels_of(table.columns[place], table.values[:, place])
