"""What an evaluation keeps in its folder: to resume it, and so that no two mix their numbers."""

import hashlib
import re
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from aisle import processes
from aisle.data.readers import DAMAGE, read_member
from aisle.errors import InputError
from aisle.files import disk_errors, json_text, parsed, replacing


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make a folder that of an evaluation, or see that it is the one of the same settings."""
    file = folder / "settings.json"
    content = json_text(settings, indent=1)
    with disk_errors(folder, "choose another folder"):
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # What a process that was killed right here has left is not somebody else's.
            if any(not path.match(f".{file.name}.*.partial") for path in folder.iterdir()):
                raise InputError(f"{folder} holds other files: choose another folder")
            with replacing(file) as part:
                part.write_text(content)
        try:
            stored = parsed(file.read_bytes())
        except ValueError:
            raise InputError(
                f"{file} is damaged: remove {folder}, or choose another folder"
            ) from None
    wanted = parsed(content)
    stored = stored if isinstance(stored, dict) else {}
    every = sorted(wanted.keys() | stored.keys())
    names = [name for name in every if stored.get(name) != wanted.get(name)]
    if names:
        raise InputError(
            f"{folder} is an evaluation with other {', '.join(names)}: choose another folder"
        )


def digest(tree: PyTree) -> str:
    """Return a hash of all numbers and arrays of a tree: settings name weights and data by it."""
    state = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        if eqx.is_array_like(leaf):
            values = np.asarray(leaf)
            state.update(f"{values.dtype}{values.shape}".encode())
            state.update(np.ascontiguousarray(values).tobytes())
    return state.hexdigest()[:16]


def digest_of_classes(tree: PyTree) -> str:
    """Return a hash of the classes, static fields and functions of a tree."""
    functions = [leaf for leaf in jax.tree.leaves(tree) if not eqx.is_array_like(leaf)]
    # Addresses change from process to process.
    text = re.sub(r" at 0x[0-9a-f]+", "", f"{jax.tree.structure(tree)} {functions}")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kept(
    file: Path | None, make: Callable[[], dict[str, np.ndarray]]
) -> tuple[dict[str, np.ndarray], float]:
    """Return the arrays of a file, or make and keep them, and the seconds that making them took.

    They are the same in all processes. `make` may know of "seconds" that were spent before.
    """
    stored = None if file is None else load_arrays(file)
    is_there = stored is not None
    if stored is None:
        start = time.perf_counter()
        stored = make()
        seconds = time.perf_counter() - start + stored.get("seconds", 0.0)
        stored["seconds"] = np.array(seconds)
    stored = processes.from_first(stored)
    if file is not None:
        processes.first_does(lambda: is_there or save_arrays(file, stored))
    return stored, float(stored["seconds"])


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write an npz file, whole or not at all, in a folder that is made if need be."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)


def load_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Read an npz file, or return None if it is not there or damaged."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {name: read_member(archive, name) for name in names}
    except (*DAMAGE, MemoryError):
        return None
