"""Files of AnnData: a matrix of cells by genes, and what is known of the cells."""

from pathlib import Path
from typing import Any

import numpy as np

from aisle.errors import InputError, first_line


def read_h5ad(path: Path) -> tuple[np.ndarray, list[str], dict[str, Any]]:
    """Return the matrix X, the names of its columns, and the columns of obs by their names.

    X is read whole and made dense: choose genes before.
    """
    try:
        import h5py
    except ImportError:
        raise InputError(
            f"{path} needs h5py to be read: install aisle[h5ad], or save the counts as .csv"
        ) from None
    try:
        with h5py.File(path, "r") as file:
            var: Any = file["var"]
            obs: Any = file["obs"]
            matrix, names = _matrix(file["X"]), _column(var, var.attrs["_index"])
            labels = {str(name): _column(obs, name) for name in obs.attrs["column-order"]}
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as .h5ad ({first_line(error)}): write it again with "
            "anndata 0.8 or later"
        ) from None
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        raise InputError(
            f"{path} has an X of shape {matrix.shape} for {len(names)} genes: write it again"
        )
    if len(set(names)) < len(names):
        raise InputError(f"{path} names two genes alike: make the names unique")
    return matrix, [str(name) for name in names], labels


def _matrix(stored: Any) -> np.ndarray:
    """Return a matrix that is stored as an array, or sparse by rows or by columns."""
    kind = stored.attrs.get("encoding-type", "array")
    if kind not in ("csr_matrix", "csc_matrix"):
        return np.asarray(stored[()])
    import scipy.sparse

    parts = tuple(stored[name][()] for name in ("data", "indices", "indptr"))
    build = getattr(scipy.sparse, kind)
    return build(parts, shape=tuple(stored.attrs["shape"])).toarray()


def _column(frame: Any, name: str) -> Any:
    """Return a column of a stored frame: numbers, or texts with None where one is missing."""
    stored = frame[name]
    if stored.attrs.get("encoding-type") == "categorical":
        levels = _column(stored, "categories")
        levels = levels.tolist() if isinstance(levels, np.ndarray) else levels
        return [None if code < 0 else levels[code] for code in stored["codes"][()]]
    if "values" in getattr(stored, "keys", tuple)():
        # Numbers of which some are missing.
        pairs = zip(stored["values"][()].tolist(), stored["mask"][()], strict=True)
        return [None if is_missing else value for value, is_missing in pairs]
    values = stored[()]
    if values.dtype.kind not in "OS":
        return values
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]
