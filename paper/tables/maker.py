"""Make cells: what a method trains within a budget (`paper.tables.budgets`), from which start."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from paper.tables.budgets import Budget
from paper.tables.cells import Cell
from paper.tables.plans import Method, Optimizer, Training

# Test log-likelihoods of Ding & Freedman (2020) in nats, by data, method, K and T.
PAPER: dict[tuple[str, str, int, int | None], float] = {
    ("omniglot", "dreg", 1, None): -109.41,
    ("omniglot", "dreg", 5, None): -106.11,
    ("omniglot", "dreg", 50, None): -103.91,
    ("omniglot", "dreg", 55, None): -103.85,
    ("omniglot", "dreg", 275, None): -103.13,
    ("omniglot", "dreg", 2750, None): -102.40,
    ("omniglot", "ais", 1, 5): -103.22,
    ("omniglot", "ais", 5, 5): -102.47,
    ("omniglot", "ais", 50, 5): -102.03,
    ("omniglot", "ais", 1, 11): -102.45,
    ("omniglot", "ais", 5, 11): -101.94,
    ("omniglot", "ais", 50, 11): -101.64,
    ("omniglot", "mh-hmc", 5, 5): -102.57,
    ("omniglot", "mh-hmc", 5, 11): -101.32,
    ("omniglot", "mh-hmc", 50, 5): -102.32,
    ("omniglot", "mh-hmc", 50, 11): -101.25,
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
TUNED = Method("ais", 1, 11, schedule="linear")


# Of the IWAE study, and what Adam has if no rate is given.
ADAM_RATE = 1e-3


class _Base(NamedTuple):
    """What cells begin from.

    Attributes:
        networks: in what they differ from the paper's.
        start_share: of the budget's epochs of a start; 0 for none.
        rate: multiplies each learning rate that the budget names.
    """

    networks: Mapping[str, Any]
    start_share: float = 1.0
    rate: float = 1.0


# Two layers need a lower rate: at the budget's, a VAE of 120 epochs was worse than one of 16 at
# half of it.
BASES = {
    "one-layer": _Base({}),
    "two-layer": _Base({"model": "two-layer"}, 1 / 3, rate=0.5),
    "short": _Base({}, 1 / 3),
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
        return [Cell(self.name("start"), self._training(Method("vae"), epochs, optimizer))]

    def starts(self) -> list[Cell]:
        """Return what comes before the cells of the paper's tables; they begin from the last."""
        starts, epochs = self.start(), self.budget.annealed_epochs
        if starts and epochs:
            plan = self._training(TUNED, epochs[self.data], self.rated(self.budget.optimizer))
            starts.append(Cell(self.name("annealed-start"), plan, start=starts[-1].name))
        return starts

    def dreg(self, K: int) -> Cell:
        """Return a cell by importance sampling."""
        return self.cell(f"dreg-K{K}", Method("dreg", K), self._paper("dreg", K))

    def chains(self, method: Literal["ais", "mh-hmc"], K: int, T: int) -> Cell:
        """Return a cell by chains with the paper's kernel, L = 5."""
        paper = self._paper(method, K, T)
        return self.cell(f"{method}-T{T}-K{K}", Method(method, K, T, kernel="paper"), paper)

    def tuned(self, K: int, T: int) -> Cell:
        """Return a cell by AIS with the tuned kernel."""
        return self.cell(f"ais-tuned-T{T}-K{K}", Method("ais", K, T))

    def cell(
        self,
        name: str,
        method: Method,
        paper: float | None = None,
        *,
        epochs: int | None = None,
        start: str | None = None,
        optimizer: Optimizer | None = None,
    ) -> Cell:
        """Return a cell of the budget's epochs, or of fewer if it would take too long."""
        budget, usual = self.budget, self.budget.epochs[self.data]
        optimizer = optimizer or self.rated(budget.optimizer)
        extension = budget.extensions.get(self.data, {}).get(name)
        if extension is not None:
            start, epochs = self.name(extension.start), extension.epochs
            optimizer = dataclasses.replace(optimizer, learning_rate=budget.extension_rate)
        plan = self._training(method, epochs or usual, optimizer)
        share = plan.num_epochs / usual * budget.optimizer.batch_size / optimizer.batch_size
        return Cell(
            self.name(name),
            plan,
            budget.evaluation[self.data],
            start or last(self.starts()),
            paper,
            "fewer updates" if share < 1 else "",
        )

    def default(self, name: str, method: Method, epochs: int, optimizer: Optimizer) -> Cell:
        """Return a cell by a recipe as users have it, who start from nothing and validate."""
        plan = self._training(method, epochs, optimizer)
        plan = dataclasses.replace(plan, num_valid=None, keep="best")
        return Cell(f"{self.data}-default-{name}", plan, self.budget.evaluation[self.data])

    def rated(self, optimizer: Optimizer, rate: float = 1.0) -> Optimizer:
        """Return an optimiser whose rate is multiplied by that of the base, and by another one."""
        usual = optimizer.learning_rate
        if usual is None and rate == 1.0:
            return optimizer
        # Adam's usual rate is that of the IWAE study, for all networks.
        scaled = rate * (ADAM_RATE if usual is None else BASES[self.base].rate * usual)
        return dataclasses.replace(optimizer, learning_rate=scaled)

    def name(self, cell: str) -> str:
        """Return a cell's name among those of all tables."""
        base = "" if self.base == "one-layer" else f"{self.base}-"
        return f"{self.data}-{base}{cell}"

    def _training(self, method: Method, epochs: int, optimizer: Optimizer) -> Training:
        networks = dataclasses.replace(self.budget.networks, **BASES[self.base].networks)
        data = self.budget.data or self.data
        return Training(data, epochs, method, networks, optimizer, self.seed)

    def _paper(self, method: str, K: int, T: int | None = None) -> float | None:
        # The paper's numbers are those of one layer, and not of data that stand in for its own.
        is_known = self.base == "one-layer" and self.budget.data is None
        return PAPER.get((self.data, method, K, T)) if is_known else None


def last(cells: list[Cell]) -> str | None:
    """Return the name of the last of some cells, if there are any."""
    return cells[-1].name if cells else None
