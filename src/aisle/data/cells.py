"""What stands in a table as it was read, from files and frames, before anybody says what it means.

CSV is read by Python's own module, so that a mistake is reported by line and column; Parquet by
pandas and .h5ad by h5py, where these are installed. Frames of pandas and polars are taken as they
are.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aisle.data.h5ad import read_h5ad
from aisle.errors import InputError, first_line

TABLE_ENDINGS = (".csv", ".tsv", ".parquet", ".h5ad")

# What stands for a missing value in text.
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


@dataclass(frozen=True)
class Cells:
    """A column as it was read.

    Attributes:
        values: an array of numbers, or a list of anything with None where a value is missing.
        lines: where each value stands in its file, for messages.
    """

    values: np.ndarray | list[Any]
    lines: Sequence[int] | None = None

    @cached_property
    def is_missing(self) -> np.ndarray:
        """Say which values are missing."""
        if isinstance(self.values, list):
            return np.array([value is None for value in self.values], bool)
        return np.isnan(self.values)

    @cached_property
    def numbers(self) -> np.ndarray:
        """Return the values as finite numbers, NaN for all else."""
        if isinstance(self.values, list):
            found = np.array([_number(value) for value in self.values], np.float64)
        else:
            found = self.values.astype(np.float64)
        return np.where(np.isfinite(found), found, np.nan)

    @property
    def is_text(self) -> np.ndarray:
        """Say which values are there and are no numbers."""
        return np.isnan(self.numbers) & ~self.is_missing

    @property
    def texts(self) -> list[str | None]:
        """Return the values as texts, whole numbers without a point."""
        values = self.values
        if isinstance(values, list):
            return [None if value is None else str(value) for value in values]
        whole = [f"{v:.0f}" if v == round(v) else str(v) for v in np.nan_to_num(values).tolist()]
        return [None if m else text for m, text in zip(self.is_missing, whole, strict=True)]

    def place(self, row: int) -> str:
        """Say where a value stands."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]}"


class Raw(NamedTuple):
    """A table as it was read.

    Attributes:
        columns: that a model can be of.
        labels: what else is known of the rows.
        place: what to call the table.
        kind: of all columns, if the file says so.
    """

    columns: dict[str, Cells]
    labels: dict[str, Cells]
    place: str
    kind: str | None = None


def read_cells(source: Any) -> Raw:
    """Read whatever a table is: the path of a file, a frame, or a dictionary of columns."""
    if isinstance(source, Raw):
        return source
    if isinstance(source, str | Path):
        return _of_file(Path(source).expanduser())
    is_frame = hasattr(source, "columns") and hasattr(source, "__getitem__")
    if not isinstance(source, Mapping) and not is_frame:
        raise InputError(
            f"is a {type(source).__name__}: give a path, a DataFrame or a dictionary of columns",
            argument="source",
        )
    names = source if isinstance(source, Mapping) else list(source.columns)
    return Raw({str(name): _cells(source[name]) for name in names}, {}, "the table")


def _of_file(path: Path) -> Raw:
    if not path.is_file():
        raise InputError(f"{path} is not a file: give the path of a table")
    ending = path.suffix.lower()
    if ending == ".parquet":
        return read_cells(_parquet(path))._replace(place=str(path))
    if ending == ".h5ad":
        values, names, labels = read_h5ad(path)
        columns = {name: Cells(values[:, i]) for i, name in enumerate(names)}
        # Genes of which 0 and 1 were counted are counts like all others.
        is_counts = bool(np.all((values >= 0) & (values == np.rint(values))))
        beside = {name: _cells(column) for name, column in labels.items()}
        return Raw(columns, beside, str(path), "count" if is_counts else "real")
    return Raw(_of_csv(path), {}, str(path))


def _of_csv(path: Path) -> dict[str, Cells]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter)
            numbered = [(reader.line_num, row) for row in reader if row]
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not text in UTF-8 (byte {error.start}): save it again in UTF-8"
        ) from None
    except (csv.Error, OSError) as error:
        raise InputError(f"{path} cannot be read as a table ({error}): save it again") from None
    if len(numbered) < 2:
        raise InputError(f"{path} has no rows below its header: give a table with both")
    lines, rows = zip(*numbered, strict=True)
    header = [name.strip() for name in rows[0]]
    _check_header(header, lines[0], path)
    for line, row in numbered[1:]:
        if len(row) != len(header):
            raise InputError(
                f"{path} line {line} has {len(row)} fields but the header has {len(header)}: put "
                "the right number there, and text with commas between quotation marks"
            )
    columns = zip(*rows[1:], strict=True)
    return {
        name: Cells(
            [None if c.strip().lower() in _MISSING else c.strip() for c in cells], lines[1:]
        )
        for name, cells in zip(header, columns, strict=True)
    }


def _check_header(header: list[str], line: int, path: Path) -> None:
    doubled = next((name for name in header if header.count(name) > 1), None)
    if doubled is not None:
        raise InputError(f"{path} line {line} names column {doubled!r} twice: rename one of them")
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        raise InputError(
            f"{path} line {line} has no comma, but {header[0]!r}: separate columns by commas, or "
            "by tabs in a .tsv file"
        )
    if all(not np.isnan(_number(name)) for name in header):
        raise InputError(
            f"{path} line {line} has numbers only, {', '.join(header[:3])}...: put the names of "
            "the columns there"
        )


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
        raise InputError(
            f"{path} cannot be read as Parquet ({first_line(error)}): save it again"
        ) from None


def _cells(values: Any) -> Cells:
    """Return a column of a frame, or whatever numpy takes for one."""
    array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    if array.dtype.kind in "buif":
        return Cells(array)
    listed = values.to_list() if hasattr(values, "to_list") else array.tolist()
    return Cells([None if _is_missing(value) else value for value in listed])


def _is_missing(value: Any) -> bool:
    # pandas' own marks are equal to nothing, not even themselves, or say so by their names.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _number(value: Any) -> float:
    """Return a value as a number, NaN if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
