"""The metrics of a run as an event file of TensorBoard, by the `tensorboard` package alone."""

import importlib.util
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aisle.errors import InputError


def check_installed() -> None:
    """Refuse to promise a file of TensorBoard where it is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise InputError(
            "tensorboard is asked for but not installed: pip install 'aisle[tensorboard]'"
        )


class EventFile:
    """An event file in a folder; with `resume_at`, it replaces what others say of later updates."""

    def __init__(self, folder: Path, resume_at: int | None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        # Their classes are made at run time, where no type checker sees them.
        events: Any = event_pb2
        summaries: Any = summary_pb2
        self._event, self._summary = events.Event, summaries.Summary
        self._writer = EventFileWriter(str(folder))
        if resume_at is not None:
            # TensorBoard then forgets what earlier files say of this step and later ones.
            start = events.SessionLog(status=events.SessionLog.START)
            self._add(step=resume_at + 1, session_log=start)

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Add all numbers of the records that have an update."""
        for record in records:
            if isinstance(record.get("update"), int):
                value = self._summary.Value
                values = [value(tag=tag, simple_value=at) for tag, at in _scalars(record)]
                self._add(step=record["update"], summary=self._summary(value=values))
        self._writer.flush()

    def close(self) -> None:
        """Write what is left and end the writer's thread."""
        self._writer.close()

    def _add(self, **content: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), **content))


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, list):
            yield from _scalars({f"{name}/{index}": part for index, part in enumerate(value)})
        elif name != "update" and isinstance(value, int | float):
            yield name, float(value)
