"""The tables of the paper as cells to run, and tables beyond it.

Tables share cells: run into the same folder, none is trained twice. How much work goes into a cell
is a matter of the budget (`aisle.experiments.budgets`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from aisle.experiments.budgets import BUDGETS, Budget
from aisle.experiments.cells import Cell
from aisle.experiments.options import (
    EvaluateConfig,
    MethodOptions,
    OptimizerOptions,
    RunOptions,
    SamplerOptions,
    TrainConfig,
)

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


class Claim(NamedTuple):
    """A statement that one cell is better than another."""

    text: str
    better: str
    worse: str


def _beats(better: Cell, worse: Cell) -> Claim:
    return Claim(f"{better.name} beats {worse.name}", better.name, worse.name)


class TableSpec(NamedTuple):
    """A table: its cells in the order in which they are run, and what they are to show."""

    title: str
    cells: list[Cell]
    claims: list[Claim]


def table1(budget: Budget, seed: int) -> TableSpec:
    """DReG and AIS by K and T, on both data sets."""
    cells, claims = [], []
    for data in ("mnist", "omniglot"):
        make = _Maker(data, budget, seed)
        cells += [*make.starts(), *(make.dreg(K) for K in (1, 5, 50))]
        cells += [make.chains("ais", K, T) for K in (1, 5, 50) for T in (5, 11)]
        claims += _claims_by_size(data)
    return TableSpec("Table 1: DReG and AIS by K and T", cells, claims)


# Share of an AIS cell's epochs, K = 1 and T = 11, that DReG with K = 55 makes in the same time.
_SAME_TIME = 0.62


def table2(budget: Budget, seed: int) -> TableSpec:
    """At the same cost and in the same time, on Omniglot: DReG against AIS, MH-HMC against AIS."""
    make = _Maker("omniglot", budget, seed)
    epochs = max(1, round(_SAME_TIME * budget.epochs["omniglot"]))
    cells = [
        *make.starts(),
        make.dreg(55),
        make.cell("dreg-K55-same-time", MethodOptions("dreg", 55), epochs=epochs),
        make.chains("ais", 1, 11),
        make.dreg(275),
        make.chains("ais", 5, 11),
        make.chains("mh-hmc", 5, 5),
        make.chains("ais", 5, 5),
        make.chains("mh-hmc", 5, 11),
    ]
    one, five = "omniglot-ais-T11-K1", "omniglot-ais-T11-K5"
    claims = [
        Claim("AIS beats DReG at the cost of K = 55", one, "omniglot-dreg-K55"),
        Claim("AIS beats DReG, K = 55, in the same time", one, "omniglot-dreg-K55-same-time"),
        Claim("AIS beats DReG at the cost of K = 275", five, "omniglot-dreg-K275"),
        Claim("AIS beats MH-HMC at T = 5", "omniglot-ais-T5-K5", "omniglot-mh-hmc-T5-K5"),
        Claim("MH-HMC beats AIS at T = 11", "omniglot-mh-hmc-T11-K5", five),
    ]
    return TableSpec("Table 2: the same cost, on Omniglot", cells, claims)


def beyond(budget: Budget, seed: int) -> TableSpec:
    """The tuned kernel at the cost of the paper's, and two stochastic layers."""
    cells, claims = [], []
    for data in ("mnist", "omniglot"):
        one, two = _Maker(data, budget, seed), _Maker(data, budget, seed, "two-layer")
        pairs = [
            ("at 55 gradients the tuned kernel beats the paper's", one, one.chains("ais", 1, 11)),
            ("with two layers, AIS beats DReG", two, two.dreg(5)),
        ]
        for text, make, other in pairs:
            own = make.tuned(1, 27)
            if make is two:
                note = "evaluated from a refitted encoder"
                own = own._replace(evaluation=budget.careful, note=note)
            cells += [*make.starts(), other, own]
            claims.append(Claim(f"{data}: {text}", own.name, other.name))
    return TableSpec("Beyond the paper: the tuned kernel, and two layers", cells, claims)


def ramp(budget: Budget, seed: int) -> TableSpec:
    """At least half of the moves at the posterior, against AIS and MH-HMC at the same cost.

    Rounded, these are 4 of 5 and 6 of 11.
    """
    make = _Maker("omniglot", budget, seed)
    cells, claims = make.starts(), []
    for T in (5, 11):
        options = MethodOptions("ais", 5, T, kernel="paper", schedule="ramp")
        own = make.cell(f"ais-ramp-T{T}-K5", options)
        others = [make.chains("ais", 5, T), make.chains("mh-hmc", 5, T)]
        cells += [*others, own]
        claims += [_beats(own, other) for other in others]
    return TableSpec("Half of the moves or more at the posterior, on Omniglot", cells, claims)


