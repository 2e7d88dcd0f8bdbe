"""The folder of a run: its settings in `config.json`, its history in `metrics.jsonl`.

Whenever the process is killed, both can be read: the settings are replaced at once or not at all,
and of the history at most the last line is lost.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aisle.errors import InputError
from aisle.files import alone_in, disk_errors, writing
from aisle.provenance import provenance

# From the end of a history, more than a record takes.
_LAST_BYTES = 1 << 22


def create(path: Path, config: Mapping[str, object]) -> None:
    """Make the folder of a new run, with its settings and where they come from."""
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        if _config_file(path).exists():
            raise InputError(
                f"{path} exists: resume it (--resume {path}, in Python resume=True), or choose "
                "another --out"
            )
        # What a process that was killed right here has left is not somebody else's.
        if any(not file.match(".config.json.*.partial") for file in path.iterdir()):
            raise InputError(
                f"{path} exists, with other files than those of a run: choose another --out"
            )
    update_config(path, {**config, "provenance": provenance()})


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings of a run."""
    try:
        config = json.loads(_config_file(path).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        what = "is not a run, as it has no config.json" if path.exists() else "does not exist"
        raise InputError(
            f"{path} {what}: give the folder of a run, the --out of `aisle train`"
        ) from None
    except OSError as error:
        raise _unreadable(_config_file(path), error) from None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise InputError(
            f"{_config_file(path)} is damaged, as it is not a JSON object: restore it from a "
            "backup, or start a new run"
        )
    return config


def update_config(path: Path, config: Mapping[str, object]) -> None:
    """Replace the settings of a run, at once or not at all."""
    content = json.dumps(dict(config), indent=2, allow_nan=False) + "\n"
    _replace(_config_file(path), content.encode())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a run, without a last line that a kill left half-written."""
    return [record for _, record in _lines(_metrics_file(path))]


def last_metrics(path: Path) -> dict[str, Any]:
    """Return the last record of a run without reading all before it; {} if there is none."""
    file = _metrics_file(path)
    try:
        with file.open("rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = handle.read().splitlines()
    except OSError as error:
        raise _unreadable(file, error) from None
    # The first line may be cut by the seek, and the last one by a kill.
    return next(filter(None, map(_record, reversed(lines))), {})


def held(path: Path) -> AbstractContextManager[None]:
    """Keep other processes from training the same run, for as long as this one does."""
    return alone_in(path, "is being trained by another process")


class MetricsWriter:
    """Append records to the `metrics.jsonl` of a run, and on request to TensorBoard's files.

    Use it as a context manager. With `resume_at`, the records of later updates are dropped first:
    the run writes them again.
    """

    def __init__(
        self, path: Path, *, resume_at: int | None = None, tensorboard: bool = False
    ) -> None:
        self._path = _metrics_file(path)
        _drop_later(self._path, math.inf if resume_at is None else resume_at)
        with disk_errors(path):
            board = path / "tensorboard"
            self._board = _TensorBoard(board, resume_at) if tensorboard else None
            # Without a buffer, so that what could not be written is not tried again on closing.
            self._file = self._path.open("ab", buffering=0)

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, records: Iterable[Mapping[str, object]]) -> None:
        """Append records, one per line, and return when the system has them.

        Arrays of NumPy and JAX have at most one axis; their floating-point numbers keep 7
        significant digits. Numbers that are not finite become null, as JSON has none.
        """
        plain = [{name: _plain(value) for name, value in record.items()} for record in records]
        lines = [json.dumps(record, allow_nan=False) + "\n" for record in plain]
        with disk_errors(self._path):
            self._append("".join(lines).encode())
            if self._board is not None:
                self._board.write(plain)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()

    def _append(self, content: bytes) -> None:
        start = os.fstat(self._file.fileno()).st_size
        try:
            while content:
                content = content[self._file.write(content) :]
        except OSError:
            # A full disk takes the first part: all of a call is in the file, or nothing.
            self._file.truncate(start)
            raise


class _TensorBoard:
    """The scalars of the records as an event file, by the `tensorboard` package alone."""

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

    def write(self, records: list[dict[str, Any]]) -> None:
        """Add all numbers of the records that have an update."""
        for record in records:
            if isinstance(record.get("update"), int):
                values = [
                    self._summary.Value(tag=tag, simple_value=value)
                    for tag, value in _scalars(record)
                ]
                self._add(step=record["update"], summary=self._summary(value=values))
        self._writer.flush()

    def close(self) -> None:
        """Write what is left and end the writer's thread."""
        self._writer.close()

    def _add(self, **content: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), **content))


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        parts = (
            [(f"{name}/{index}", part) for index, part in enumerate(value)]
            if isinstance(value, list)
            else [(name, value)]
        )
        for tag, number in parts:
            if tag != "update" and isinstance(number, int | float):
                yield tag, float(number)


def _plain(value: Any) -> Any:
    """Return what JSON can hold of a value."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _rounded(np.asarray(value))
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _rounded(array: np.ndarray) -> Any:
    if array.ndim > 1:
        raise ValueError(f"a metric has the shape {array.shape}: it may have one axis at most")
    if array.dtype.kind in "biu":
        return array.tolist()
    numbers = [float(f"{number:.7g}") for number in array.astype(np.float64).reshape(-1)]
    return _plain(numbers if array.ndim else numbers[0])


def _drop_later(file: Path, update: int | float) -> None:
    """Rewrite a history without the later updates, nor half a line at its end."""
    if not file.exists():
        return
    kept = b"".join(
        line.rstrip(b"\n") + b"\n"
        for line, record in _lines(file)
        if not (isinstance(at := record.get("update"), int) and at > update)
    )
    # Compared by size: all that can have changed is what is missing.
    if len(kept) != file.stat().st_size:
        _replace(file, kept)


def _lines(file: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: give the folder of a run") from None
    except OSError as error:
        raise _unreadable(file, error) from None
    for number, line in enumerate(lines, 1):
        record = _record(line)
        if record is not None:
            yield line, record
        elif number < len(lines) or line.endswith(b"\n"):
            raise InputError(
                f"{file} is damaged: line {number} is not a JSON object; restore the file from a "
                "backup, or delete that line"
            )


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _config_file(path: Path) -> Path:
    return path / "config.json"


def _metrics_file(path: Path) -> Path:
    return path / "metrics.jsonl"


def _replace(file: Path, content: bytes) -> None:
    with writing(file) as part:
        part.write_bytes(content)


def _unreadable(file: Path, error: OSError) -> InputError:
    return InputError(f"cannot read {file} ({error.strerror}): check the file and its permissions")
