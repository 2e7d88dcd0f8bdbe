"""`aisle reproduce`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from aisle.cli import figure1, tables
from aisle.cli.devices import set_up_jax
from aisle.errors import InputError
from aisle.experiments.options import optional

# Enough for figure1 to be drawn.
_SMOKE_DRAWS = 10_000


@dataclass
class Reproduce:
    """Run an experiment of the paper anew, and say which of its claims hold.

    figure1: q_IS and q_AIS at the same cost, on a correlated normal target; in a minute.
    table1: DReG and AIS by K and T, on MNIST and Omniglot.
    table2: at the same cost, DReG against AIS and MH-HMC against AIS, on Omniglot.
    beyond: the tuned kernel at the cost of the paper's, and two stochastic layers.
    ramp: half of the moves at the posterior, against AIS and MH-HMC, on Omniglot.
    recipes: what to do after a cheap start, in the same time, on MNIST.

    The cells of a table are run one after another. The same command goes on after an interruption;
    what is done is not done again.
    """

    what: Positional[Literal["figure1", "table1", "table2", "beyond", "ramp", "recipes"]]
    """Which one."""

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the results, tables as .md, .csv and .json.
    By default runs/figure1, and runs/tables-BUDGET for tables, which share cells."""

    budget: Literal["smoke", "cpu", "paper"] = "cpu"
    """How much work goes into it.
    smoke: seconds a cell, on the digits; 10,000 draws for figure1.
    cpu: hours on two cores; figure1 takes a minute.
    paper: 3,280 epochs, for accelerators; figure1 is that of cpu."""

    cells: tuple[str, ...] = ()
    """Names of cells to run, with * for anything; by default all.
    Their starts are trained as needed, or by their full names."""

    plan: bool = False
    """Only time a few updates of each cell of a table, and say what the whole would take."""

    draws: int = 20_000
    """Points to draw from each sampler (figure1)."""

    correlation: float = 0.95
    """Correlation of the target's two variables (figure1)."""

    seed: int = 0
    """Seed of everything."""

    def run(self) -> int:
        """Run the experiment, print its table and write its files."""
        if self.what == "figure1" and (self.cells or self.plan):
            raise InputError("figure1 is no table: --cells and --plan are for tables")
        set_up_jax()
        if self.what == "figure1":
            out = self.out or Path("runs/figure1")
            draws = min(self.draws, _SMOKE_DRAWS) if self.budget == "smoke" else self.draws
            return figure1.reproduce(out, draws, self.correlation, self.seed)
        out = self.out or Path(f"runs/tables-{self.budget}")
        return tables.reproduce(
            self.what, out, self.budget, list(self.cells), self.seed, is_plan=self.plan
        )
