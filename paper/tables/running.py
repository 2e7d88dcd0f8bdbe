"""Run the cells of a table one after another, and write the table of those that are done."""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import jax
from rich.table import Table

from aisle.errors import InputError, check_seed
from aisle.files import remove_leftovers
from paper.core import runs
from paper.output import Columns, make_folder, screen_table, show
from paper.tables import cells, files
from paper.tables.cells import Cell, FinishedCell
from paper.tables.contents import TableSpec, make_table

_PLAN_COLUMNS: Columns = {
    "cell": "left",
    "updates": "right",
    "decoder gradients": "right",
    "minutes here": "right",
    "paper": "right",
    "command": "left",
}


def show_plan(name: str, out: Path, budget: str, patterns: list[str], seed: int) -> None:
    """Time some updates of each chosen cell, and print what the whole would take."""
    spec, chosen = _choose(name, out, budget, patterns, seed)
    show(_plan(spec.title, chosen))


def write_table(name: str, out: Path, budget: str, seed: int) -> None:
    """Write the table of the cells that are done, and run none."""
    _run_cells(_choose(name, out, budget, [], seed)[0], [], name, out)


def run_table(name: str, out: Path, budget: str, patterns: list[str], seed: int) -> None:
    """Run the chosen cells of a table, and write the table of all that are done."""
    _run_cells(*_choose(name, out, budget, patterns, seed), name, out)


def _run_cells(spec: TableSpec, chosen: list[Cell], name: str, out: Path) -> None:
    before = files.read(out / name)
    make_folder(out)
    remove_leftovers(out / "cells")

    def write() -> files.TableRecord:
        table = files.merge(spec, _finished(spec, out), before)
        files.write(spec, table, out / name)
        return table

    for _ in _one_by_one(chosen, out):
        # After each, so that an interruption leaves the table of what is done.
        write()
    files.show_table(spec, write(), out / name)


def _choose(
    name: str, out: Path, budget: str, patterns: list[str], seed: int
) -> tuple[TableSpec, list[Cell]]:
    """Return a table, and its cells to run.

    These match a pattern and are not done, or are starts that such cells lack.
    """
    check_seed(seed)
    spec = make_table(name, budget, seed)
    for pattern in patterns:
        if not any(fnmatch(cell.name, pattern) for cell in spec.cells):
            names = ", ".join(cell.name for cell in spec.cells)
            raise InputError(f"--cells {pattern} matches no cell: choose from {names}")
    # Of all cells, so that a file that is of no use is reported before the work.
    done = _finished(spec, out)
    trained = {cell.name for cell in spec.cells if cells.has_weights(cell, out)}
    chosen: list[Cell] = []
    # From the last one: a cell comes after the one that it starts from.
    for cell in reversed(spec.cells):
        is_done = cell.name in (done if cell.evaluation else trained)
        is_lacking = cell.name not in trained and cell.name in [one.start for one in chosen]
        if is_lacking or (_is_asked(cell, patterns) and not is_done):
            chosen.insert(0, cell)
    return spec, chosen


def _finished(spec: TableSpec, out: Path) -> dict[str, FinishedCell]:
    found = {cell.name: cells.finished(cell, out) for cell in spec.cells if cell.evaluation}
    return {name: cell for name, cell in found.items() if cell is not None}


def _is_asked(cell: Cell, patterns: list[str]) -> bool:
    # What is only a start is trained when a cell needs it, or by its name.
    if cell.evaluation is None:
        return cell.name in patterns
    return not patterns or any(fnmatch(cell.name, pattern) for pattern in patterns)


def _one_by_one(chosen: list[Cell], out: Path) -> Iterator[Cell]:
    """Run cells one after another, and yield each that is done."""
    for number, cell in enumerate(chosen):
        show(f"{cell.name} ({number + 1} of {len(chosen)})")
        if cell.evaluation is None:
            cells.train_cell(cell, out)
        else:
            done = cells.run_cell(cell, out)
            show(f"log p(x) >= {done.result.log_likelihood}")
        yield cell
        # The next cell has programs of its own: those of dozens of cells are too many to keep.
        jax.clear_caches()


def _plan(title: str, chosen: list[Cell]) -> Table:
    lines, total = [], 0.0
    for cell in chosen:
        timing = runs.time_updates(cell.training)
        total += timing.seconds
        paper = "" if cell.paper is None else f"{cell.paper:.2f}"
        numbers = (f"{timing.updates:,}", f"{timing.decoder_gradients:,}")
        minutes = f"{timing.seconds / 60:.0f}"
        lines.append([cell.name, *numbers, minutes, paper, cell.command])
    lines.append(["all", "", "", f"{total / 60:.0f}", "", ""])
    return screen_table(f"{title}: training, without evaluation", _PLAN_COLUMNS, lines)
