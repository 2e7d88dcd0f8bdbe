"""What a run keeps: the protocol of whoever writes it down, and one that keeps nothing."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jaxtyping import PyTree

from aisle.learning.updates import TrainState


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