class _Trial(NamedTuple):
    """Something to do after a start: how, and for which share of the budget's epochs.

    By the shares, measured with --plan, all take the same time on two cores.

    Attributes:
        base: what it begins from, see `_BASES`.
        rate: as a multiple of the budget's.
        optimizer: in what else it differs from the budget's.
        after: the trial that it goes on from, which is then no more than a start.
    """

    name: str
    method: MethodOptions
    share: float = 1.0
    base: str = "short"
    rate: float = 1.0
    optimizer: Mapping[str, Any] = {}
    after: str | None = None


# Evenly spaced: that the tuned kernel stays at the posterior is one of the trials' findings.
_TUNED = MethodOptions("ais", 1, 11, schedule="linear")
_RAMP = dataclasses.replace(_TUNED, schedule="ramp")
_PAPER = dataclasses.replace(_TUNED, kernel="paper")
_TRIALS = [
    _Trial("vae", MethodOptions("vae", 1), 1.9),
    _Trial("paper", _PAPER, 0.64),
    _Trial("tuned", _TUNED),
    _Trial("ramp", _RAMP),
    _Trial("mh-hmc", MethodOptions("mh-hmc", 1, 11)),
    _Trial("wake", dataclasses.replace(_TUNED, phi_objective="elbo+wake")),
    _Trial("ramp-wake", dataclasses.replace(_RAMP, phi_objective="elbo+wake")),
    _Trial("tuned", _TUNED, 0.62, "full"),
    _Trial("tuned", _TUNED, 0.76, "flow"),
    _Trial("rate-x0.5", _TUNED, rate=0.5),
    _Trial("rate-x2", _TUNED, rate=2.0),
    _Trial("rate-x4", _TUNED, rate=4.0),
    _Trial("adam", _TUNED, optimizer={"optimizer": "adam", "learning_rate": None}),
    _Trial("averaged", _TUNED, optimizer={"lr_schedule": "constant", "ema": 0.999}),
    _Trial("small-batch", _TUNED, 0.8, optimizer={"batch_size": 64}),
    _Trial("T5", dataclasses.replace(_TUNED, num_temperatures=5), 0.7),
    _Trial("growing-T", _TUNED, 0.5, after="T5"),
    # As much time as the others take together with their start.
    _Trial("tuned", _TUNED, 1.95, "scratch", rate=2.0),
    # From the VAE behind the tables' cells, three times as long, and for as many epochs as theirs.
    _Trial("tuned", _TUNED, base="one-layer"),
    _Trial("ramp", _RAMP, base="one-layer"),
    _Trial("dreg-K1", MethodOptions("dreg", 1), base="one-layer"),
    _Trial("dreg-K5", MethodOptions("dreg", 5), base="one-layer"),
    _Trial("paper", _PAPER, base="one-layer"),
    _Trial("preconditioned", dataclasses.replace(_PAPER, precondition=0.75), base="one-layer"),
]


def recipes(budget: Budget, seed: int) -> TableSpec:
    """What to do after a cheap start, in about the same time, on MNIST."""
    cells: dict[str, Cell] = {}
    for trial in _TRIALS:
        make = _Maker("mnist", budget, seed, trial.base)
        own = make.trial(trial)
        if trial.name in {one.after for one in _TRIALS}:
            own = own._replace(evaluation=None)
        elif own.evaluation:
            own = own._replace(short=_one_chain(own.evaluation))
        cells |= {cell.name: cell for cell in [*make.start(), own]}
    short, long = cells["mnist-short-recipe-tuned"], cells["mnist-recipe-tuned"]
    others = [cell for cell in cells.values() if cell.evaluation and cell not in (short, long)]
    # Each is compared with the tuned kernel after the same start, or after the short one.
    claims = [
        _beats(long if cell.name.startswith("mnist-recipe-") else short, cell) for cell in others
    ]
    best = cells["mnist-short-recipe-ramp"]
    claims += [
        _beats(long, short),
        *(_beats(best, cells[f"mnist-short-recipe-{name}"]) for name in ("mh-hmc", "ramp-wake")),
    ]
    title = "Recipes: the same time from a cheap start, on MNIST"
    return TableSpec(title, list(cells.values()), claims)


TABLES: dict[str, Callable[[Budget, int], TableSpec]] = {
    "table1": table1,
    "table2": table2,
    "beyond": beyond,
    "ramp": ramp,
    "recipes": recipes,
}


def named(name: str, budget: str, seed: int) -> TableSpec:
    """Return a table for a budget."""
    return TABLES[name](BUDGETS[budget], seed)


class _Base(NamedTuple):
    """What cells begin from.

    Attributes:
        networks: in what they differ from the paper's.
        start_share: of the budget's epochs of a start; 0 for none.
        rate: of learning, everywhere, as a multiple of the budget's.
    """

    networks: Mapping[str, Any]
    start_share: float = 1.0
    rate: float = 1.0


# By their shares, the starts short, full and flow take the same time on two cores. Two layers need
# a lower rate: at the budget's, a VAE of 120 epochs was worse than one of 16 at half of it.
_BASES = {
    "one-layer": _Base({}),
    "two-layer": _Base({"model": "two-layer"}, 1 / 3, rate=0.5),
    "short": _Base({}, 1 / 3),
    "full": _Base({"proposal": "full"}, 0.15),
    "flow": _Base({"proposal": "flow"}, 0.25),
    "scratch": _Base({}, 0.0),
}


