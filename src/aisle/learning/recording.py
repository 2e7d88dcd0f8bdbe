"""What a run keeps: the protocol of whoever writes it down, and one that keeps nothing."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from aisle.learning.updates import TrainState
from aisle.statistics import Mean


class Best(NamedTuple):
    """The weights of the highest bound on held-out examples, in the present phase.

    Attributes:
        weights: the arrays of (model, proposal), or None where the last ones are kept.
        bound: -inf as long as none was measured in this phase.
        update: at which it was measured.
        phase: in which it was measured.
        num_since: bounds measured since then.
    """

    weights: PyTree
    bound: Any
    update: Any
    phase: Any
    num_since: Any

    @classmethod
    def of(cls, weights: PyTree, bound: float = -np.inf, update: int = 0, phase: int = 0) -> "Best":
        """Return weights with the bound just measured, if any; all arrays are NumPy's."""
        return cls(weights, np.float32(bound), np.int32(update), np.int32(phase), np.int32(0))

    def after(self, held_out: Mean | None, arrays: PyTree, update: int, phase: int) -> "Best":
        """Return the best weights so far; bounds of different phases are not compared."""
        best = Best.of(self.weights, phase=phase) if phase > int(self.phase) else self
        if held_out is None:
            return best
        if not held_out.mean > best.bound:
            return best._replace(num_since=np.int32(best.num_since + 1))
        weights = None if best.weights is None else jax.tree.map(np.asarray, arrays)
        return Best.of(weights, held_out.mean, update, phase)


class Snapshot(NamedTuple):
    """Everything that a run needs to resume; `best` is None where nothing is held out."""

    state: TrainState
    best: Best | None


class Recorder:
    """Keeps nothing. Subclasses write a run down; only the first process has one that does."""

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        """Close what is open."""

    def restore(self, like: Callable[[int], Snapshot]) -> Snapshot | None:
        """Return the newest snapshot, or None; `like` says what one at an update looks like."""
        del like

    def begin(self, update: int) -> float:
        """Begin to write after `update`; return the seconds that the run took before."""
        del update
        return 0.0

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records of metrics."""

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint."""

    def is_due(self) -> bool:
        """Say whether it is time for another checkpoint."""
        return False
