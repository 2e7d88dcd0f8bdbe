"""Examples along the first axis of a pytree of arrays, which may be larger than memory."""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree
from numpy.typing import ArrayLike

from aisle.context import Context, InContext, in_context, masked
from aisle.data.tables import Table
from aisle.data.view import View
from aisle.errors import InputError, check_count
from aisle.types import Observation

# What one pass over the data holds in memory at a time.
CHUNK_BYTES = 1 << 25


@dataclass(frozen=True, eq=False)
class Split:
    """The examples that belong together, such as those to train on.

    Example:
        >>> split = aisle.Split(np.uint8([[0, 255], [51, 0]]), view=aisle.View(is_grey=True))
        >>> len(split), split.observe([1]).round(3).tolist()
        (2, [[0.20000000298023224, 0.0]])

    Attributes:
        arrays: examples along the first axis of each leaf, in memory or memory-mapped.
        rows: which rows of the arrays belong to the split, or None for all of them.
        view: how a stored example becomes what the model sees; by default as it is.
        context: what belongs to the examples and is not modelled, an `aisle.Context` or any pytree
            that the model takes, with a row for each row of the arrays; None for none.
        has_missing: whether NaN stands for a missing value, of which the context then tells; set
            for models that know of them.
        weights: how much each row of the arrays counts in training, relative to the mean; None for
            all alike.
    """

    arrays: PyTree
    rows: np.ndarray | None = None
    view: View = field(default_factory=View)
    context: PyTree | None = None
    has_missing: bool = False
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(jax.tree.leaves(self.arrays)[0] if self.rows is None else self.rows)

    @property
    def example(self) -> Observation:
        """One example as the model sees it: shapes and types, without values."""
        stored = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), self.arrays)
        return jax.eval_shape(self.view.fixed, stored, jax.ShapeDtypeStruct((), jnp.int32))

    @property
    def example_context(self) -> PyTree | None:
        """The context of the first example, or None."""
        return jax.tree.map(lambda a: jnp.asarray(a[0]), self.context_of([0]))

    @property
    def relative_weights(self) -> np.ndarray | None:
        """How much each example counts, 1 on average, or None for all alike."""
        if self.weights is None:
            return None
        own = np.asarray(self.weights, np.float64)[self.numbers(np.arange(len(self)))]
        return (own / own.mean()).astype(np.float32)

    @property
    def bytes_per_example(self) -> int:
        """Bytes of one stored example."""
        leaves = jax.tree.leaves((self.arrays, self.context))
        return sum(math.prod(a.shape[1:]) * a.dtype.itemsize for a in leaves)

    def numbers(self, indices: ArrayLike) -> np.ndarray:
        """Return the rows of the arrays that some examples are: what identifies them."""
        indices = np.asarray(indices)
        return indices if self.rows is None else self.rows[indices]

    def take(self, indices: ArrayLike) -> PyTree:
        """Return stored examples, in memory and in the byte order of this machine."""
        rows = self.numbers(indices)
        return jax.tree.map(lambda a: _own(a[rows]), self.arrays)

    def observe(self, indices: ArrayLike) -> PyTree:
        """Return examples as the model sees them; bits are drawn once and for all."""
        return _observe(self.view, self.take(indices), self.numbers(indices).astype(np.int32))

    def context_of(self, indices: ArrayLike) -> PyTree | None:
        """Return the context of examples, or None if they have none."""
        rows = self.numbers(indices)
        context = jax.tree.map(lambda a: _own(np.asarray(a)[rows]), self.context)
        if self.has_missing:
            context = masked(self.take(indices), context)
        if self.view.is_flat and isinstance(context, Context):
            is_observed = jax.tree.map(lambda a: a.reshape(len(a), -1), context.is_observed)
            context = context._replace(is_observed=is_observed)
        return context

    def with_context(self, examples: PyTree, indices: ArrayLike) -> PyTree | InContext:
        """Return what `take` or `observe` returned, with the context if there is one."""
        return in_context(examples, self.context_of(indices))

    def chunks(self, num_bytes: int = CHUNK_BYTES) -> Iterator[PyTree]:
        """Yield all stored examples in order, as blocks of rows of at most about `num_bytes`."""
        length = max(1, num_bytes // max(1, self.bytes_per_example))
        for start in range(0, len(self), length):
            yield self.take(np.arange(start, min(start + length, len(self))))

    def mean(self) -> np.ndarray:
        """Return the mean of each feature of examples that are one array, as the model sees it."""
        total = np.zeros(jax.tree.leaves(self.arrays)[0].shape[1:])
        for block in self.chunks():
            # Sums of whole numbers are exact in integers; sums of floats need double precision.
            exact = np.float64 if block.dtype.kind == "f" else np.int64
            total = total + block.sum(axis=0, dtype=exact)
        return total.reshape(self.example.shape) / (len(self) * self.view.unit)

    def digest(self, num_rows: int = 1000) -> str:
        """Return a hash of the number of examples, and of some of them, spread evenly."""
        chosen = np.unique(np.linspace(0, len(self) - 1, num_rows).astype(int))
        state = hashlib.sha256()
        beside = (self.context, self.weights)
        beside = jax.tree.map(lambda a: np.asarray(a)[self.numbers(chosen)], beside)
        for leaf in jax.tree.leaves((self.take(chosen), beside)):
            rows = leaf.reshape(len(chosen), -1)
            # The first edition stored bits so, and its runs still know their data.
            rows = rows * np.uint8(255) if rows.dtype == np.bool_ else rows
            state.update(f"{len(self)} {rows.dtype} {rows.shape}".encode() + rows.tobytes())
        return state.hexdigest()[:16]

    def without(self, number: int, seed: int = 2021) -> tuple["Split", "Split"]:
        """Return the split without some examples, and those: the same ones for the same number.

        Both are in ascending order, so that a pass over a file reads it from front to back.
        """
        if not 0 < number < len(self):
            raise InputError(
                f"{number} of {len(self)} examples cannot be split off: at least 1 must be left, "
                "and at least 1 taken"
            )
        # Not `default_rng`: NumPy promises that only this older stream will never change.
        order = np.random.RandomState(seed).permutation(len(self))
        rest, taken = np.sort(order[number:]), np.sort(order[:number])
        return (
            dataclasses.replace(self, rows=self.numbers(rest)),
            dataclasses.replace(self, rows=self.numbers(taken)),
        )


@functools.partial(jax.jit, static_argnums=0)
def _observe(view: View, stored: PyTree, numbers: Int[Array, " examples"]) -> PyTree:
    return jax.vmap(view.fixed)(stored, numbers)


def _own(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows, rows.dtype.newbyteorder("="))


def spread(available: int, wanted: int) -> np.ndarray:
    """Choose examples evenly from all, as a data set may be in order of its classes."""
    check_count("num_examples", wanted)
    number = min(wanted, available)
    return np.arange(number) * available // number


class Dataset(NamedTuple):
    """A data set in its three parts; nothing is chosen by the last one.

    Attributes:
        name: what it was loaded as; for a file, its name without the ending.
        train: the examples to learn from.
        valid: the examples that choices are made by, or None.
        test: the examples that results are reported on.
        shape: the shape of one example, such as (28, 28) for a picture.
        source: the file or files that it came from, with a note if they are a reconstruction.
        table: what the columns are, where the data are a table.
    """

    name: str
    train: Split
    valid: Split | None
    test: Split
    shape: tuple[int, ...]
    source: str
    table: Table | None = None

    @property
    def splits(self) -> dict[str, Split]:
        """Return the parts that are there, by their names."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: split for name, split in parts.items() if split is not None}
