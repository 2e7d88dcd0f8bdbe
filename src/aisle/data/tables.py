"""Tables: which columns a model is of, which it is given, and how much rows count."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aisle.context import Context
from aisle.data.cells import Cells, Raw, read_cells
from aisle.data.columns import KINDS, LEFT_OUT, Column, described, encoded, inferred, useless
from aisle.errors import InputError

# Kinds by names, or the columns of another table.
Kinds = Mapping[str, str] | Sequence[Column] | None

# An exposure that is no column, unless one is called so.
TOTAL = "total"


class Table(NamedTuple):
    """A table as a model sees it.

    Example:
        >>> table = aisle.read_table({"age": [31, 45, None], "sex": ["f", "m", "f"]})
        >>> table.summary()[0]
        ('age', 'count', '31 to 45', '1 (33%)')

    Attributes:
        values: a row for each example and a number for each column; NaN is missing.
        columns: what the columns are.
        remarks: what a user should know, such as columns that were left out.
        conditions: what the columns are that a model is given; `context.condition` has a number
            for each, in the units of the data.
        context: conditions and exposures of the rows, or None.
        weights: how much the rows count in training, or None.
    """

    values: np.ndarray
    columns: tuple[Column, ...]
    remarks: tuple[str, ...] = ()
    conditions: tuple[Column, ...] = ()
    context: Context | None = None
    weights: np.ndarray | None = None

    @property
    def pairs(self) -> list[tuple[Column, np.ndarray]]:
        """Each column with its numbers."""
        return list(zip(self.columns, self.values.T, strict=True))

    @property
    def given(self) -> list[tuple[Column, np.ndarray]]:
        """Each column that a model is given, with its numbers."""
        if self.context is None or self.context.condition is None:
            return []
        return list(zip(self.conditions, self.context.condition.T, strict=True))

    def summary(self) -> list[tuple[str, str, str, str]]:
        """Return name, kind, levels or range, and missing values of each column, as words."""
        return [described(*pair) for pair in self.pairs]

    def summary_of_conditions(self) -> list[tuple[str, str, str, str]]:
        """Return the same of the columns that a model is given."""
        return [described(*pair) for pair in self.given]


def read_table(
    source: Any,
    columns: Kinds = None,
    *,
    condition: Sequence[str | Column] = (),
    exposure: str | None = None,
    weights: str | None = None,
) -> Table:
    """Read a table, and say what its columns are.

    Example:
        >>> table = aisle.read_table({"age": [31, 45, None], "sex": ["f", "m", "f"]})
        >>> table.columns[1]
        aisle.Column(name='sex', kind='bit', levels=('f', 'm'))
        >>> table.values.tolist()
        [[31.0, 0.0], [45.0, 1.0], [nan, 0.0]]

    Args:
        source: the path of a .csv, .tsv, .parquet or .h5ad file, a DataFrame of pandas or polars,
            or a dictionary of columns. An .h5ad has a column for each gene, and the columns of its
            obs may be conditions, exposures and weights.
        columns: kinds of columns by their names, where they are not what they look like; "ignore"
            leaves one out. Or the columns of another table, which this one must then have.
        condition: names of columns that a model is given and is not of, or such columns of another
            table.
        exposure: the column that the means of counts are in proportion to; "total" for the sum of
            a row's counts.
        weights: the column that says how much rows count in training.
    """
    raw = read_cells(source)
    wanted = dict(columns) if isinstance(columns, Mapping) else {}
    known = None if isinstance(columns, Mapping) else columns
    _check_known(raw, wanted, "columns")
    conditions, given = _conditions(raw, condition, wanted)
    is_total = exposure == TOTAL and TOTAL not in {**raw.labels, **raw.columns}
    asked = {"exposure": None if is_total else exposure, "weights": weights}
    roles = {role: name for role, name in asked.items() if name is not None}
    beside = {role: _beside(raw, name, role) for role, name in roles.items()}
    apart = {column.name for column in conditions} | set(roles.values())
    if known is not None:
        _check_known(raw, [column.name for column in known], "columns")
        found = [(c, encoded(c, _cells_of(raw, c.name), raw.place)) for c in known]
        remarks = []
    else:
        found, remarks = _modelled(raw, wanted, apart)
    modelled, arrays = zip(*found, strict=True)
    values = np.stack(arrays, axis=1)
    if is_total:
        beside["exposure"] = _totals(raw, modelled, values)
    context = None
    if conditions or exposure is not None:
        context = Context(condition=given, exposure=beside.get("exposure"))
    return Table(values, modelled, tuple(remarks), conditions, context, beside.get("weights"))


def parse_kinds(text: str) -> dict[str, str]:
    """Return the kinds of columns that are typed as NAME=KIND,NAME=KIND or in a JSON file."""
    if text.lower().endswith(".json"):
        try:
            found = json.loads(Path(text).read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {text} ({error})", argument="columns") from None
        if not isinstance(found, dict):
            raise InputError(f"{text} holds no names with their kinds", argument="columns")
        return {str(name): str(kind) for name, kind in found.items()}
    pairs = [item.rpartition("=") for item in text.split(",") if item.strip()]
    for name, _, kind in pairs:
        if not name.strip() or kind.strip() not in (*KINDS, LEFT_OUT):
            raise InputError(
                f"is {text!r}: give NAME=KIND, separated by commas; kinds are "
                f"{', '.join(KINDS)} and {LEFT_OUT}",
                argument="columns",
            )
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def check_name(name: str, names: Iterable[str], place: str, argument: str) -> None:
    """Refuse a name that a table has not, with one that it may be."""
    names = list(names)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f": it has {', '.join(names)}"
        raise InputError(f"is {name!r}, but {place} has no such column{hint}", argument=argument)


def _modelled(
    raw: Raw, wanted: Mapping[str, str], apart: set[str]
) -> tuple[list[tuple[Column, np.ndarray]], list[str]]:
    """Return the columns that a model is of with their numbers, and remarks on those left out."""
    found, remarks = [], []
    for name, cells in raw.columns.items():
        if name in apart or wanted.get(name) == LEFT_OUT:
            continue
        column = inferred(name, cells, wanted.get(name, raw.kind), raw.place)
        values = encoded(column, cells, raw.place)
        reason = None if name in wanted else useless(column, values)
        if reason is None:
            found.append((column, values))
        else:
            remarks.append(f"column {name!r} {reason}: it is left out")
    if not found:
        raise InputError(f"{raw.place} has no column to learn from: {'; '.join(remarks)}")
    return found, remarks


def _conditions(
    raw: Raw, condition: Sequence[str | Column], wanted: Mapping[str, str]
) -> tuple[tuple[Column, ...], np.ndarray | None]:
    """Return the columns that a model is given, and their numbers."""
    names = [c.name if isinstance(c, Column) else c for c in condition]
    _check_known(raw, names, "condition")
    if not names:
        return (), None
    columns, arrays = [], []
    for given, name in zip(condition, names, strict=True):
        cells = _cells_of(raw, name)
        known = isinstance(given, Column)
        column = given if known else inferred(name, cells, wanted.get(name), raw.place)
        _check_whole(cells, name, "condition", raw.place)
        columns.append(column)
        arrays.append(encoded(column, cells, raw.place))
    return tuple(columns), np.stack(arrays, axis=1)


def _beside(raw: Raw, name: str, role: str) -> np.ndarray:
    """Return the numbers of exposures, or of weights, which may be zero."""
    _check_known(raw, [name], role)
    cells = _cells_of(raw, name)
    _check_whole(cells, name, role, raw.place)
    is_right = cells.numbers >= 0 if role == "weights" else cells.numbers > 0
    if not is_right.all():
        row = int(np.argmin(is_right))
        rule = "weights are numbers from 0 on" if role == "weights" else "exposures are above 0"
        raise InputError(
            f"{raw.place} {cells.place(row)}, column {name!r} has {cells.texts[row]!r}: {rule}; "
            "correct it, or leave the row out"
        )
    return cells.numbers


def _totals(raw: Raw, columns: Sequence[Column], values: np.ndarray) -> np.ndarray:
    """Return the sum of each row's counts."""
    counts = [i for i, column in enumerate(columns) if column.kind == "count"]
    if not counts:
        raise InputError(f"is {TOTAL!r}, but {raw.place} has no counts", argument="exposure")
    totals = values[:, counts].sum(axis=1)
    is_wrong = ~(totals > 0)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        cells = _cells_of(raw, columns[counts[0]].name)
        reason = "has no counts" if totals[row] == 0 else "misses some counts"
        raise InputError(
            f"{raw.place} {cells.place(row)} {reason}, so its total is no exposure: leave the row "
            "out, or name a column of exposures"
        )
    return totals


def _cells_of(raw: Raw, name: str) -> Cells:
    return raw.columns[name] if name in raw.columns else raw.labels[name]


def _check_known(raw: Raw, names: Iterable[str], argument: str) -> None:
    for name in names:
        check_name(name, {**raw.columns, **raw.labels}, raw.place, argument)


def _check_whole(cells: Cells, name: str, role: str, place: str) -> None:
    """Refuse missing values where none may be."""
    if cells.is_missing.any():
        row = int(np.argmax(cells.is_missing))
        raise InputError(
            f"{place} {cells.place(row)}, column {name!r} has no value, but as {role} it needs "
            "one: fill it in, or leave the row out"
        )
