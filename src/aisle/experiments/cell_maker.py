"""Cells of the tables: what a method trains within a budget, from which start.

A budget (`aisle.experiments.budgets`) says how much work goes into a cell.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from aisle.experiments.budgets import Budget
from aisle.experiments.cells import Cell
from aisle.experiments.options import MethodOptions, OptimizerOptions, RunOptions, TrainConfig
from aisle.learning.optimizers import DEFAULT_RATES

# Test log-likelihoods of Ding & Freedman (2020) in nats, by data, method, K and T.
PAPER: dict[tuple[str, str, int, int | None], float] = {
    ("omniglot", "dreg", 1, None): -109.41,
    ("omniglot", "dreg", 5, None): -106.11,
    ("omniglot", "dreg", 50, None): -103.91,
    ("omniglot", "dreg", 55, None): -103.85,
    ("omniglot", "dreg", 275, None): -103.13,
    ("omniglot", "ais", 1, 5): -103.22,
    ("omniglot", "ais", 5, 5): -102.47,
    ("omniglot", "ais", 50, 5): -102.03,
    ("omniglot", "ais", 1, 11): -102.45,
    ("omniglot", "ais", 5, 11): -101.94,
    ("omniglot", "ais", 50, 11): -101.64,
    ("omniglot", "mh-hmc", 5, 5): -102.57,
    ("omniglot", "mh-hmc", 5, 11): -101.32,
    ("mnist", "dreg", 1, None): -86.90,
    ("mnist", "dreg", 5, None): -85.52,
    ("mnist", "dreg", 50, None): -84.38,
    ("mnist", "ais", 1, 5): -84.56,
    ("mnist", "ais", 5, 5): -84.25,
    ("mnist", "ais", 50, 5): -83.93,
    ("mnist", "ais", 1, 11): -84.14,
    ("mnist", "ais", 5, 11): -83.78,
    ("mnist", "ais", 50, 11): -83.63,
}

# Evenly spaced: that the tuned kernel stays at the posterior is one of the recipes' findings.
TUNED = MethodOptions("ais", 1, 11, schedule="linear")


class _Base(NamedTuple):
    """What cells begin from.

    Attributes:
        networks: in what they differ from the paper's.
        start_share: of the budget's epochs of a start; 0 for none.
        rate: of learning, everywhere, as a multiple of the budget's if that names one.
    """

    networks: Mapping[str, Any]
    start_share: float = 1.0
    rate: float = 1.0


# By their shares, the starts short, full and flow take the same time on two cores. Two layers need
# a lower rate: at the budget's, a VAE of 120 epochs was worse than one of 16 at half of it.
BASES = {
    "one-layer": _Base({}),
    "two-layer": _Base({"model": "two-layer"}, 1 / 3, rate=0.5),
    "short": _Base({}, 1 / 3),
    "full": _Base({"proposal": "full"}, 0.15),
    "flow": _Base({"proposal": "flow"}, 0.25),
    "scratch": _Base({}, 0.0),
}


class Maker(NamedTuple):
    """Makes the cells of one data set that begin from the same."""

    data: str
    budget: Budget
    seed: int
    base: str = "one-layer"

    def start(self) -> list[Cell]:
        """Return the start by a VAE, if there is one."""
        whole, share = self.budget.start_epochs, BASES[self.base].start_share
        if not (whole and share):
            return []
        epochs = max(1, round(share * whole[self.data]))
        optimizer = self.rated(self.budget.start_optimizer)
        config = self._config(MethodOptions("vae", 1), epochs, optimizer)
        return [Cell(self.name("start"), config)]

    def starts(self) -> list[Cell]:
        """Return what comes before the cells of the paper's tables; they begin from the last."""
        starts, epochs = self.start(), self.budget.annealed_epochs
        if starts and epochs:
            config = self._config(TUNED, epochs[self.data], self.rated(self.budget.optimizer))
            starts.append(Cell(self.name("annealed-start"), config, start=starts[-1].name))
        return starts

    def dreg(self, K: int) -> Cell:
        """Return a cell by importance sampling."""
        return self.cell(f"dreg-K{K}", MethodOptions("dreg", num_samples=K), self._paper("dreg", K))

    def chains(self, method: Literal["ais", "mh-hmc"], K: int, T: int) -> Cell:
        """Return a cell by chains with the paper's kernel, L = 5."""
        options = MethodOptions(method, num_samples=K, num_temperatures=T, kernel="paper")
        return self.cell(f"{method}-T{T}-K{K}", options, self._paper(method, K, T))

    def tuned(self, K: int, T: int) -> Cell:
        """Return a cell by AIS with the tuned kernel."""
        options = MethodOptions("ais", num_samples=K, num_temperatures=T)
        return self.cell(f"ais-tuned-T{T}-K{K}", options)

    def cell(
        self,
        name: str,
        method: MethodOptions,
        paper: float | None = None,
        *,
        epochs: int | None = None,
        start: str | None = None,
        optimizer: OptimizerOptions | None = None,
    ) -> Cell:
        """Return a cell of the budget's epochs, or of fewer if it would take too long."""
        budget, usual = self.budget, self.budget.epochs[self.data]
        optimizer = optimizer or self.rated(budget.optimizer)
        few = budget.few.get(self.data, {}).get(name)
        if few is not None:
            start, epochs = self.name(few.start), few.epochs
            optimizer = dataclasses.replace(optimizer, learning_rate=budget.few_rate)
        config = self._config(method, epochs or usual, optimizer)
        share = config.num_epochs / usual * budget.optimizer.batch_size / optimizer.batch_size
        return Cell(
            self.name(name),
            config,
            budget.evaluation[self.data],
            start or last(self.starts()),
            paper,
            "fewer updates" if share < 1 else "",
        )

    def rated(self, optimizer: OptimizerOptions, rate: float = 1.0) -> OptimizerOptions:
        """Return an optimiser with a multiple of its rate, and with that of what it is for."""
        usual = optimizer.learning_rate
        if usual is None and rate == 1.0:
            return optimizer
        # An optimiser's usual rate is that of the IWAE study, for all networks.
        scaled = rate * (
            DEFAULT_RATES[optimizer.optimizer] if usual is None else BASES[self.base].rate * usual
        )
        return dataclasses.replace(optimizer, learning_rate=scaled)

    def name(self, cell: str) -> str:
        """Return a cell's name among those of all tables."""
        base = "" if self.base == "one-layer" else f"{self.base}-"
        return f"{self.data}-{base}{cell}"

    def _config(
        self, method: MethodOptions, epochs: int, optimizer: OptimizerOptions
    ) -> TrainConfig:
        return TrainConfig(
            self.budget.data or self.data,
            epochs,
            method,
            dataclasses.replace(self.budget.sizes, **BASES[self.base].networks),
            optimizer=optimizer,
            run=RunOptions(seed=self.seed),
        )

    def _paper(self, method: str, K: int, T: int | None = None) -> float | None:
        # The paper's figures are of one layer, and not of a stand-in.
        is_known = self.base == "one-layer" and self.budget.data is None
        return PAPER.get((self.data, method, K, T)) if is_known else None


def last(cells: list[Cell]) -> str | None:
    """Return the name of the last of some cells, if there are any."""
    return cells[-1].name if cells else None
