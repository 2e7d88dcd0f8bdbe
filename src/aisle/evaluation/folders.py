"""Folders that belong to one evaluation, so that no two mix their numbers."""

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
from aisle.files import disk_errors, json_text, replacing


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make a folder that of an evaluation, or see that it is the one of the same settings."""
    file = folder / "settings.json"
    content = json_text(settings, indent=1)
    with disk_errors(folder, "choose another folder"):
        if file.exists():
            _compare(folder, _read(file), json.loads(content))
            return
        folder.mkdir(parents=True, exist_ok=True)
        # What a process that was killed right here has left is not somebody else's.
        if any(not path.match(f".{file.name}.*.partial") for path in folder.iterdir()):
            raise InputError(f"{folder} holds other files: choose another folder")
        with replacing(file) as part:
            part.write_text(content)


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


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except ValueError:
        raise InputError(
            f"{file} is damaged: remove {file.parent}, or choose another folder"
        ) from None


def _compare(folder: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    every = sorted(wanted.keys() | stored.keys())
    names = [name for name in every if stored.get(name) != wanted.get(name)]
    if names:
        raise InputError(
            f"{folder} is an evaluation with other {', '.join(names)}: choose another folder"
        )