class _Maker(NamedTuple):
    """Makes the cells of one data set that begin from the same."""

    data: str
    budget: Budget
    seed: int
    base: str = "one-layer"

    def start(self) -> list[Cell]:
        """Return the start by a VAE, if there is one."""
        whole, share = self.budget.start_epochs, _BASES[self.base].start_share
        if not (whole and share):
            return []
        epochs = max(1, round(share * whole[self.data]))
        optimizer = self._rated(self.budget.start_optimizer)
        config = self._config(MethodOptions("vae", 1), epochs, optimizer)
        return [Cell(self._name("start"), config)]

    def starts(self) -> list[Cell]:
        """Return what comes before the cells of the paper's tables; they begin from the last."""
        starts, epochs = self.start(), self.budget.annealed_epochs
        if starts and epochs:
            config = self._config(_TUNED, epochs[self.data], self._rated(self.budget.optimizer))
            starts.append(Cell(self._name("annealed-start"), config, start=starts[-1].name))
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

    def trial(self, trial: _Trial) -> Cell:
        """Return the cell of a trial."""
        usual = self._rated(self.budget.optimizer, trial.rate)
        return self.cell(
            f"recipe-{trial.name}",
            trial.method,
            epochs=max(1, round(trial.share * self.budget.epochs[self.data])),
            start=self._name(f"recipe-{trial.after}") if trial.after else _last(self.start()),
            optimizer=dataclasses.replace(usual, **trial.optimizer),
        )

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
        optimizer = optimizer or self._rated(budget.optimizer)
        few = budget.few.get(self.data, {}).get(name)
        if few is not None:
            start, epochs = self._name(few.start), few.epochs
            optimizer = dataclasses.replace(optimizer, learning_rate=budget.few_rate)
        config = self._config(method, epochs or usual, optimizer)
        share = config.num_epochs / usual * budget.optimizer.batch_size / optimizer.batch_size
        return Cell(
            self._name(name),
            config,
            budget.evaluation[self.data],
            start or _last(self.starts()),
            paper,
            "fewer updates" if share < 1 else "",
        )

    def _rated(self, optimizer: OptimizerOptions, rate: float = 1.0) -> OptimizerOptions:
        """Return an optimiser with a multiple of its rate, and with that of what it is for."""
        if optimizer.learning_rate is None:
            return optimizer
        scaled = rate * _BASES[self.base].rate * optimizer.learning_rate
        return dataclasses.replace(optimizer, learning_rate=scaled)

    def _config(
        self, method: MethodOptions, epochs: int, optimizer: OptimizerOptions
    ) -> TrainConfig:
        return TrainConfig(
            self.budget.data or self.data,
            epochs,
            method,
            dataclasses.replace(self.budget.sizes, **_BASES[self.base].networks),
            optimizer=optimizer,
            run=RunOptions(seed=self.seed),
        )

    def _paper(self, method: str, K: int, T: int | None = None) -> float | None:
        # The paper's figures are of one layer, and not of a stand-in.
        is_known = self.base == "one-layer" and self.budget.data is None
        return PAPER.get((self.data, method, K, T)) if is_known else None

    def _name(self, cell: str) -> str:
        base = "" if self.base == "one-layer" else f"{self.base}-"
        return f"{self.data}-{base}{cell}"


def _one_chain(evaluation: EvaluateConfig) -> EvaluateConfig:
    """Return an evaluation by one chain like those of an update, T = 11 and L = 2."""
    sampler = SamplerOptions(
        num_chains=1, num_temperatures=11, num_leapfrog=2, schedule="linear", bdmc_examples=0
    )
    return EvaluateConfig(num_examples=evaluation.num_examples, sampler=sampler)


def _last(cells: list[Cell]) -> str | None:
    return cells[-1].name if cells else None


def _claims_by_size(data: str) -> list[Claim]:
    """Return what the paper says of K and T."""
    name = f"{data}-".__add__
    methods = {"DReG": "dreg", "AIS, T = 5,": "ais-T5", "AIS, T = 11,": "ais-T11"}
    claims = [
        Claim(
            f"{data}: K = {K} helps {words} over K = {less}",
            name(f"{method}-K{K}"),
            name(f"{method}-K{less}"),
        )
        for words, method in methods.items()
        for less, K in ((1, 5), (5, 50))
    ]
    for K in (1, 5, 50):
        five, eleven = name(f"ais-T5-K{K}"), name(f"ais-T11-K{K}")
        claims += [
            Claim(f"{data}: AIS, T = 5, beats DReG at K = {K}", five, name(f"dreg-K{K}")),
            Claim(f"{data}: T = 11 beats T = 5 at K = {K}", eleven, five),
        ]
    return claims
