"""What a column of a table is, and the numbers that a model sees of it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from aisle.data.cells import Cells
from aisle.errors import InputError
from aisle.objects import Chosen

Kind = Literal["real", "heavy-tailed", "count", "bit", "category", "share"]
KINDS: dict[str, str] = {
    "real": "finite numbers",
    "heavy-tailed": "finite numbers, some of them far out",
    "count": "whole numbers from 0",
    "bit": "0 and 1, or two levels",
    "category": "any levels",
    "share": "numbers between 0 and 1, both excluded",
}
# What may be asked of a column beside its kind.
LEFT_OUT = "ignore"

# Of a column of numbers, the share of other texts that are taken for slips.
_SLIPS = 0.1
# Levels of a text that is still a category, for a table of any length.
_MANY_LEVELS = 50
# Levels that a message names.
_MOST_LISTED = 8


@dataclass(frozen=True, repr=False)
class Column(Chosen):
    """A column of a table.

    Example:
        >>> aisle.Column("sex", "category", ("f", "m"))
        aisle.Column(name='sex', kind='category', levels=('f', 'm'))

    Attributes:
        name: as in the table's header.
        kind: real, heavy-tailed, count, bit, category or share.
        levels: of texts, in the order of their codes; empty where values are numbers. They are
            what the column can have, so a level that only held-out rows have is among them.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if self.kind not in KINDS:
            raise InputError(
                f"is {self.kind!r} for column {self.name!r}: choose from {', '.join(KINDS)}, or "
                f"{LEFT_OUT} to leave the column out",
                argument="columns",
            )

    def cell(self, value: float) -> str:
        """Return what stands in a table for a number that a model made."""
        if self.levels:
            return self.levels[round(value)]
        is_whole = self.kind in ("count", "bit", "category")
        # The shortest text that is the same number in single precision.
        return str(round(value)) if is_whole else str(np.float32(value))


def inferred(name: str, cells: Cells, kind: str | None, place: str) -> Column:
    """Say what a column is, of a kind that may be given."""
    is_text, num_present = cells.is_text, int(np.sum(~cells.is_missing))
    if not num_present:
        raise InputError(
            f"{place} has no value in column {name!r}: leave it out, by {name}={LEFT_OUT}"
        )
    known = cells.numbers[~np.isnan(cells.numbers)]
    if kind in ("category", "bit"):
        is_coded = kind == "bit" and not is_text.any() and set(known) <= {0.0, 1.0}
        return Column(name, kind, () if is_coded else _levels(cells))
    if kind is None and is_text.sum() > _SLIPS * num_present:
        levels = _levels(cells)
        return Column(name, "bit" if len(levels) == 2 else "category", levels)
    if is_text.any():
        row = int(np.argmax(is_text))
        raise InputError(
            f"{place} {cells.place(row)}, column {name!r} has {cells.values[row]!r}, which is no "
            "number: correct it, or leave it empty if it is missing; "
            f"{name}=category takes it as text"
        )
    return Column(name, kind or _numeric_kind(known))  # pyright: ignore[reportArgumentType]


def encoded(column: Column, cells: Cells, place: str) -> np.ndarray:
    """Return the numbers that a model sees of a column."""
    found, is_wrong = codes(column, cells)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise InputError(
            f"{place} {cells.place(row)}, column {column.name!r} has {cells.texts[row]!r}: "
            f"{rule_of(column)}; correct it, leave it empty if it is missing, or set another kind "
            "of column"
        )
    return found


def codes(column: Column, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of a column, and which of the cells it cannot have."""
    found = cells.numbers
    if column.levels:
        known = {level: float(code) for code, level in enumerate(column.levels)}
        found = np.array([known.get(text or "", np.nan) for text in cells.texts])
    is_possible = ~np.isnan(found) & _is_possible(column, found)
    return found, ~is_possible & ~cells.is_missing


def rule_of(column: Column) -> str:
    """Say what values of a column must be."""
    listed = ", ".join(column.levels[:_MOST_LISTED])
    if len(column.levels) > _MOST_LISTED:
        listed += f" and {len(column.levels) - _MOST_LISTED:,} more"
    if column.kind == "bit" and len(column.levels) > 2:
        return f"a bit must be of two levels, and there are {listed}"
    if listed:
        return f"it must be one of {listed}"
    return f"a {column.kind} is of {KINDS[column.kind]}"


def useless(column: Column, values: np.ndarray) -> str | None:
    """Say why nothing can be learned from the numbers of a column, or return None."""
    present = values[~np.isnan(values)]
    if len(np.unique(present)) == 1:
        return f"has one value alone, {column.cell(present[0])}"
    if len(column.levels) > max(_MANY_LEVELS, 0.5 * len(present)):
        return f"has {len(column.levels):,} different texts in {len(present):,} rows, like an id"
    is_numbered = np.array_equal(np.diff(present), np.ones(len(present) - 1))
    if column.kind == "count" and len(present) > _MANY_LEVELS and is_numbered:
        return f"counts the rows from {present[0]:g} to {present[-1]:g}, like an id"
    return None


def described(column: Column, values: np.ndarray) -> tuple[str, str, str, str]:
    """Return name, kind, levels or range, and missing values of a column, as words."""
    number = int(np.isnan(values).sum())
    missing = f"{number:,} ({number / len(values):.0%})" if number else "none"
    return column.name, column.kind, _range(column, values), missing


def _range(column: Column, values: np.ndarray) -> str:
    if column.levels:
        shown = ", ".join(column.levels[:4]) + (", ..." if len(column.levels) > 4 else "")
        return f"{len(column.levels)} levels: {shown}"
    if column.kind == "category":
        return f"codes 0 to {np.nanmax(values):g}"
    return f"{np.nanmin(values):.4g} to {np.nanmax(values):.4g}"


def _numeric_kind(values: np.ndarray) -> Kind:
    if set(np.unique(values)) <= {0.0, 1.0}:
        return "bit"
    return "count" if _is_count(values).all() else "real"


def _levels(cells: Cells) -> tuple[str, ...]:
    """Return the different texts in order; of numbers, in that of their values."""
    pairs = zip(np.nan_to_num(cells.numbers), cells.texts, strict=True)
    found = {(number, text) for number, text in pairs if text is not None}
    return tuple(text for _, text in sorted(found))


def _is_count(values: np.ndarray) -> np.ndarray:
    return (values >= 0) & (values == np.rint(values))


def _is_possible(column: Column, values: np.ndarray) -> np.ndarray:
    """Say which numbers a column of this kind can have."""
    if column.kind in ("count", "category"):
        return _is_count(values)
    if column.kind == "bit":
        return (values == 0) | (values == 1)
    return (values > 0) & (values < 1) if column.kind == "share" else np.isfinite(values)
