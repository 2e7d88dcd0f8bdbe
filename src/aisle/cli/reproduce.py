"""`aisle reproduce`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.table import Table
from tyro.conf import Positional, arg

from aisle.cli.output import check_writable, table_console, write_json
from aisle.errors import InputError

if TYPE_CHECKING:
    from aisle.experiments.figure1 import Comparison, Outcome, Row

# Safe for colour-blind readers (Okabe & Ito, 2008).
_COLORS = {"is": "#D55E00", "ais": "#0072B2"}
_GREY = "#6b6b6b"

_CAPTION = (
    "Lines hold 50, 90 and 99 % of the target. Shades: density of the draws, on one scale. "
    "AIS: leapfrog steps × chains × temperatures."
)


@dataclass
class Reproduce:
    """Run an experiment of the paper anew, and say whether its claim holds.

    figure1: q_IS and q_AIS at the same cost, on a correlated normal target; in a minute.
    """

    what: Positional[Literal["figure1"]]
    """Which one."""

    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder of the picture (.png), the table (.md) and all figures (.json); by default
    runs/figure1."""

    draws: int = 20_000
    """Points to draw from each sampler."""

    seed: int = 0
    """Seed of everything."""

    def run(self) -> int:
        """Run the experiment, print its table and write its files."""
        return _EXPERIMENTS[self.what](self, self.out or Path("runs") / self.what)


def _figure1(command: Reproduce, out: Path) -> int:
    from aisle.experiments import figure1
    from aisle.learning.trainer import check_seed

    check_seed(command.seed)
    figure1.check_num_draws(command.draws)
    paths = [out / f"figure1.{ending}" for ending in ("png", "md", "json")]
    _prepare(out, paths)
    start = time.perf_counter()
    outcome = figure1.run(command.seed, command.draws)
    seconds = time.perf_counter() - start
    _save_figure1(paths[0], outcome)
    _write(paths[1], _figure1_markdown(outcome))
    write_json(paths[2], _figure1_content(command, outcome, seconds))
    console = table_console()
    console.print(_figure1_table(outcome))
    console.print(figure1.verdict(outcome.rows), soft_wrap=True)
    for path in paths:
        console.print(str(path), soft_wrap=True)
    return 0


_EXPERIMENTS: dict[str, Callable[[Reproduce, Path], int]] = {"figure1": _figure1}
