"""Where the command line writes: tables to standard output, progress to standard error."""

import json
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from aisle.errors import InputError


def table_console() -> Console:
    """Return the console for results; in a file or a pipe, tables keep their full width."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a result file, whole or not at all."""
    from aisle.data.files import replacing

    try:
        with replacing(path) as part:
            part.write_text(json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; give a file in a writable folder"
        ) from error


def check_writable(path: Path) -> None:
    """Complain before the work, not after it, about a result file that cannot be written."""
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise InputError(f"{path} {problem}: give a file in an existing folder")
