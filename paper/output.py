"""Where the studies write: tables and lines to standard output, pages and numbers to files."""

import csv
import io
from pathlib import Path
from typing import Any

from aisle.cli.output import (
    Columns,
    check_writable,
    markdown_table,
    screen_table,
    show,
    write_json,
)
from aisle.files import disk_errors, write_bytes

__all__ = [
    "Columns",
    "check_writable",
    "csv_text",
    "make_folder",
    "markdown_table",
    "screen_table",
    "show",
    "write_json",
    "write_text",
]


def make_folder(path: Path) -> None:
    """Make a folder for results, before the work."""
    with disk_errors(path, "choose another --out"):
        path.mkdir(parents=True, exist_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a result file, whole or not at all."""
    write_bytes(path, text.encode())


def csv_text(records: list[dict[str, Any]]) -> str:
    """Return records as a table with their names as its heading; a missing value stays empty."""
    text, names = io.StringIO(newline=""), dict.fromkeys(name for r in records for name in r)
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
