"""A user's own file: an .npy, which is mapped and never read whole, or an .npz."""

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from aisle.data.cells import TABLE_ENDINGS
from aisle.data.readers import DAMAGE, TEST_SEED, read_header, read_member
from aisle.data.split import Dataset, Split
from aisle.data.tables import read_table
from aisle.data.view import View
from aisle.errors import InputError


def is_file_name(text: str) -> bool:
    """Say whether `text` means a user's file rather than the name of a data set."""
    endings = (".npy", ".npz", *TABLE_ENDINGS)
    return text.lower().endswith(endings) or "/" in text or "\\" in text


def is_table_name(text: str) -> bool:
    """Say whether `text` means a table rather than an array."""
    return text.lower().endswith(TABLE_ENDINGS)


def read_user_file(path: Path, view: View, **roles: Any) -> Dataset:
    """Open a user's file; one tenth of the rows is held out if it has no test part of its own.

    Args:
        path: of the file.
        view: how stored examples become what a model sees.
        roles: of a table's columns, see `read_table`.
    """
    if not path.is_file():
        raise InputError(
            f"{path} is not a file: give the path of a table or of an .npy or .npz file"
        )
    if is_table_name(path.name):
        table = read_table(path, **roles)
        if len(table.values) < 2:
            raise InputError(f"{path} has one row alone: give at least 2")
        whole = Split(table.values, None, view, table.context, weights=table.weights)
        parts = {"train": whole}
    elif path.suffix.lower() in _READERS:
        table, arrays = None, _READERS[path.suffix.lower()](path)
        parts = {name: Split(array, None, view) for name, array in arrays.items()}
    else:
        raise InputError(
            f"{path} is neither a table ({', '.join(TABLE_ENDINGS)}) nor .npy or .npz: save "
            "examples with np.save, or a table as .csv"
        )
    train, test = parts["train"], parts.get("test")
    if test is None:
        train, test = train.without(max(1, len(train) // 10), TEST_SEED)
    shape = train.arrays.shape[1:]
    return Dataset(path.stem, train, parts.get("valid"), test, shape, str(path), table)


def _read_npy(path: Path) -> dict[str, np.ndarray]:
    """Map the only array of a file."""
    with _explained(path), path.open("rb") as file:
        shape, dtype = read_header(file)
        num_bytes = path.stat().st_size - file.tell()
    _check(shape, dtype, str(path), min_rows=2)
    promised = math.prod(shape) * dtype.itemsize
    if num_bytes < promised:
        raise InputError(
            f"{path} is cut short: its header promises {promised} bytes of values but {num_bytes} "
            "follow; save it again"
        )
    with _explained(path):
        return {"train": np.lib.format.open_memmap(path, mode="r")}


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file by their parts; one alone is to train on, whatever its name."""
    with _explained(path), zipfile.ZipFile(path) as archive:
        names = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
        if "train" not in names and len(names) != 1:
            raise InputError(
                f"{path} holds {', '.join(names) or 'no arrays'}: it needs an array called train, "
                "and perhaps valid and test, or only one array"
            )
        wanted = [n for n in ("train", "valid", "test") if n in names]
        wanted = wanted if "train" in names else names
        # An array that others are split from needs a row for each part.
        found = {
            name: _member(archive, path, name, min_rows=2 if name == wanted[0] else 1)
            for name in wanted
        }
    _check_alike(found, path)
    return {"train": found.pop(wanted[0]), **found}


_READERS = {".npy": _read_npy, ".npz": _read_npz}


def _member(archive: zipfile.ZipFile, path: Path, name: str, min_rows: int) -> np.ndarray:
    what = f"{name} in {path}"
    return read_member(archive, name, lambda shape, dtype: _check(shape, dtype, what, min_rows))


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say in one line, with the name of the file, that NumPy cannot read it."""
    try:
        yield
    except InputError:
        raise
    except PermissionError:
        raise InputError(
            f"cannot read {path}: it is not readable for you; change its permissions"
        ) from None
    except MemoryError:
        raise InputError(
            f"{path} does not fit in memory: save it with np.save, as .npy, which need not fit"
        ) from None
    except DAMAGE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            f"{path} is cut short or not a NumPy file ({reason}): save it again with np.save or "
            "np.savez"
        ) from None


def _check(shape: tuple[int, ...], dtype: np.dtype, what: str, min_rows: int) -> None:
    if len(shape) < 2:
        raise InputError(
            f"{what} has the shape {shape}: it needs one row for each example, as in (N, D) or "
            "(N, height, width)"
        )
    if shape[0] < min_rows or math.prod(shape) == 0:
        raise InputError(
            f"{what} has the shape {shape}: it needs at least {min_rows} "
            f"row{'s' if min_rows > 1 else ''} and one value in a row"
        )
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise InputError(
            f"{what} has values of type {dtype}: save numbers, as x.astype(np.float32)"
        )


def _check_alike(found: dict[str, np.ndarray], path: Path) -> None:
    (first, one), *others = found.items()
    for name, other in others:
        if one.shape[1:] != other.shape[1:]:
            raise InputError(
                f"{path} has examples of the shape {one.shape[1:]} in {first} and "
                f"{other.shape[1:]} in {name}: all parts need the same shape"
            )
        if one.dtype != other.dtype:
            raise InputError(
                f"{path} has values of type {one.dtype} in {first} and {other.dtype} in {name}: "
                "save all parts with the same type"
            )
