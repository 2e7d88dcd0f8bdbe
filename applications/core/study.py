"""One command of an application: its options, and the table, page and picture that it writes."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tyro
from matplotlib.figure import Figure

from aisle.cli.output import Columns, markdown_table, show, write_json
from aisle.errors import InputError
from aisle.files import write_bytes
from aisle.provenance import provenance
from aisle.report.pictures import save_figure
from aisle.statistics import Mean
from applications.core.cells import Cells
from applications.core.models import SMOKE, Budget

# Of first weights and of training, where an application does not try several.
SEED = 0


@dataclass
class Options:
    """What every application takes."""

    budget: Literal["smoke", "full"] = "full"
    """`smoke` shows in a minute that all is well, and its figures mean nothing."""
    out: Path | None = None
    """Folder for cells and results; by default runs/PACKAGE/NAME-BUDGET."""
    data: Path | None = None
    """Folder of the data; by default AISLE_DATA or the user's cache. What is missing is fetched."""


@dataclass
class SetsOptions(Options):
    """The same for an application to several data sets."""

    sets: tuple[str, ...] = ()
    """Names of data sets, by default all; finished ones cost nothing."""

    def chosen(self, known: Iterable[str]) -> list[str]:
        """Return the names, or all that are known; the first one only for a trial."""
        known = list(known)
        for name in self.sets:
            if name not in known:
                raise InputError(f"--sets has {name!r}: choose from {', '.join(known)}")
        return list(self.sets or known)[: 1 if self.budget == "smoke" else None]


class Table(NamedTuple):
    """What an application found.

    Attributes:
        left: headings of the columns that are no numbers.
        rows: plain values by heading; a mean is printed with its standard error.
        answer: a few sentences, made of the figures.
        notes: what a reader of the table must know.
    """

    left: tuple[str, ...]
    rows: list[dict[str, Any]]
    answer: str
    notes: str = ""

    def markdown(self) -> str:
        """Return the table for a page."""
        columns: Columns = {name: "left" if name in self.left else "right" for name in self.rows[0]}
        texts = [[_text(row[name]) for name in columns] for row in self.rows]
        return markdown_table(columns, texts)


class Study(NamedTuple):
    """What a command works with."""

    cells: Cells
    budget: Budget
    is_smoke: bool
    options: Any

    @property
    def data(self) -> Path | None:
        """Folder of the data."""
        return self.options.data

    def sizes(
        self, latents: tuple[int, ...], hidden: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return numbers of latents and units of hidden layers, smaller ones for a trial."""
        return ((2,), (8,)) if self.is_smoke else (latents, hidden)


@dataclass(frozen=True)
class Command:
    """The command of an application; call it with arguments to run it.

    Attributes:
        name: of the application and of its files.
        question: that it answers.
        full: what a cell may cost.
        run: makes the table and the picture.
        options: what the command takes.
        package: that the program is in.
    """

    name: str
    question: str
    full: Budget
    run: Callable[[Study], tuple[Table, Figure]]
    options: type[Options] = Options
    package: str = "applications"

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command, and return its exit code."""
        program = f"{self.package}.{self.name}"
        options = tyro.cli(self.options, args=arguments, prog=f"python -m {program}")
        is_smoke = options.budget == "smoke"
        budget = SMOKE if is_smoke else self.full
        out = options.out or Path("runs") / self.package / f"{self.name}-{options.budget}"
        config = {"application": self.name, "budget": asdict(budget), "seed": SEED}
        try:
            cells = Cells(out / "cells", config)
            table, figure = self.run(Study(cells, budget, is_smoke, options))
            write(out / self.name, self.question, config, table, figure, cells.seconds)
        except InputError as error:
            sys.stderr.write(f"{program}: {error}\n")
            return 2
        show(f"{table.markdown()}\n\n{table.answer}")
        return 0


def write(
    place: Path,
    question: str,
    config: Mapping[str, Any],
    table: Table,
    figure: Figure,
    seconds: float,
) -> None:
    """Write a result as .json, .md and .png beside each other."""
    rows = [{k: plain(v) for k, v in row.items()} for row in table.rows]
    found = {"question": question, "config": dict(config), "rows": rows, "answer": table.answer}
    write_json(
        place.with_suffix(".json"),
        {**found, "notes": table.notes, "processor_seconds": round(seconds), **provenance()},
    )
    cost = f"It took {seconds / 60:.0f} minutes of processor time."
    parts = [f"# {place.name}", question, table.markdown(), table.answer, table.notes, cost]
    text = "\n\n".join(filter(None, parts)) + "\n"
    write_bytes(place.with_suffix(".md"), text.encode())
    save_figure(figure, place.with_suffix(".png"), dpi=120)


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return value._asdict() if isinstance(value, Mean) else value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float | Mean) else str(value)
