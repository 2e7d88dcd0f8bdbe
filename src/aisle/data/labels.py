"""What the test examples of named data sets show, where that is known; nothing learns from it."""

import gzip
from pathlib import Path

import numpy as np

from aisle.data.readers import DAMAGE, TEST_SEED
from aisle.data.sources import SOURCES, data_directory
from aisle.data.split import Split

# Not fetched, as nothing needs them; used where they lie beside the pictures.
_MNIST_FILES = ("t10k-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte")
_HEADER_BYTES = 8


def known_labels(name: str, data_dir: str | Path | None = None) -> np.ndarray | None:
    """Return the digit that each test example of a named data set shows, or None."""
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = np.asarray(load_digits(return_X_y=True)[1])
        _, test = Split(digits).without(SOURCES[name].num_test, TEST_SEED)
        return digits[test.rows]
    if name == "mnist":
        files = [data_directory(data_dir) / name / file for file in _MNIST_FILES]
        path = next((file for file in files if file.is_file()), None)
        return None if path is None else _idx_labels(path, SOURCES[name].num_test)
    return None


def _idx_labels(path: Path, number: int) -> np.ndarray | None:
    """Return the labels of an idx file, or None if it is not what its name says."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix else path.read_bytes()
    except DAMAGE:
        return None
    found = np.frombuffer(content, np.uint8, offset=min(len(content), _HEADER_BYTES))
    return found.astype(int) if len(found) == number and found.max() <= 9 else None
