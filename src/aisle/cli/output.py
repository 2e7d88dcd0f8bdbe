"""Where the command line writes: tables to standard output, progress to standard error."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from aisle.errors import InputError
from aisle.files import json_text, write_bytes, writing


def table_console() -> Console:
    """Return the console for results; in a file or a pipe, tables keep their full width."""
    console = _Console()
    return console if console.is_terminal else _Console(width=140)


def show(*results: object) -> None:
    """Print tables, and all else as a line that is not broken."""
    console = table_console()
    for result in results:
        is_table = isinstance(result, Table)
        console.print(result if is_table else str(result), soft_wrap=not is_table)


class _Console(Console):
    def __init__(self, **options: Any) -> None:
        # A folder may be called runs/[a], and that is no markup; nor is a path a number to colour.
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> None:
        """Leave it to the command, which ends as others do and not as after a failure."""
        raise BrokenPipeError


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a result file of plain values; what is not finite becomes null."""
    write_bytes(path, json_text(content).encode())


def plain(row: Any) -> dict[str, Any]:
    """Return a named tuple, and those in it, as plain values by name."""
    return {k: v._asdict() if hasattr(v, "_asdict") else v for k, v in row._asdict().items()}


Columns = Mapping[str, Literal["left", "right"]]


def screen_table(title: str, columns: Columns, rows: list[list[str]]) -> Table:
    """Return a table for the terminal, from headings and how their columns are justified."""
    table = Table(title=title, title_justify="left")
    for heading, side in columns.items():
        # A name must be whole to be of use; sentences may be folded.
        table.add_column(heading, justify=side, no_wrap=heading == next(iter(columns)))
    for texts in rows:
        table.add_row(*texts)
    return table


def markdown_table(columns: Columns, rows: list[list[str]]) -> str:
    """Return the same table for a page."""
    sides = ["---" if side == "left" else "---:" for side in columns.values()]
    return "\n".join(f"| {' | '.join(texts)} |" for texts in (list(columns), sides, *rows))


def write_rows(path: Path, header: list[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table, .csv or .tsv by its name, whole or not at all."""
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with writing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def check_writable(path: Path, *suffixes: str) -> None:
    """Complain before the work, not after it, about a result file that cannot be written.

    Its suffix is that of its kind, so that no file of another kind is replaced.
    """
    if path.suffix not in suffixes:
        raise InputError(f"{path} does not end in {' or '.join(suffixes)}: give a file that does")
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise InputError(f"{path} {problem}: give a file in an existing folder")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path.parent} cannot be written to: give a file in another folder")
