"""Folders that belong to one evaluation, so that no two mix their figures."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from aisle.errors import InputError
from aisle.files import disk_errors, replacing

# The setting that has figures of the densities by name; other machines round them otherwise.
DENSITY = "density"


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make a folder that of an evaluation, or see that it is the one of the same settings."""
    file = folder / "settings.json"
    content = json.dumps(settings, indent=1) + "\n"
    with disk_errors(folder, "choose another --out"):
        if file.exists():
            _compare(folder, _read(file), json.loads(content))
            return
        folder.mkdir(parents=True, exist_ok=True)
        # What a process that was killed right here has left is not somebody else's.
        if any(not path.match(f".{file.name}.*.partial") for path in folder.iterdir()):
            raise InputError(f"{folder} holds other files: choose another --out")
        with replacing(file) as part:
            part.write_text(content)


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except ValueError:
        raise InputError(
            f"{file} is damaged: remove {file.parent}, or choose another --out"
        ) from None


def digest(tree: PyTree) -> str:
    """Return a hash of all numbers and arrays of a tree: settings name weights and data by it."""
    state = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        if eqx.is_array_like(leaf):
            values = np.asarray(leaf)
            state.update(f"{values.dtype}{values.shape}".encode())
            state.update(np.ascontiguousarray(values).tobytes())
    return state.hexdigest()[:16]


def digest_of_rest(tree: PyTree) -> str:
    """Return a hash of what `digest` leaves out: classes, static fields, names of functions.

    What a function has captured, an object that is no pytree holds, or a method computes, cannot be
    told from here.
    """
    rest = eqx.filter(tree, eqx.is_array_like, inverse=True)
    # Addresses change from process to process.
    text = re.sub(r" at 0x[0-9a-f]+", "", f"{jax.tree.structure(tree)} {jax.tree.leaves(rest)}")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compare(folder: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    every = sorted(wanted.keys() | stored.keys())
    names = [n for n in every if not _is_same(n, stored.get(n), wanted.get(n))]
    # Of other weights or examples the densities are others, too.
    what = ", ".join(n for n in names if n != DENSITY) or "densities, by other code of the model"
    if names:
        raise InputError(f"{folder} is an evaluation with other {what}: choose another --out")


def _is_same(name: str, stored: Any, wanted: Any) -> bool:
    if name == DENSITY and isinstance(stored, dict) and stored.keys() == wanted.keys():
        return all(np.isclose(stored[n], wanted[n], rtol=1e-3, atol=1e-3) for n in wanted)
    return stored == wanted
