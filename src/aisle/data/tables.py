"""Tables: what each column is, and the numbers that a model sees of it.

CSV is read by Python's own module, so that a mistake is reported by line and column; Parquet by
pandas, where it is installed. Frames of pandas and polars are taken as they are.
"""

import csv
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

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
TABLE_ENDINGS = (".csv", ".tsv", ".parquet")
# What may be asked of a column beside its kind.
_LEFT_OUT = "ignore"

# What stands for a missing value in text.
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
# Of a column of numbers, the share of other texts that are taken for slips.
_SLIPS = 0.1
# Levels of a text that is still a category, for a table of any length.
_MANY_LEVELS = 50


@dataclass(frozen=True, repr=False)
class Column(Chosen):
    """A column of a table.

    Example:
        >>> aisle.Column("sex", "category", ("f", "m"))
        aisle.Column(name='sex', kind='category', levels=('f', 'm'))

    Attributes:
        name: as in the table's header.
        kind: real, heavy-tailed, count, bit, category or share.
        levels: of texts, in the order of their codes; empty where values are numbers.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if self.kind not in KINDS:
            raise InputError(
                f"is {self.kind!r} for column {self.name!r}: choose from {', '.join(KINDS)}, or "
                f"{_LEFT_OUT} to leave the column out",
                argument="columns",
            )


# Kinds by names, or the columns of another table.
Kinds = Mapping[str, str] | Sequence[Column] | None


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
    """

    values: np.ndarray
    columns: tuple[Column, ...]
    remarks: tuple[str, ...] = ()

    def summary(self) -> list[tuple[str, str, str, str]]:
        """Return name, kind, levels or range, and missing values of each column, as words."""
        return [
            (column.name, column.kind, _described(column, values), _missing_words(values))
            for column, values in zip(self.columns, self.values.T, strict=True)
        ]


def read_table(source: Any, columns: Kinds = None) -> Table:
    """Read a table, and say what its columns are.

    Example:
        >>> table = aisle.read_table({"age": [31, 45, None], "sex": ["f", "m", "f"]})
        >>> table.columns[1]
        aisle.Column(name='sex', kind='bit', levels=('f', 'm'))
        >>> table.values.tolist()
        [[31.0, 0.0], [45.0, 1.0], [nan, 0.0]]

    Args:
        source: the path of a .csv, .tsv or .parquet file, a DataFrame of pandas or polars, or a
            dictionary of columns.
        columns: kinds of columns by their names, where they are not what they look like; "ignore"
            leaves one out. Or the columns of another table, which this one must then have.
    """
    raw, place = _raw(source)
    if columns is not None and not isinstance(columns, Mapping):
        _check_known(raw, [column.name for column in columns], place)
        values = [_encoded(column, raw[column.name], place) for column in columns]
        return Table(np.stack(values, axis=1), tuple(columns))
    wanted = dict(columns or {})
    _check_known(raw, wanted, place)
    found, remarks = [], []
    for name, cells in raw.items():
        if wanted.get(name) == _LEFT_OUT:
            continue
        column = _inferred(name, cells, wanted.get(name), place)
        values = _encoded(column, cells, place)
        reason = None if name in wanted else _useless(column, values, cells)
        if reason is None:
            found.append((column, values))
        else:
            remarks.append(f"column {name!r} {reason}: it is left out")
    if not found:
        raise InputError(f"{place} has no column to learn from: {'; '.join(remarks)}")
    table, arrays = zip(*found, strict=True)
    return Table(np.stack(arrays, axis=1), table, tuple(remarks))


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
        if not name.strip() or kind.strip() not in (*KINDS, _LEFT_OUT):
            raise InputError(
                f"is {text!r}: give NAME=KIND, separated by commas; kinds are "
                f"{', '.join(KINDS)} and {_LEFT_OUT}",
                argument="columns",
            )
    return {name.strip(): kind.strip() for name, _, kind in pairs}


class _Cells(NamedTuple):
    """A column as it was read: texts or numbers, None where a value is missing."""

    values: list[Any]
    # Where the first value stands in its file, for messages.
    first_line: int | None


def _raw(source: Any) -> tuple[dict[str, _Cells], str]:
    """Return the columns of whatever a table is, and what to call it."""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if not path.is_file():
            raise InputError(f"{path} is not a file: give the path of a table")
        if path.suffix.lower() == ".parquet":
            return _of_frame(_parquet(path)), str(path)
        return _of_csv(path), str(path)
    if isinstance(source, Mapping):
        return {str(k): _Cells(_plain(v), None) for k, v in source.items()}, "the table"
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):
        return _of_frame(source), "the table"
    raise InputError(
        f"is a {type(source).__name__}: give a path, a DataFrame or a dictionary of columns",
        argument="source",
    )


def _of_csv(path: Path) -> dict[str, _Cells]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, delimiter=delimiter))
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not text in UTF-8 (byte {error.start}): save it again in UTF-8"
        ) from None
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a table ({error}): save it again") from None
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise InputError(f"{path} has no rows below its header: give a table with both")
    header = [name.strip() for name in rows[0]]
    doubled = next((name for name in header if header.count(name) > 1), None)
    if doubled is not None:
        raise InputError(f"{path} line 1 names column {doubled!r} twice: rename one of them")
    if all(_number(name) is not None for name in header):
        raise InputError(
            f"{path} line 1 has numbers only, {', '.join(header[:3])}...: put the names of the "
            "columns there"
        )
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise InputError(
                f"{path} line {line} has {len(row)} fields but the header has {len(header)}: put "
                "the right number there, and text with commas between quotation marks"
            )
    columns = zip(*rows[1:], strict=True)
    return {
        name: _Cells([None if c.strip().lower() in _MISSING else c.strip() for c in cells], 2)
        for name, cells in zip(header, columns, strict=True)
    }


