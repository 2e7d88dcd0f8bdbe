"""Pytrees of arrays as safetensors files, with a JSON object of metadata.

Each leaf is a tensor named by its path in the pytree, such as `model/decoder/layers/0/weight`.
Leaves are found again by their names, so the order of fields does not matter. A file is written
whole or not at all, and carries a SHA-256 of all that it holds, so that later damage is found.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import PyTree

from aisle.errors import InputError
from aisle.files import parsed, replacing

SUFFIX = ".safetensors"

# The version of config.json, checkpoints and exported weights, to be raised when they change so
# that an older aisle would misread them.
FORMAT = 2

# All metadata are under one key: safetensors writes several in an order that changes.
_KEY = "aisle"
# Where safetensors has them in its header, and how long that may be.
_ABOUT = "__metadata__"
_MOST_HEADER = 100_000_000

# What safetensors calls the types of NumPy and JAX.
_TYPES = {
    "BOOL": "bool",
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "C64": "complex64",
}


class UnreadableError(Exception):
    """A file that cannot be read whole, and why."""


def write(path: Path, tree: PyTree, about: Mapping[str, object]) -> None:
    """Write a pytree and a JSON object; equal ones make equal files, byte for byte."""
    # safetensors copies memory as it lies, whatever the strides: only C order is right.
    tensors = {name: np.asarray(leaf, order="C") for name, leaf in named(tree).items()}
    for name, tensor in tensors.items():
        if tensor.dtype.name not in _TYPES.values():
            raise InputError(
                f"{name} is {_kind(tensor)}: a file can hold {', '.join(_TYPES.values())}"
            )
    # Through JSON and back, as a reader will have it.
    plain = json.loads(json.dumps({**about, "format": FORMAT}, allow_nan=False))
    plain["sha256"] = _digest(tensors, plain)
    content = safetensors.numpy.save(tensors, {_KEY: json.dumps(plain, sort_keys=True)})
    with replacing(path) as part:
        part.write_bytes(content)


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors and the JSON object of a file; the latter is {} in files from elsewhere.

    Files of the first edition have neither a format nor a checksum.
    """
    header = _header(path)
    try:
        views = safetensors.deserialize(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise UnreadableError(f"not a safetensors file, or cut short: {error}") from None
    except MemoryError:
        raise UnreadableError("it is larger than the memory") from None
    if other := {view["dtype"] for _, view in views} - _TYPES.keys():
        raise UnreadableError(f"it has tensors of the type {min(other)}")
    tensors = {
        name: np.frombuffer(view["data"], _TYPES[view["dtype"]]).reshape(view["shape"])
        for name, view in views
    }
    about = _metadata(header)
    check_format(path, about)
    is_checked = bool(about.keys() & {"format", "sha256"})
    if about.pop("sha256", None) != _digest(tensors, about) and is_checked:
        raise UnreadableError("its content does not have the checksum it was saved with")
    return tensors, about


def check_format(file: Path, stored: Mapping[str, Any]) -> None:
    """Refuse the JSON object of a file that a later version wrote.

    A file without a format is of the first edition, which is format 1.
    """
    found = stored.get("format", 1)
    if found in range(1, FORMAT + 1):
        return
    try:
        version = " ".join(str(stored["provenance"]["packages"]["aisle"]).split())
        needed = f"aisle {version} or newer"
    except (KeyError, TypeError):
        needed = "a newer aisle"
    raise InputError(
        f"{file} has format {found!r}, and this version of aisle reads formats up to {FORMAT}: "
        f"install {needed}"
    )


def named(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of a pytree by their paths."""
    leaves: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in leaves:
            raise ValueError(f"two leaves are both called {name}: rename one in the pytree")
        leaves[name] = leaf
    return leaves


def difference(stored: Mapping[str, np.ndarray], like: PyTree) -> str | None:
    """Say how stored tensors differ in names, shapes or types from the leaves of `like`."""
    wanted = named(like)
    for name, leaf in wanted.items():
        if name not in stored:
            return f"it has no tensor {name}"
        if _kind(stored[name]) != _kind(leaf):
            return f"its tensor {name} is {_kind(stored[name])}, and {_kind(leaf)} is needed"
    extra = sorted(stored.keys() - wanted.keys())
    return f"its tensor {extra[0]} is not needed" if extra else None


def placed(stored: Mapping[str, np.ndarray], like: PyTree) -> PyTree:
    """Return stored tensors in the structure of `like`, on the devices of its leaves."""
    leaves = [_place(stored[name], leaf) for name, leaf in named(like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _place(content: np.ndarray, leaf: Any) -> jax.Array:
    # A copy, as JAX may otherwise share NumPy's memory, which it cannot donate to a computation.
    value = jnp.array(content)
    sharding = getattr(leaf, "sharding", None)
    # An array that is free to move must stay free, or it could not meet a sharded one.
    if sharding is None or not getattr(leaf, "committed", True):
        return value
    return jax.device_put(value, sharding)


def _kind(leaf: Any) -> str:
    return f"{np.dtype(leaf.dtype).name}[{','.join(map(str, leaf.shape))}]"


def _digest(tensors: Mapping[str, np.ndarray], about: Mapping[str, object]) -> str:
    kinds = {name: _kind(tensor) for name, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps([about, kinds], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(tensors[name].reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _header(path: Path) -> dict[str, Any]:
    """Return the JSON header of a file that is as long as that says, before the rest is read."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        try:
            if length > min(size - 8, _MOST_HEADER):
                raise ValueError("its header would be longer than it may be")
            header = parsed(file.read(length))
            ends = [one["data_offsets"][1] for name, one in header.items() if name != _ABOUT]
            if 8 + length + max(ends, default=0) != size:
                raise ValueError("its header promises another length")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise UnreadableError(f"not a safetensors file, or cut short: {error}") from None
    return header


def _metadata(header: dict[str, Any]) -> dict[str, Any]:
    try:
        about = parsed(header[_ABOUT][_KEY])
    except (KeyError, TypeError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}
