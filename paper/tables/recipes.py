"""What to do after a cheap start, in about the same time, on MNIST."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from paper.tables.budgets import Budget
from paper.tables.cells import Cell
from paper.tables.claims import Claim, beats
from paper.tables.maker import TUNED, Maker, last
from paper.tables.plans import Evaluation, Method


class _Trial(NamedTuple):
    """A way to train after a start, for a share of the budget's epochs.

    By the shares, measured with --plan, all take the same time on two cores.

    Attributes:
        base: what it begins from, one of `BASES`.
        rate: as a multiple of the budget's.
        optimizer: in what else it differs from the budget's.
        after: the trial whose weights it starts from, which is then no more than a start.
    """

    name: str
    method: Method
    share: float = 1.0
    base: str = "short"
    rate: float = 1.0
    optimizer: Mapping[str, Any] = {}
    after: str | None = None


_RAMP = dataclasses.replace(TUNED, schedule="ramp")
_PAPER = dataclasses.replace(TUNED, kernel="paper")
_TRIALS = [
    _Trial("vae", Method("vae"), 1.9),
    _Trial("paper", _PAPER, 0.64),
    _Trial("tuned", TUNED),
    _Trial("ramp", _RAMP),
    _Trial("mh-hmc", Method("mh-hmc", 1, 11)),
    _Trial("wake", dataclasses.replace(TUNED, phi_objective="elbo+wake")),
    _Trial("ramp-wake", dataclasses.replace(_RAMP, phi_objective="elbo+wake")),
    _Trial("rate-x0.5", TUNED, rate=0.5),
    _Trial("rate-x2", TUNED, rate=2.0),
    _Trial("rate-x4", TUNED, rate=4.0),
    _Trial("adam", TUNED, 1.65, optimizer={"optimizer": "adam", "learning_rate": None}),
    _Trial("averaged", TUNED, optimizer={"lr_schedule": "constant", "ema": 0.999}),
    _Trial("small-batch", TUNED, 0.8, optimizer={"batch_size": 64}),
    _Trial("T5", dataclasses.replace(TUNED, num_temperatures=5), 0.7),
    _Trial("growing-T", TUNED, 0.5, after="T5"),
    # As much time as the others take together with their start.
    _Trial("tuned", TUNED, 1.95, "scratch", rate=2.0),
    # From the VAE behind the tables' cells, three times as long, and for as many epochs as theirs.
    _Trial("tuned", TUNED, base="one-layer"),
    _Trial("ramp", _RAMP, base="one-layer"),
    _Trial("dreg-K1", Method("dreg", 1), base="one-layer"),
    _Trial("dreg-K5", Method("dreg", 5), base="one-layer"),
    _Trial("paper", _PAPER, base="one-layer"),
    _Trial("preconditioned", dataclasses.replace(_PAPER, precondition=0.75), base="one-layer"),
]


def recipes(budget: Budget, seed: int) -> tuple[list[Cell], list[Claim]]:
    """Return the trials as cells, each with its start, and what they are compared with."""
    cells: dict[str, Cell] = {}
    for trial in _TRIALS:
        make = Maker("mnist", budget, seed, trial.base)
        cells |= {cell.name: cell for cell in [*make.start(), _cell(make, trial)]}
    return list(cells.values()), _claims(cells)


def _claims(cells: Mapping[str, Cell]) -> list[Claim]:
    """Compare each with the tuned kernel after the same start, or after the short one."""
    short, long = cells["mnist-short-recipe-tuned"], cells["mnist-recipe-tuned"]
    others = [cell for cell in cells.values() if cell.evaluation and cell not in (short, long)]
    best = cells["mnist-short-recipe-ramp"]
    return [
        *(beats(long if cell.name.startswith("mnist-recipe-") else short, cell) for cell in others),
        beats(long, short),
        *(beats(best, cells[f"mnist-short-recipe-{name}"]) for name in ("mh-hmc", "ramp-wake")),
    ]


def _cell(make: Maker, trial: _Trial) -> Cell:
    """Return the cell of a trial; one that another starts from is not evaluated."""
    usual = make.rated(make.budget.optimizer, trial.rate)
    cell = make.cell(
        f"recipe-{trial.name}",
        trial.method,
        epochs=max(1, round(trial.share * make.budget.epochs[make.data])),
        start=make.name(f"recipe-{trial.after}") if trial.after else last(make.start()),
        optimizer=dataclasses.replace(usual, **trial.optimizer),
    )
    if trial.name in {one.after for one in _TRIALS}:
        return cell._replace(evaluation=None)
    return cell._replace(short=one_chain(make.budget.evaluation[make.data]))


def one_chain(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation by one chain like those of an update, T = 11 and L = 2."""
    return Evaluation(
        evaluation.num_examples,
        num_chains=1,
        num_temperatures=11,
        num_leapfrog=2,
        schedule="linear",
        bdmc_examples=0,
    )
