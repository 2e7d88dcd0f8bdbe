"""From what users pass, arrays or frames, to numbers that models see, and back."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import validate_data

from aisle.data.tables import Column, read_table
from aisle.errors import InputError
from aisle.models import FAMILIES
from aisle.runs.forms import FAMILY_OF

# Copies of rows at the most, beside one of each; weights make up for the rest.
_MOST_COPIES = 100_000


def is_frame(x: Any) -> bool:
    """Say whether x is a DataFrame."""
    return hasattr(x, "columns") and hasattr(x, "dtypes")


def learn(
    estimator: Any, x: Any, likelihood: str | Mapping[str, str]
) -> tuple[np.ndarray, tuple[Column, ...] | None, tuple[str, ...]]:
    """Return the numbers of x, its columns if it is a frame, and the family of each column."""
    if isinstance(likelihood, str) and likelihood not in ("auto", *FAMILIES):
        raise InputError(
            f"is {likelihood!r}: choose from auto, {', '.join(FAMILIES)}, or give the kinds of a "
            "frame's columns as {'age': 'real'}",
            argument="likelihood",
        )
    if is_frame(x) and (likelihood == "auto" or not isinstance(likelihood, str)):
        validate_data(estimator, x, skip_check_array=True)
        _check_rows(x, 2)
        kinds = {} if isinstance(likelihood, str) else dict(likelihood)
        values, columns = _whole_table(x, kinds)
        return values, columns, tuple(FAMILY_OF[column.kind] for column in columns)
    if not isinstance(likelihood, str):
        raise InputError(
            "names the kinds of columns, but X is an array: give a DataFrame, or one name for all "
            "columns",
            argument="likelihood",
        )
    values = _array(estimator, x, reset=True)
    family = "gaussian" if likelihood == "auto" else likelihood
    return values, None, (family,) * values.shape[1]


def numbers(estimator: Any, x: Any, columns: Sequence[Column] | None) -> np.ndarray:
    """Return the numbers of x, which has the columns that were learned from."""
    if columns is None or not is_frame(x):
        return _array(estimator, x, reset=False)
    validate_data(estimator, x, skip_check_array=True, reset=False)
    _check_rows(x, 1)
    return read_table(x, columns).values


def levels_of(families: Sequence[str], values: np.ndarray, columns: Any) -> tuple[int, ...]:
    """Return the number of levels of each column of categories, and 0 for others."""
    found = []
    for i, family in enumerate(families):
        own = len(columns[i].levels) if columns is not None else 0
        highest = np.nanmax(np.where(np.isfinite(values[:, i]), values[:, i], 0))
        found.append((own or int(max(highest, 0)) + 1) if family == "categorical" else 0)
    return tuple(found)


def as_frame(values: np.ndarray, columns: Sequence[Column], library: str, like: Any = None) -> Any:
    """Return numbers as a frame of pandas or polars, with the texts that codes stand for.

    Counts and bits are integers if all are whole, and rows have the index of a frame like it.
    """

    def decoded(column: Column, own: np.ndarray) -> Any:
        if not column.levels:
            is_whole = column.kind in ("count", "bit") and np.all(own == np.floor(own))
            return own.astype(np.int64) if is_whole else own
        return [None if np.isnan(code) else column.levels[int(code)] for code in own]

    pairs = zip(columns, values.T, strict=True)
    named = {column.name: decoded(column, own) for column, own in pairs}
    index = {"index": like.index} if hasattr(like, "index") and library == "pandas" else {}
    return importlib.import_module(library).DataFrame(named, **index)


def check_precision(values: np.ndarray) -> None:
    """Refuse columns that single precision would make constant."""
    spread, mean = np.nanstd(values, axis=0), np.nanmean(values, axis=0)
    is_wide = np.nanmax(values, axis=0) > np.nanmin(values, axis=0)
    lost = np.flatnonzero(is_wide & (spread < 100 * np.finfo(np.float32).eps * np.abs(mean)))
    if len(lost):
        raise InputError(
            f"varies by {spread[lost[0]]:.3g} around {mean[lost[0]]:.3g} in column {lost[0]}, "
            "which single precision cannot tell apart: subtract the mean, as by StandardScaler",
            argument="X",
        )


class Rows(NamedTuple):
    """Rows to learn from, in an order that depends on their content alone.

    A row of weight 2 is the same as two rows: both are there as two copies.

    Attributes:
        values: copies of the same row are neighbours.
        weights: of each copy, 1 where weights are whole numbers.
        patterns: the number of the row that each is a copy of.
    """

    values: np.ndarray
    weights: np.ndarray
    patterns: np.ndarray


def sorted_rows(x: np.ndarray, weights: np.ndarray) -> Rows:
    """Return the rows of weight above zero, sorted, in as many copies as their weights say."""
    x = np.ascontiguousarray(np.where(np.isnan(x), np.nan, x) + 0.0)[weights > 0]
    as_bytes = x.view(np.dtype((np.void, x.itemsize * x.shape[1]))).ravel()
    _, first, place = np.unique(as_bytes, return_index=True, return_inverse=True)
    total = np.bincount(place.ravel(), weights[weights > 0])
    total *= min(1, _MOST_COPIES / total.sum())
    number = np.maximum(np.rint(total), 1).astype(int)
    patterns = np.repeat(np.arange(len(first)), number)
    own = (total / number)[patterns]
    return Rows(x[first][patterns], own / own.mean(), patterns)


def _check_rows(x: Any, least: int) -> None:
    if len(x) < least:
        raise InputError(f"has {len(x)} sample(s): give at least {least}", argument="X")


def _array(estimator: Any, x: Any, *, reset: bool) -> np.ndarray:
    least = 2 if reset else 1
    options = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "ensure_min_samples": least}
    return np.asarray(validate_data(estimator, x, reset=reset, **options))


def _whole_table(x: Any, kinds: dict[str, str]) -> tuple[np.ndarray, tuple[Column, ...]]:
    """Read a frame, with all of its columns: an estimator leaves none out on its own."""
    table = read_table(x, kinds)
    known = {column.name for column in table.columns}
    left_out = [str(name) for name in x.columns if str(name) not in known]
    for name in left_out:
        if kinds.get(name) == "ignore" or np.asarray(x[name]).dtype.kind not in "buif":
            raise InputError(
                f"has the column {name!r}, of which nothing can be learned: drop it, or encode it "
                "as numbers",
                argument="X",
            )
    if left_out:
        table = read_table(x, {**kinds, **dict.fromkeys(left_out, "real")})
    return table.values, table.columns
