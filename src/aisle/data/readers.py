"""Read the forms in which the named data sets come, as uint8 arrays of upright pictures.

Every reader takes the folder, the form found there and the data set, which says what to expect;
it returns the training and the test array, of shape (N, height, width).
"""

import gzip
import hashlib
import io
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from typing import IO

import numpy as np

from aisle.data.sources import DataFile, Form, Source
from aisle.data.split import Split
from aisle.errors import InputError

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
        _idx_images(folder / train.name, train, source, source.num_train),
        _idx_images(folder / test.name, test, source, source.num_test),
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
    return checked(train, test, path, source)


def read_npz(folder: Path, form: Form, source: Source) -> Arrays:
    """Read `train` and `test` of an npz file."""
    (file,) = form.files
    path = folder / file.name
    content = read_verified(path, file, source)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            train, test = (read_member(archive, name) for name in ("train", "test"))
    except (*DAMAGE, MemoryError, TypeError):
        raise damaged(path, source, "it is not an npz file with `train` and `test`") from None
    return checked(train, test, path, source)


def read_member(
    archive: zipfile.ZipFile,
    name: str,
    check: Callable[[tuple[int, ...], np.dtype], None] | None = None,
) -> np.ndarray:
    """Read an array of an npz file, after a look at its header has shown that it can be used.

    Raise one of `DAMAGE`, or MemoryError for one that is larger than the memory: a small archive
    can promise any size.
    """
    with archive.open(f"{name}.npy") as file:
        shape, dtype = read_header(file)
        start = file.tell()
    if check is not None:
        check(shape, dtype)
    promised = math.prod(shape) * dtype.itemsize
    held = archive.getinfo(f"{name}.npy").file_size - start
    if promised != held:
        raise ValueError(f"{name} promises {promised} bytes of values but {held} follow")
    if promised > _memory():
        raise MemoryError
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def read_header(file: IO[bytes] | BufferedIOBase) -> tuple[tuple[int, ...], np.dtype]:
    """Return what an array is, before any of it is read."""
    version = np.lib.format.read_magic(file)
    # The third version differs from the second in the names of fields, which examples lack.
    first, others = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of headers that Python 2 wrote
            shape, _, dtype = (first if version == (1, 0) else others)(file)
    except (SyntaxError, TypeError, tokenize.TokenError):
        # NumPy reads the header as Python.
        raise ValueError("its header cannot be read") from None
    return shape, dtype


def _memory() -> int | float:
    """Return the bytes of memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return math.inf


def checked(train: np.ndarray, test: np.ndarray, path: Path, source: Source) -> Arrays:
    """Return the two parts of a data set if they have the shapes that belong to it."""
    return (
        _checked(train, source.num_train, path, source),
        _checked(test, source.num_test, path, source),
    )


def _checked(array: np.ndarray, count: int, path: Path, source: Source) -> np.ndarray:
    expected = (count, *source.shape)
    if array.shape != expected or array.dtype != np.uint8:
        reason = f"it should hold {expected} uint8 but holds {array.shape} {array.dtype}"
        raise damaged(path, source, reason)
    return array


def _idx_images(path: Path, file: DataFile, source: Source, count: int) -> np.ndarray:
    content = read_verified(path, file, source)
    if content[:4] != _IDX_MAGIC or len(content) < _IDX_HEADER.size:
        raise damaged(path, source, "it does not start with the magic number 2051 of idx images")
    _, *shape = _IDX_HEADER.unpack_from(content)
    pixels = np.frombuffer(content, np.uint8, offset=_IDX_HEADER.size)
    if pixels.size != math.prod(shape):
        reason = f"its header promises {math.prod(shape)} pixels but {pixels.size} follow"
        raise damaged(path, source, reason)
    return _checked(pixels.reshape(shape), count, path, source)


def _upright(columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    # MATLAB stores a picture column by column, so its rows and columns come out exchanged.
    pictures = columns.T.reshape(-1, *shape[::-1]).swapaxes(1, 2)
    return np.ascontiguousarray(np.rint(255 * pictures).astype(np.uint8))


def checksum(content: bytes, algorithm: str) -> str:
    """Return "algorithm:digest" of some bytes."""
    # Against accidents only; and a hardened Python refuses md5 for anything else.
    return f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"


def read_verified(path: Path, file: DataFile, source: Source) -> bytes:
    """Return what is in a file, unzipped if it is a gzip file, after checking its hash."""
    try:
        if path.suffix == ".gz":
            # No more than it can be, and one byte: a small file can be zipped from any size.
            most = _IDX_HEADER.size + source.num_train * math.prod(source.shape)
            with gzip.open(path) as zipped:
                content = zipped.read(most + 1)
        else:
            content = path.read_bytes()
    except MemoryError:
        raise damaged(path, source, "it is larger than the memory") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise damaged(path, source, "it is cut short, or not a gzip file") from None
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror}): check the file and its permissions"
        ) from None
    expected = file.content or file.checksum
    if expected and (found := checksum(content, expected.partition(":")[0])) != expected:
        raise damaged(path, source, f"it should have {expected} but has {found}")
    return content


def damaged(path: Path, source: Source, reason: str) -> InputError:
    """Return the error for a file of a named data set that is not what it should be."""
    return InputError(
        f"{path} cannot be used: {reason}; delete it and run `aisle data fetch {source.name}`"
    )
