"""The order of the examples, and their way to the devices."""

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from aisle import processes
from aisle.data import Split
from aisle.learning.updates import Batches

# Data up to this size live on every device; larger ones are streamed, a chunk ahead.
RESIDENT_BYTES = 1 << 30
STREAMED_BYTES = 1 << 28


class Chunk(NamedTuple):
    """Some updates of one epoch."""

    first_update: int
    num_updates: int


class Feeder:
    """Hands out the batches of any chunk of training, from memory or streamed from disk.

    Each epoch is a new permutation of the examples, from the seed and the epoch alone, cut into
    batches; the few examples that are left over wait for another epoch.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        seed: int,
        mesh: jax.sharding.Mesh,
        *,
        resident_bytes: int = RESIDENT_BYTES,
    ):
        """Put the examples on the devices, if they fit."""
        self.updates_per_epoch = len(split) // batch_size
        self.batch_size, self.mesh = batch_size, mesh
        self.everywhere = jax.NamedSharding(mesh, jax.P())
        self._split, self._seed = split, seed
        self._over_batch = jax.NamedSharding(mesh, jax.P(None, "batch"))
        self._weights = split.relative_weights
        self._resident = None
        if len(split) * split.bytes_per_example <= resident_bytes:
            every = np.arange(len(split))
            rows = split.with_context(split.take(every), every)
            self._resident = processes.place((rows, self._weights), self.everywhere)
        self._order = functools.lru_cache(maxsize=2)(self._permutation)
        self._worker = ThreadPoolExecutor(1, "aisle-feeder")
        self._ahead: tuple[Chunk, Future[Batches]] | None = None

    def largest_chunk(self, wanted: int) -> int:
        """Return how many updates a chunk may have: fewer than wanted if examples are large."""
        if self._resident is not None:
            return wanted
        num_bytes = self.batch_size * self._split.bytes_per_example
        return max(1, min(wanted, STREAMED_BYTES // max(1, num_bytes)))

    def batches(self, chunk: Chunk, following: Chunk | None, capacity: int) -> Batches:
        """Return the batches of `chunk`, padded to `capacity`, and begin to read `following`."""
        if self._ahead is not None and self._ahead[0] == chunk:
            found = self._ahead[1].result()
        else:
            found = self._load(chunk, capacity)
        self._ahead = None
        if following is not None and self._resident is None:
            self._ahead = (following, self._worker.submit(self._load, following, capacity))
        return found

    def close(self) -> None:
        """Stop reading ahead."""
        self._worker.shutdown(cancel_futures=True)

    def _load(self, chunk: Chunk, capacity: int) -> Batches:
        epoch, first = divmod(chunk.first_update, self.updates_per_epoch)
        order = self._order(epoch)
        start = first * self.batch_size
        places = np.zeros((capacity, self.batch_size), np.int32)
        chosen = order[start : start + chunk.num_updates * self.batch_size]
        places[: chunk.num_updates] = chosen.reshape(-1, self.batch_size)
        indices = self._split.numbers(places).astype(np.int32)
        if self._resident is not None:
            rows, weights = self._resident
        else:
            flat = places.ravel()
            rows = self._split.with_context(self._split.take(flat), flat)
            weights = None if self._weights is None else self._weights[flat]
            # Padding repeats the first example, so that the shape does not depend on the chunk.
            places = np.arange(places.size, dtype=np.int32).reshape(places.shape)
        return Batches(
            processes.place(rows, self.everywhere),
            processes.place(places, self._over_batch),
            processes.place(indices, self._over_batch),
            processes.place(weights, self.everywhere),
        )

    def _permutation(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self._seed, epoch]).permutation(len(self._split))
