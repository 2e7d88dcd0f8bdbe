"""Read the forms in which the named data sets come, as uint8 arrays of upright pictures.

Every reader takes the folder, the form found there and the data set, which says what to expect;
it returns the training and the test array, of shape (N, height, width).
"""

import io
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from aisle.data.places import damaged, read_verified
from aisle.data.sources import DataFile, Form, Source
from aisle.data.split import Split

Arrays = tuple[np.ndarray, np.ndarray]

# Of the rows that are held out for the test where data have no such part.
TEST_SEED = 2020

# What NumPy and zipfile raise for a file that is cut short or not what its name says.
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, LookupError, RuntimeError)

# An idx file starts with two zeros, the code of the element type (8 is a byte) and the dimensions.
_IDX_MAGIC = bytes([0, 0, 8, 3])
_IDX_HEADER = struct.Struct(">4s3I")


def read_sklearn(folder: Path, form: Form, source: Source) -> Arrays:  # noqa: ARG001
    """Return scikit-learn's own 8x8 digits, their values of 0 to 16 stretched to 0 to 255."""
    from sklearn.datasets import load_digits

    pixels, _ = load_digits(return_X_y=True)
    images = np.rint(pixels.reshape(-1, *source.shape) * (255 / 16)).astype(np.uint8)
    train, test = Split(images).without(source.num_test, TEST_SEED)
    return images[train.rows], images[test.rows]


def read_idx(folder: Path, form: Form, source: Source) -> Arrays:
    """Read two files of images in the idx format of MNIST, as they are or zipped."""
    train, test = form.files
    return (
        checked(_idx_images(folder, train, source), source.num_train, folder / train.name, source),
        checked(_idx_images(folder, test, source), source.num_test, folder / test.name, source),
    )


def read_mat(folder: Path, form: Form, source: Source) -> Arrays:
    """Read the Omniglot of the IWAE study: `data` and `testdata`, one column for each picture."""
    from scipy.io import loadmat

    (file,) = form.files
    path = folder / file.name
    content = read_verified(path, file, source)
    try:
        arrays = loadmat(io.BytesIO(content), variable_names=["data", "testdata"])
        train, test = (_upright(arrays[key], source.shape) for key in ("data", "testdata"))
    except Exception:  # SciPy has no common error for files that it cannot read
        reason = "it is not a MATLAB file with pictures in `data` and `testdata`"
        raise damaged(path, source, reason) from None
    return both_checked(train, test, path, source)


def read_npz(folder: Path, form: Form, source: Source) -> Arrays:
    """Read `train` and `test` of an npz file."""
    (file,) = form.files
    path = folder / file.name
    content = read_verified(path, file, source)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            train, test = arrays["train"], arrays["test"]
    except (*DAMAGE, TypeError):
        raise damaged(path, source, "it is not an npz file with `train` and `test`") from None
    return both_checked(train, test, path, source)


def both_checked(train: np.ndarray, test: np.ndarray, path: Path, source: Source) -> Arrays:
    """Return the two parts of a data set if they have the shapes that belong to it."""
    return (
        checked(train, source.num_train, path, source),
        checked(test, source.num_test, path, source),
    )


def checked(array: np.ndarray, count: int, path: Path, source: Source) -> np.ndarray:
    """Return an array if it holds `count` pictures of the right shape and type."""
    expected = (count, *source.shape)
    if array.shape != expected or array.dtype != np.uint8:
        reason = f"it should hold {expected} uint8 but holds {array.shape} {array.dtype}"
        raise damaged(path, source, reason)
    return array


def _idx_images(folder: Path, file: DataFile, source: Source) -> np.ndarray:
    path = folder / file.name
    content = read_verified(path, file, source)
    if content[:4] != _IDX_MAGIC or len(content) < _IDX_HEADER.size:
        raise damaged(path, source, "it does not start with the magic number 2051 of idx images")
    _, *shape = _IDX_HEADER.unpack_from(content)
    pixels = np.frombuffer(content, np.uint8, offset=_IDX_HEADER.size)
    if pixels.size != math.prod(shape):
        reason = f"its header promises {math.prod(shape)} pixels but {pixels.size} follow"
        raise damaged(path, source, reason)
    return pixels.reshape(shape)


def _upright(columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    # MATLAB stores a picture column by column, so its rows and columns come out exchanged.
    pictures = columns.T.reshape(-1, *shape[::-1]).swapaxes(1, 2)
    return np.ascontiguousarray(np.rint(255 * pictures).astype(np.uint8))
