"""`python -m benchmarks.trials`: what trains best in the same time, by validation data of MNIST."""

import sys
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

import aisle
from aisle.data import spread
from applications.core.models import USUAL, Budget, Scored, Splits, decayed, score, train
from applications.core.pictures import intervals, panels
from applications.core.study import SEED, Command, Study, Table

QUESTION = (
    "The paper's network on MNIST, from one VAE on, for the same processor time: which method, "
    "ladder, optimiser and batch reach the highest log p(x) of validation images?"
)
FULL = Budget(seconds=60, patience=1_000, chains=8, temperatures=100, simulated=60)
_VALID, _SCORED, _FIRST = 300, 600, 2_000


class Trial(NamedTuple):
    """What is tried: by default what the default recipe has."""

    method: Any = aisle.AIS(num_samples=1, num_temperatures=11)
    optimizer: Any = USUAL
    batch_size: int = 128


def _muon(rate: float) -> Any:
    return aisle.Muon(rate, aisle.rates.constant)


REFERENCE = "AIS, K = 1, T = 11"
TRIALS = {
    REFERENCE: Trial(),
    "VAE": Trial(aisle.VAE()),
    "DReG, K = 5": Trial(aisle.DReG(5)),
    "MH-HMC, K = 1, T = 11": Trial(aisle.MHHMC(1, 11)),
    "MH-HMC, 4 states": Trial(aisle.MHHMC(1, 11, num_states=4)),
    "T = 5": Trial(aisle.AIS(1, 5)),
    "T = 22": Trial(aisle.AIS(1, 22)),
    "T = 22, 4 states": Trial(aisle.AIS(1, 22, num_states=4)),
    "K = 2, T = 5": Trial(aisle.AIS(2, 5)),
    "evenly spaced": Trial(aisle.AIS(1, 11, aisle.Kernel.tuned(schedule=aisle.schedules.linear))),
    "paper's kernel": Trial(aisle.AIS(1, 11, aisle.Kernel.paper())),
    "2 states of each chain": Trial(aisle.AIS(1, 11, num_states=2)),
    "4 states of each chain": Trial(aisle.AIS(1, 11, num_states=4)),
    "chains in bfloat16": Trial(aisle.AIS(1, 11, precision="bfloat16")),
    "encoder by ELBO and wake": Trial(aisle.AIS(1, 11, phi_objective="elbo+wake")),
    "Adam, rate 0.001": Trial(optimizer=aisle.Adam(0.001, aisle.rates.constant)),
    "Muon, half the rate": Trial(optimizer=_muon(USUAL.learning_rate / 2)),
    "Muon, a quarter of the rate": Trial(optimizer=_muon(USUAL.learning_rate / 4)),
    "Muon, twice the rate": Trial(optimizer=_muon(USUAL.learning_rate * 2)),
    "weight decay 0.1": Trial(optimizer=decayed(0.1)),
    "batches of 64": Trial(batch_size=64),
    "batches of 256": Trial(batch_size=256),
}


def run(study: Study) -> tuple[Table, Figure]:
    """Train on by each trial, and score validation images."""
    (latents,), (hidden,) = study.sizes((50,), (200,))
    data = made_up() if study.is_smoke else digits(study)
    first = data.train[:_FIRST] if study.is_smoke else _observed(data.train, _FIRST)
    networks = aisle.mlp_model(
        jax.random.key(SEED),
        *aisle.Bernoulli.fitted(first),
        num_latents=latents,
        hidden=(hidden, hidden),
    )
    cells, budget = study.cells, study.budget
    start = train(cells, "start", networks, data, "VAE", budget)
    start = train(cells, "start-again", start.networks, data, "VAE", budget, seed=1)
    found = {}
    for name in (REFERENCE, "4 states of each chain") if study.is_smoke else TRIALS:
        trial, cell = TRIALS[name], name.replace(" ", "-").replace("'", "")
        trained = train(
            cells,
            cell,
            start.networks,
            data,
            trial.method,
            budget,
            optimizer=trial.optimizer,
            batch_size=trial.batch_size,
        )
        facts = {"updates": trained.updates, "seconds": trained.seconds}
        found[name] = score(cells, cell, trained, data.test, budget, facts)
    return table(found), picture(found)


def digits(study: Study) -> Splits:
    """Return MNIST: images to train on, and validation images to keep weights and to score by."""
    sets = aisle.data.load("mnist", study.data)
    assert sets.valid is not None
    train_images: Any = sets.train
    valid = _observed(sets.valid, _VALID + _SCORED)
    return Splits(train_images, valid[::3], np.delete(valid, np.s_[::3], axis=0))


def _observed(split: Any, number: int) -> np.ndarray:
    return split.observe(spread(len(split), number))


def made_up() -> Splits:
    """Return bits to try the program on."""
    random = np.random.default_rng(0)
    return Splits(*(random.integers(0, 2, (number, 30)) for number in (24, 6, 6)))


def table(found: dict[str, Scored]) -> Table:
    """Return a line for each trial."""
    rows = []
    for name, one in found.items():
        updates, seconds = one.facts["updates"], one.facts["seconds"]
        row = {"trial": name, "updates": updates, "ms each": 1000 * seconds / max(updates, 1)}
        over = None if name == REFERENCE else one.ahead_of(found[REFERENCE])
        rows.append(row | {"log p(x)": one.mean, "gap": one.gap, "over the first": over})
    return Table(("trial",), rows, _answer(found), _NOTES)


_NOTES = (
    "Log-likelihoods of 600 validation images in nats, stochastic lower bounds with standard "
    "errors over images; differences are paired. Gap: by how much the bound may be too low, by "
    f"bidirectional Monte Carlo. All go on from one VAE for {FULL.seconds:.0f} s on one core, "
    "with constant rates and averaged weights, and keep those of the best bound on 300 other "
    "validation images; each changes one thing of the first. One seed. No test image is used."
)


def _answer(found: dict[str, Scored]) -> str:
    first = found[REFERENCE]
    better, worse = [], []
    for name, one in found.items():
        words = f"{name} ({one.ahead_of(first)})"
        if one.is_clearly_ahead_of(first):
            better.append(words)
        elif first.is_clearly_ahead_of(one):
            worse.append(words)
    said = f"clearly better are {', '.join(better)}" if better else "nothing is clearly better"
    return f"Against {REFERENCE}, {said}; clearly worse are {', '.join(worse) or 'none'}."


def picture(found: dict[str, Scored]) -> Figure:
    """Draw what each trial gains over the first."""
    figure, (axes,) = panels(1, width=6.0, height=4.0)
    others = {name: one for name, one in found.items() if name != REFERENCE}
    gains = [one.ahead_of(found[REFERENCE]) for one in others.values()]
    intervals(axes, list(others), gains, f"nats over {REFERENCE}")
    axes.axvline(0, lw=0.6, color="#8a8a8a")
    return figure


COMMAND = Command("trials", QUESTION, FULL, run, package="benchmarks")

if __name__ == "__main__":
    sys.exit(COMMAND())
