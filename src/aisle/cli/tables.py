"""`aisle reproduce` for tables: run their cells one after another, and write what is there."""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from aisle.cli import table_files
from aisle.cli.output import Columns, make_folder, screen_table, table_console, with_error
from aisle.errors import InputError, check_seed
from aisle.files import remove_leftovers

if TYPE_CHECKING:
    from aisle.experiments.cells import Cell
    from aisle.experiments.tables import TableSpec

_PLAN_COLUMNS: Columns = {
    "cell": "left",
    "updates": "right",
    "decoder gradients": "right",
    "minutes here": "right",
    "paper": "right",
    "command": "left",
}


def reproduce(
    name: str, out: Path, budget: str, patterns: list[str], seed: int, is_plan: bool
) -> int:
    """Run the chosen cells of a table, and write the table of all that are done."""
    from aisle.experiments import tables

    check_seed(seed)
    spec = tables.named(name, budget, seed)
    chosen = _choose(spec, patterns, out)
    if is_plan:
        table_console().print(_plan(spec.title, chosen))
        return 0
    before = table_files.read(out / name)
    make_folder(out)
    remove_leftovers(out / "cells")

    def write() -> table_files.Record:
        found = table_files.together(spec, out, before)
        table_files.write(spec, found, out / name)
        return found

    for _ in _run(chosen, out):
        # After each, so that an interruption leaves the table of what is done.
        write()
    table_files.show(spec, write(), out / name)
    return 0


def _choose(spec: "TableSpec", patterns: list[str], out: Path) -> list["Cell"]:
    """Return the cells to run: those that match and are not done, and starts that they lack."""
    from aisle.experiments import cells

    for pattern in patterns:
        if not any(fnmatch(cell.name, pattern) for cell in spec.cells):
            names = ", ".join(cell.name for cell in spec.cells)
            raise InputError(f"--cells {pattern} matches no cell: choose from {names}")
    # Of all, so that a file that is of no use is told before the work.
    found = {cell.name: cells.finished(cell, out) for cell in spec.cells if cell.evaluation}
    trained = {cell.name for cell in spec.cells if cells.has_weights(cell, out)}
    chosen: list[Cell] = []
    # From the last one: a cell comes after the one that it starts from.
    for cell in reversed(spec.cells):
        is_done = found.get(cell.name) is not None if cell.evaluation else cell.name in trained
        is_lacking = cell.name not in trained and cell.name in [one.start for one in chosen]
        if is_lacking or (_is_asked(cell, patterns) and not is_done):
            chosen.insert(0, cell)
    return chosen


def _is_asked(cell: "Cell", patterns: list[str]) -> bool:
    # What is only a start is trained when a cell needs it, or by its name.
    if cell.evaluation is None:
        return cell.name in patterns
    return not patterns or any(fnmatch(cell.name, pattern) for pattern in patterns)


def _run(chosen: list["Cell"], out: Path) -> Iterator["Cell"]:
    """Run cells one after another, and yield each that is done."""
    import jax

    from aisle.experiments import cells

    console = table_console()
    for number, cell in enumerate(chosen):
        console.print(f"{cell.name} ({number + 1} of {len(chosen)})")
        if cell.evaluation is None:
            cells.train_cell(cell, out)
        else:
            done = cells.run_cell(cell, out)
            console.print(f"log p(x) >= {with_error(done.row.log_likelihood)}")
        yield cell
        # The next cell has programs of its own: those of dozens of cells are too many to keep.
        jax.clear_caches()


def _plan(title: str, chosen: list["Cell"]) -> Table:
    """Time some updates of each cell, and say what the whole would take."""
    from aisle.experiments import commands
    from aisle.experiments.estimating import estimate

    rows, total = [], 0.0
    for cell in chosen:
        found = estimate(cell)
        total += found.seconds
        figures = (
            f"{found.updates:,}",
            f"{found.decoder_gradients:,}",
            f"{found.seconds / 60:.0f}",
        )
        paper = "" if cell.paper is None else f"{cell.paper:.2f}"
        rows.append([cell.name, *figures, paper, commands.train(cell.config, cell.start)])
    rows.append(["all", "", "", f"{total / 60:.0f}", "", ""])
    return screen_table(f"{title}: training, without evaluation", _PLAN_COLUMNS, rows)
