"""Weights as one `.safetensors` file, which other programs can read too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from aisle.errors import InputError
from aisle.files import disk_errors
from aisle.runs import tensors
from aisle.runs.tensors import SUFFIX

__all__ = ["SUFFIX", "export", "load", "read_metadata"]


def export(path: Path, arrays: PyTree, metadata: Mapping[str, object]) -> None:
    """Write the leaves of `arrays` and a JSON object of metadata into one file.

    Equal weights with equal metadata make equal files, byte for byte.
    """
    with disk_errors(path):
        tensors.write(path, arrays, metadata)


def load(path: Path, like: PyTree) -> PyTree:
    """Return the arrays of a file in the structure of `like`, whose shapes and types they have."""
    stored, _ = _read(path)
    if problem := tensors.difference(stored, like):
        raise InputError(
            f"{path} does not fit the model: {problem}; load it with the settings it was exported "
            "with"
        )
    return tensors.placed(stored, like)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata that a file was exported with, and its `format`."""
    _, metadata = _read(path)
    if not metadata:
        raise InputError(
            f"{path} has no metadata of aisle in its header: give a file that `aisle export` wrote"
        )
    return {"format": 1, **metadata}


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        return tensors.read(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: give a file that `aisle export` wrote") from None
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror}): give a file that may be read"
        ) from None
    except tensors.UnreadableError as error:
        raise InputError(
            f"{path} holds no weights ({error}): give a file that `aisle export` wrote"
        ) from None
