"""Examples as rows of an array that may be larger than memory."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aisle.errors import InputError

# What one pass over the data holds in memory at a time.
CHUNK_BYTES = 1 << 25


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of an array that belong together, such as the examples to train on.

    Attributes:
        array: examples along the first axis, in memory or memory-mapped; uint8 (read as
            value / 255), bool (handed out as uint8, 0 and 255) or floating point.
        rows: which rows of `array` belong to the split, or None for all of them.
    """

    array: np.ndarray
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.array if self.rows is None else self.rows)

    @property
    def num_features(self) -> int:
        """The number D of values in one example."""
        return math.prod(self.array.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        """The type of what `take` returns: as stored, in the byte order of this machine."""
        stored = self.array.dtype
        return np.dtype(np.uint8) if stored == np.bool_ else stored.newbyteorder("=")

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Return the examples at `indices` in memory, one contiguous row of D values for each."""
        return self._flat(self.array[indices if self.rows is None else self.rows[indices]])

    def chunks(self, num_bytes: int = CHUNK_BYTES) -> Iterator[np.ndarray]:
        """Yield all examples in order, as blocks of rows of at most about `num_bytes`."""
        length = max(1, num_bytes // max(1, self.num_features * self.dtype.itemsize))
        for start in range(0, len(self), length):
            part = slice(start, start + length)
            yield self._flat(self.array[part if self.rows is None else self.rows[part]])

    def mean(self) -> np.ndarray:
        """Return the mean of each of the D values over the split; uint8 counts as value / 255."""
        # Sums of uint8 are exact in integers; sums of floats need double precision.
        exact = np.uint64 if self.dtype == np.uint8 else np.float64
        total = sum(
            (block.sum(axis=0, dtype=exact) for block in self.chunks()),
            start=np.zeros(self.num_features, exact),
        )
        return total / (len(self) * (255 if self.dtype == np.uint8 else 1))

    def digest(self, num_rows: int = 1000) -> str:
        """Return a hash of the number of examples, and of some of them, spread evenly."""
        chosen = np.unique(np.linspace(0, len(self) - 1, num_rows).astype(int))
        rows = self.take(chosen)
        content = f"{len(self)} {rows.dtype} {rows.shape}".encode() + rows.tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    def fits_in(self, num_bytes: int) -> bool:
        """Say whether all examples together take at most `num_bytes`."""
        return len(self) * self.num_features * self.dtype.itemsize <= num_bytes

    def _flat(self, examples: np.ndarray) -> np.ndarray:
        rows = examples.reshape(len(examples), self.num_features)
        if rows.dtype == np.bool_:
            return rows * np.uint8(255)
        return np.ascontiguousarray(rows, self.dtype)


def spread(available: int, wanted: int) -> np.ndarray:
    """Choose examples evenly from all, as a data set may be in order of its classes."""
    if wanted < 1:
        raise InputError(f"num_examples is {wanted}: it must be at least 1")
    number = min(wanted, available)
    return np.arange(number) * available // number


def as_values(array: Any) -> Any:
    """Return an array as a model sees it: uint8 as value / 255, bool as 0 and 1."""
    if array.dtype == np.uint8:
        return array.astype(np.float32) / 255
    return array.astype(np.float32) if array.dtype == np.bool_ else array


class Dataset(NamedTuple):
    """A data set in its two parts.

    Attributes:
        name: what it was loaded as; for a file, its name without the ending.
        train: the examples to learn from.
        test: the examples held out.
        shape: the shape of one example, such as (28, 28) for a picture.
        source: the file or files that it came from, with a note if they are a reconstruction.
    """

    name: str
    train: Split
    test: Split
    shape: tuple[int, ...]
    source: str
