"""Where the data of the applications are, and how they are fetched."""

import hashlib
from pathlib import Path

import numpy as np
import pooch
import requests

from aisle.data.sources import data_directory
from aisle.errors import InputError
from aisle.files import replacing


def data_file(name: str, data: Path | None, url: str | None = None) -> Path:
    """Return a file of the data folder, and fetch it if it is not there.

    Args:
        name: its path in the data folder, such as counts/smfish.h5ad.
        data: the data folder, or None for the one that AISLE_DATA names, or else the user's cache.
        url: where it is published, or None if nobody publishes it in this form.
    """
    path = data_directory(data) / name
    if path.is_file():
        return path
    if url is None:
        raise InputError(f"there is no {path}: put it there, or name its folder by --data")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(path) as part:
            pooch.HTTPDownloader(timeout=30)(url, str(part), None)
    except requests.RequestException as error:
        raise InputError(
            f"cannot fetch {url} ({type(error).__name__}): check the connection, or put the file "
            f"to {path}"
        ) from None
    return path


def check_content(arrays: list[np.ndarray], expected: str, source: str) -> None:
    """Refuse arrays that are not those of the recorded result, in whatever form they came."""
    found = digest(arrays)
    if not found.startswith(expected):
        raise InputError(
            f"{source} has the digest {found[:8]} but should have {expected}: remove the file, so "
            "that it is fetched again"
        )


def digest(arrays: list[np.ndarray]) -> str:
    """Return a hash of the shapes and values of whole numbers, whatever their types."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{array.shape}".encode() + np.ascontiguousarray(array, "<i4").tobytes())
    return state.hexdigest()


def split_rows(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows to train on, to choose by and to report, 80, 10 and 10 % of them."""
    # Not `default_rng`: NumPy promises that only this older stream will never change.
    order = np.random.RandomState(seed).permutation(number)
    train, valid, test = np.split(order, [number * 8 // 10, number * 9 // 10])
    return train, valid, test
