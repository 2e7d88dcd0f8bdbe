"""Weights as one `.safetensors` file, which other programs can read.

Each leaf of the pytree is a tensor under its path, such as `model/decoder/layers/0/weight`; the
metadata is JSON under the key `aisle` of the header. Equal weights with equal metadata make equal
files, byte for byte.
"""

import json
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
from aisle.files import writing

SUFFIX = ".safetensors"

# All in one key: safetensors writes the keys of its header in an order that changes.
_METADATA = "aisle"


def export(path: Path, arrays: PyTree, metadata: Mapping[str, object]) -> None:
    """Write the leaves of `arrays` and a JSON object of metadata into one file."""
    header = {_METADATA: json.dumps(dict(metadata), sort_keys=True, allow_nan=False)}
    content = safetensors.numpy.save(_on_host(arrays), header)
    with writing(path) as part:
        part.write_bytes(content)


def load(path: Path, like: PyTree) -> PyTree:
    """Return the arrays of a file in the structure of `like`, whose shapes and types they have."""
    stored = _read_tensors(path)
    names, leaves = _named(like), jax.tree.leaves(like)
    for name, leaf in zip(names, leaves, strict=True):
        if name not in stored:
            raise _mismatch(path, f"it has no tensor {name}")
        if _kind(stored[name]) != _kind(leaf):
            found, wanted = _kind(stored[name]), _kind(leaf)
            raise _mismatch(path, f"its tensor {name} is {found}, and {wanted} is needed")
    if extra := sorted(stored.keys() - set(names)):
        raise _mismatch(path, f"its tensor {extra[0]} is not part of the model")
    # A copy, as JAX may otherwise share NumPy's memory, which it cannot donate to a computation.
    arrays = [jnp.array(stored[name]) for name in names]
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata that a file was exported with."""
    try:
        # Opened first, for the errors of the system: those of safetensors vary with its version.
        path.open("rb").close()
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
        metadata = json.loads(header[_METADATA])
    except (OSError, safetensors.SafetensorError) as error:
        raise _unreadable(path, error) from None
    except (KeyError, ValueError):
        raise InputError(
            f"{path} has no metadata of aisle in its header: give a file that `aisle export` wrote"
        ) from None
    return metadata


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    try:
        return safetensors.numpy.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        raise _unreadable(path, error) from None
    except KeyError as error:
        # Types that NumPy lacks, such as bfloat16.
        raise _mismatch(path, f"it has tensors of the type {error.args[0]}") from None


def _on_host(arrays: PyTree) -> dict[str, np.ndarray]:
    names, leaves = _named(arrays), jax.tree.leaves(arrays)
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two leaves are both called {min(repeated)}: rename one in the pytree")
    # safetensors copies memory as it lies, whatever the strides: only C order is right.
    return {
        name: np.asarray(leaf, order="C") for name, leaf in sorted(zip(names, leaves, strict=True))
    }


def _named(tree: PyTree) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]


def _kind(leaf: Any) -> str:
    return f"{np.dtype(leaf.dtype).name}[{','.join(map(str, leaf.shape))}]"


def _mismatch(path: Path, what: str) -> InputError:
    return InputError(
        f"{path} does not fit the model: {what}; load it with the settings it was exported with"
    )


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} does not exist: give a file that `aisle export` wrote")
    if isinstance(error, OSError):
        return InputError(f"cannot read {path} ({error.strerror}): give a file that may be read")
    return InputError(
        f"{path} is not a safetensors file, or is cut short ({error}): export the weights again"
    )
