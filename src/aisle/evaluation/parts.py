"""The finished tiles of an evaluation on disk, each written whole or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aisle import processes
from aisle.data.readers import DAMAGE
from aisle.files import disk_errors, remove_leftovers, replacing


class Part(NamedTuple):
    """Numbers of some examples.

    Attributes:
        indices: numbers of the examples.
        kept: numbers of each of them.
        sums: numbers added up over them.
        seconds: that computing them took.
    """

    indices: np.ndarray
    kept: dict[str, np.ndarray]
    sums: dict[str, np.ndarray]
    seconds: float


def write(folder: Path, part: Part) -> None:
    """Write one part, named by its first example."""
    arrays = {"indices": part.indices, "seconds": np.array(part.seconds)}
    arrays |= {f"kept_{name}": a for name, a in part.kept.items()}
    arrays |= {f"sums_{name}": a for name, a in part.sums.items()}
    save_arrays(folder / f"{int(part.indices[0]):08d}.npz", arrays)


def read(folder: Path) -> list[Part]:
    """Read the parts of a folder; one that is damaged is as good as not there."""
    remove_leftovers(folder)
    parts = [_read(path) for path in sorted(folder.glob("*.npz"))]
    return [part for part in parts if part is not None]


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write an npz file, whole or not at all, in a folder that is made if need be."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)


def load_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Read an npz file, or return None if it is not there or damaged."""
    try:
        # Opened here, as NumPy leaves open what it finds to be damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except DAMAGE:
        return None


def kept(file: Path | None, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays of a file, or make and keep them; the same in all processes."""
    stored = None if file is None else load_arrays(file)
    stored = processes.from_first(make() if stored is None else stored)
    if file is not None:
        processes.first_does(lambda: load_arrays(file) or save_arrays(file, stored))
    return stored


def _read(path: Path) -> Part | None:
    arrays = load_arrays(path)
    if arrays is None or not {"indices", "seconds"} <= arrays.keys():
        return None
    kept, sums = (
        {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        for prefix in ("kept_", "sums_")
    )
    return Part(arrays["indices"], kept, sums, float(arrays["seconds"]))
