"""How to write files: whole or not at all, by one process at a time, as JSON that all can read."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from aisle.errors import InputError


@contextmanager
def disk_errors(
    place: Path, fix: str = "make room, or choose a folder that exists and can be written to"
) -> Iterator[None]:
    """Tell the user in one line why something cannot be written, and what to do."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {place} ({error.strerror or error}): {fix}") from None


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a file to write, as `replacing` does, and tell the user if it cannot be written."""
    with disk_errors(path), replacing(path) as part:
        yield part


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file to write, which takes the place of `path` if the block ends without an error."""
    # In the same folder, so that the last step is a rename: it happens at once or not at all.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        # Before the rename, or a power cut could leave the name with nothing in it.
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, and tell the user if it cannot be written."""
    with writing(path) as part:
        part.write_bytes(content)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process was writing into `folder` with `replacing`."""
    for leftover in folder.glob(".*.partial"):
        leftover.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, otherwise: str | None = None) -> Iterator[None]:
    """Keep other processes out of blocks like this one for the same folder.

    Wait for one that is in there; or, given words for what it does, refuse to. Where the system or
    the file system has no such locks, do neither.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    # The lock is on the folder itself, so it leaves no file, and it ends with the process.
    with disk_errors(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if otherwise else 0))
        except BlockingIOError:
            raise InputError(f"{folder} {otherwise}: wait for it, or stop it first") from None
        except OSError:
            # This file system has none.
            pass
        yield
    finally:
        os.close(handle)


def json_text(content: Mapping[str, object], indent: int = 2) -> str:
    """Return plain values as the text of a JSON file; what is not finite becomes null."""
    return json.dumps(finite(content), indent=indent, allow_nan=False) + "\n"


def parsed(content: str | bytes) -> Any:
    """Return what JSON holds, or raise ValueError, whatever the content: NaN is no JSON."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        return json.loads(content, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def finite(value: Any) -> Any:
    """Replace what JSON cannot say."""
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    # NumPy's numbers as Python's own, which files can hold.
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
