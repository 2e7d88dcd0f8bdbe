"""Writes a run down while it trains: metrics, and checkpoints that it can resume from."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisle.errors import check, check_count, check_real
from aisle.learning.history import report
from aisle.learning.recording import Recorder, Snapshot
from aisle.objects import Chosen
from aisle.runs import checkpoints, folder
from aisle.runs.events import check_installed


@dataclass(frozen=True, repr=False)
class RunFolder(Chosen):
    """Where a run is written, and how often.

    Example:
        >>> from pathlib import Path
        >>> aisle.RunFolder(Path("runs/mine"), checkpoint_minutes=10).keep_checkpoints
        3

    Attributes:
        path: of the folder.
        checkpoint_minutes: between two checkpoints; the last state is always kept.
        keep_checkpoints: how many of them stay on disk.
        tensorboard: whether to write the metrics for TensorBoard too.
    """

    path: str | Path
    checkpoint_minutes: float | int = 5.0
    keep_checkpoints: int = 3
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_real("checkpoint_minutes", self.checkpoint_minutes)
        is_kept = 0 <= self.checkpoint_minutes < float("inf")
        check(is_kept, "checkpoint_minutes", self.checkpoint_minutes, "finite, 0 or more")
        check_count("keep_checkpoints", self.keep_checkpoints)
        if self.tensorboard:
            check_installed()

    @property
    def folder(self) -> Path:
        """The folder as a path."""
        return Path(self.path)


class FolderRecorder(Recorder):
    """Writes into the folder of a run."""

    def __init__(self, place: RunFolder, config: Mapping[str, Any], *, resume: bool):
        """Write nothing yet; `config` is what config.json is to say."""
        self._place, self._config, self._resume = place, config, resume
        self._stack = ExitStack()
        self._writer: folder.MetricsWriter | None = None
        self._saved_at = time.perf_counter()

    def __enter__(self) -> "FolderRecorder":
        """Make the folder of a new run, and keep other processes from training it."""
        if not self._resume:
            folder.create(self._place.folder, self._config)
        self._stack.enter_context(folder.held(self._place.folder))
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._stack.close()

    def restore(self, like: Callable[[int], Snapshot]) -> Snapshot | None:
        """Return the newest checkpoint that is whole."""
        found = checkpoints.restore(self._place.folder, like, report=report)
        return None if found is None else found[1]

    def begin(self, update: int) -> float:
        """Drop the metrics of later updates, which are made again."""
        path = self._place.folder
        if self._resume:
            folder.update_config(path, {**folder.read_config(path), **self._config})
        writer = folder.MetricsWriter(path, resume_at=update, tensorboard=self._place.tensorboard)
        self._writer = self._stack.enter_context(writer)
        return folder.last_metrics(path).get("seconds", 0.0)

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records to metrics.jsonl."""
        assert self._writer is not None
        self._writer.write(records)

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint."""
        update = int(snapshot.state.update)
        checkpoints.save(self._place.folder, update, snapshot, keep=self._place.keep_checkpoints)
        self._saved_at = time.perf_counter()

    def is_due(self) -> bool:
        """Say whether it is time for another checkpoint."""
        return time.perf_counter() - self._saved_at > 60 * self._place.checkpoint_minutes
