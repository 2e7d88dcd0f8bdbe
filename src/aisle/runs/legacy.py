"""Checkpoints of the first edition: folders that Orbax wrote.

In each is one array with the bytes of all leaves, and a manifest with their names, shapes and types
and a SHA-256 of it all. The array is a zarr array in tensorstore's OCDBT, as Orbax stores it.
"""

import hashlib
import json
import math
from pathlib import Path

import numpy as np

from aisle.errors import InputError
from aisle.files import parsed


def read(path: Path) -> dict[str, np.ndarray]:
    """Return the leaves of a checkpoint by their names; raise anything if it is damaged."""
    try:
        import tensorstore
    except ImportError:
        raise InputError(
            f"{path} was written by aisle 0.1, with Orbax: to read it, pip install 'aisle[legacy]'"
        ) from None
    manifest = parsed((path / "manifest" / "metadata").read_bytes())
    folder = {"driver": "file", "path": f"{path.absolute() / 'state'}/"}
    store = {"driver": "ocdbt", "base": folder, "path": "content/"}
    array = tensorstore.open({"driver": "zarr", "kvstore": store}, open=True, read=True).result()
    content = np.ascontiguousarray(array.read().result())
    leaves = manifest["leaves"]
    digest = hashlib.sha256(json.dumps(leaves, sort_keys=True).encode())
    digest.update(content.data)
    if digest.hexdigest() != manifest["sha256"]:
        raise ValueError("its content does not have the checksum it was saved with")
    sizes = [math.prod(leaf["shape"]) * np.dtype(leaf["dtype"]).itemsize for leaf in leaves]
    # One byte follows the last leaf.
    parts = np.split(content, np.cumsum(sizes, dtype=np.int64))[:-1]
    return {
        leaf["name"]: part.view(leaf["dtype"]).reshape(leaf["shape"])
        for leaf, part in zip(leaves, parts, strict=True)
    }