def _parquet(path: Path) -> Any:
    try:
        import pandas
    except ImportError:
        raise InputError(
            f"{path} needs pandas to be read: install aisle[tables], or save it as .csv"
        ) from None
    try:
        return pandas.read_parquet(path)
    except (ImportError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read as Parquet ({reason}): save it again") from None


def _of_frame(frame: Any) -> dict[str, _Cells]:
    names = list(frame.columns)
    return {str(name): _Cells(_plain(frame[name]), None) for name in names}


def _plain(values: Any) -> list[Any]:
    """Return a column as Python's values, None where one is missing."""
    listed = values.to_list() if hasattr(values, "to_list") else np.asarray(values).tolist()
    return [None if _is_missing(value) else value for value in listed]


def _is_missing(value: Any) -> bool:
    # pandas' own marks are equal to nothing, not even themselves, or say so by their names.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _number(value: Any) -> float | None:
    """Return a value as a number, or None if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _inferred(name: str, cells: _Cells, kind: str | None, place: str) -> Column:
    """Say what a column is, of a kind that may be given."""
    present = [value for value in cells.values if value is not None]
    if not present:
        raise InputError(
            f"{place} has no value in column {name!r}: leave it out, by {name}={_LEFT_OUT}"
        )
    numbers = [_number(value) for value in present]
    num_texts = sum(number is None for number in numbers)
    if kind in ("category", "bit"):
        is_coded = num_texts == 0 and all(n == int(n) and n >= 0 for n in numbers if n is not None)
        if is_coded and (kind == "category" or set(numbers) <= {0.0, 1.0}):
            return Column(name, kind)
        return Column(name, kind, _levels(present))
    if kind is None and num_texts > _SLIPS * len(present):
        levels = _levels(present)
        return Column(name, "bit" if len(levels) == 2 else "category", levels)
    if num_texts:
        _refuse_slip(name, cells, place)
    return Column(name, kind or _numeric_kind(np.array(numbers, float)))  # pyright: ignore


def _numeric_kind(values: np.ndarray) -> Kind:
    if set(np.unique(values)) <= {0.0, 1.0}:
        return "bit"
    return "count" if np.all((values >= 0) & (values == np.rint(values))) else "real"


def _levels(present: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted({str(value) for value in present}))


def _refuse_slip(name: str, cells: _Cells, place: str) -> None:
    """Complain about the first text in a column of numbers."""
    for i, value in enumerate(cells.values):
        if value is not None and _number(value) is None:
            where = f"row {i}" if cells.first_line is None else f"line {cells.first_line + i}"
            raise InputError(
                f"{place} {where}, column {name!r} has {value!r}, which is no number: "
                f"correct it, or leave it empty if it is missing; {name}=category takes it as text"
            )


def _encoded(column: Column, cells: _Cells, place: str) -> np.ndarray:
    """Return the numbers that a model sees of a column."""
    codes = {level: float(code) for code, level in enumerate(column.levels)}
    found = np.full(len(cells.values), np.nan)
    for i, value in enumerate(cells.values):
        if value is None:
            continue
        number = codes.get(str(value)) if codes else _number(value)
        if number is None:
            where = f"row {i}" if cells.first_line is None else f"line {cells.first_line + i}"
            rule = f"one of {', '.join(column.levels)}" if codes else "a finite number"
            raise InputError(
                f"{place} {where}, column {column.name!r} has {value!r}: it must be {rule}, or "
                "empty if it is missing"
            )
        found[i] = number
    return found


def _useless(column: Column, values: np.ndarray, cells: _Cells) -> str | None:
    """Say why nothing can be learned from a column, or return None."""
    present = values[~np.isnan(values)]
    if len(np.unique(present)) == 1:
        return f"has one value alone, {next(v for v in cells.values if v is not None)!r}"
    if len(column.levels) > _MANY_LEVELS and len(column.levels) > 0.5 * len(present):
        return f"has {len(column.levels):,} different texts in {len(present):,} rows, like an id"
    is_numbered = np.array_equal(np.diff(present), np.ones(len(present) - 1))
    if column.kind == "count" and len(present) > _MANY_LEVELS and is_numbered:
        return f"counts the rows from {present[0]:g} to {present[-1]:g}, like an id"
    return None


def _check_known(raw: Mapping[str, Any], names: Iterable[str], place: str) -> None:
    for name in names:
        if name not in raw:
            near = difflib.get_close_matches(name, raw, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f": it has {', '.join(raw)}"
            raise InputError(f"{place} has no column {name!r}{hint}", argument="columns")


def _described(column: Column, values: np.ndarray) -> str:
    present = values[~np.isnan(values)]
    if column.levels:
        shown = ", ".join(column.levels[:4]) + (", ..." if len(column.levels) > 4 else "")
        return f"{len(column.levels)} levels: {shown}"
    if column.kind == "category":
        return f"codes 0 to {present.max():g}"
    return f"{present.min():.4g} to {present.max():.4g}"


def _missing_words(values: np.ndarray) -> str:
    number = int(np.isnan(values).sum())
    return f"{number:,} ({number / len(values):.0%})" if number else "none"
