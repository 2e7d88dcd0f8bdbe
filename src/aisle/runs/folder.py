"""The folder of a run: its settings in `config.json`, its history in `metrics.jsonl`.

Whenever the process is killed, both can be read: the settings are replaced whole or not at all, and
of the history at most the last line is lost.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aisle.errors import InputError
from aisle.files import disk_errors, finite, json_text, locked, parsed, write_bytes
from aisle.provenance import provenance
from aisle.runs.events import EventFile
from aisle.runs.tensors import FORMAT, check_format

_CONFIG = "config.json"
_METRICS = "metrics.jsonl"


def create(path: Path, config: Mapping[str, object]) -> None:
    """Make the folder of a new run, with its settings and where they come from."""
    check_new(path)
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    update_config(path, {**config, "provenance": provenance()})


def check_new(path: Path) -> None:
    """Refuse the folder of a new run if there is anything in it."""
    with disk_errors(path):
        files = list(path.iterdir()) if path.exists() else []
    # A process that was killed while it wrote the settings leaves no run behind.
    files = [file for file in files if not file.match(".config.json.*.partial")]
    if path / _CONFIG in files:
        raise InputError(f"{path} holds a run already: resume it, or choose another folder")
    if files:
        raise InputError(f"{path} holds files that are not of a run: choose another folder")


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings of a run; `format` is 1 in those of the first edition."""
    file = path / _CONFIG
    try:
        config = parsed(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        what = "is not a run, as it has no config.json" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: give the folder of a run") from None
    except OSError as error:
        raise _unreadable(file, error) from None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise InputError(
            f"{file} is damaged, as it is not a JSON object: restore it from a backup, or start a "
            "new run"
        )
    check_format(file, config)
    return {"format": 1, **config}


def how_to_resume(path: Path, config: Mapping[str, object]) -> str:
    """Return the command, or the call, that resumes a run."""
    return f"aisle train --resume {path}" if "train" in config else "aisle.fit(..., resume=True)"


def update_config(path: Path, config: Mapping[str, object]) -> None:
    """Replace the settings of a run, whole or not at all."""
    write_bytes(path / _CONFIG, json_text({"format": FORMAT, **config}).encode())


def held(path: Path) -> AbstractContextManager[None]:
    """Keep other processes from training the same run, for as long as this one does."""
    return locked(path, "is being trained by another process")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a run, without a last line that a kill left half-written."""
    return [record for _, record in _lines(path / _METRICS)]


def last_metrics(path: Path) -> dict[str, Any]:
    """Return the last record of a run; {} if there is none."""
    return next(reversed(read_metrics(path)), {})


class MetricsWriter(AbstractContextManager["MetricsWriter"]):
    """Append records to the `metrics.jsonl` of a run, and on request to TensorBoard's files.

    With `resume_at`, the records of later updates are dropped first:
    the run writes them again.
    """

    def __init__(
        self, path: Path, *, resume_at: int | None = None, tensorboard: bool = False
    ) -> None:
        self._path = path / _METRICS
        _drop_later(self._path, math.inf if resume_at is None else resume_at)
        with disk_errors(path):
            self._events = EventFile(path / "tensorboard", resume_at) if tensorboard else None
            # Without a buffer, so that what could not be written is not tried again on closing.
            self._file = self._path.open("ab", buffering=0)

    def write(self, records: Iterable[Mapping[str, object]]) -> None:
        """Append records, one per line, and return when the system has them.

        Arrays of NumPy and JAX have at most one axis; their floating-point numbers keep 7
        significant digits. Numbers that are not finite become null, as JSON has none.
        """
        plain = [finite({name: _plain(a) for name, a in record.items()}) for record in records]
        lines = [json.dumps(record, allow_nan=False) + "\n" for record in plain]
        with disk_errors(self._path):
            self._append("".join(lines).encode())
            if self._events is not None:
                self._events.write(plain)

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._file.close()
        if self._events is not None:
            self._events.close()

    def _append(self, content: bytes) -> None:
        start = os.fstat(self._file.fileno()).st_size
        try:
            while content:
                content = content[self._file.write(content) :]
        except OSError:
            # A full disk takes the first part: all of a call is in the file, or nothing.
            self._file.truncate(start)
            raise


def _plain(value: Any) -> Any:
    """Return what JSON can hold of a value, but for numbers that are not finite."""
    if not isinstance(value, np.ndarray | np.generic | jax.Array):
        return value
    array = np.asarray(value)
    if array.ndim > 1:
        raise ValueError(f"a metric has the shape {array.shape}: it may have one axis at most")
    if array.dtype.kind in "biu":
        return array.tolist()
    numbers = [float(f"{number:.7g}") for number in array.astype(np.float64).reshape(-1)]
    return numbers if array.ndim else numbers[0]


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
        write_bytes(file, kept)


def _lines(file: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: give the folder of a run") from None
    except OSError as error:
        raise _unreadable(file, error) from None
    for number, line in enumerate(lines, 1):
        try:
            record = parsed(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            yield line, record
        elif number < len(lines) or line.endswith(b"\n"):
            raise InputError(
                f"{file} is damaged: line {number} is not a JSON object; restore the file from a "
                "backup, or delete that line"
            )


def _unreadable(file: Path, error: OSError) -> InputError:
    return InputError(f"cannot read {file} ({error.strerror}): check the file and its permissions")
