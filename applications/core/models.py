"""Models that are trained for some time, and scored by certified log p(x)."""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import aisle
from aisle.statistics import Mean, is_ahead, summarise
from applications.core.cells import Cells

# The rate is constant, and weights are averaged, because training ends by the clock.
USUAL, AVERAGE = aisle.Muon(0.0075, aisle.rates.constant), 0.998
# Seconds between two lines about a training.
_SHOW_EVERY = 5.0


def decayed(decay: float) -> aisle.Muon:
    """Return the usual optimiser, under which matrices decay: a decoder's towards its last bias."""
    return dataclasses.replace(USUAL, weight_decay=decay)


METHODS: dict[str, Any] = {
    "VAE": aisle.VAE(),
    "IWAE": aisle.IWAE(5),
    "DReG": aisle.DReG(5),
    "MH-HMC": aisle.MHHMC(num_samples=1, num_temperatures=11),
    "AIS": aisle.AIS(num_samples=1, num_temperatures=11),
}


@dataclass(frozen=True)
class Budget:
    """What one cell may cost.

    Attributes:
        seconds: of processor time that a stretch of training takes at the most, from the end of
            its first epoch on, when everything is compiled.
        updates: that it makes at the most.
        look_every: updates between two bounds on validation data, in whole epochs. Small data are
            soon overfitted.
        patience: bounds on validation data to wait for a higher one.
        chains: C of an evaluation.
        temperatures: T of an evaluation.
        simulated: examples of the certificate.
        rows: of each split that are used at the most.
    """

    seconds: float = 30.0
    updates: int = 1_000_000
    look_every: int = 400
    patience: int = 20
    chains: int = 16
    temperatures: int = 200
    simulated: int = 100
    rows: int = 1_000_000


# Of an exact model.
_NO_GAP = Mean(0.0, 0.0, 0)
SMOKE = Budget(1.0, 4, 1, 2, 2, 4, 4, 24)


class Splits(NamedTuple):
    """Examples to train on, to choose by, and to report."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    def at_most(self, rows: int) -> "Splits":
        """Return the first rows of each."""
        return Splits(*(split[:rows] for split in self))


class Trained(NamedTuple):
    """Networks, and what a stretch of training found.

    Attributes:
        bound: the highest on validation data, whose weights these are.
        seconds: of processor time, without compilation.
    """

    networks: tuple[Any, Any]
    bound: float
    updates: int
    seconds: float


class Scored(NamedTuple):
    """Log p(x) of each example, a stochastic lower bound or exact, and its certificate.

    Attributes:
        gap: by how much the bound may be too low; None if log_p is exact.
        facts: what else the table says of it.
    """

    log_p: np.ndarray
    gap: Mean | None
    facts: dict[str, Any]

    @property
    def mean(self) -> Mean:
        """The mean over examples."""
        return summarise(self.log_p)

    def ahead_of(self, other: "Scored") -> Mean:
        """Return by how much it is better on the same examples."""
        return summarise(self.log_p - other.log_p)

    def is_clearly_ahead_of(self, other: "Scored") -> bool:
        """Say whether it is better, whatever the gap of the other one hides."""
        return is_ahead(self.ahead_of(other), other.gap or _NO_GAP)


class _Clock:
    """Ends a stretch of training when its processor time is over, and shows how it goes.

    At a bound on validation data, by which weights are kept.
    """

    def __init__(self, seconds: float):
        self.allowed, self.start, self.shown = seconds, 0.0, 0.0

    def __call__(self, metrics: aisle.Look, state: Any) -> bool:
        del state
        # Compilation is over after the first look.
        self.start = self.start or time.process_time()
        if metrics.held_out is not None and self.spent >= self.shown:
            self.shown = self.spent + _SHOW_EVERY
            time_ = f"{self.spent:.0f} of {self.allowed:.0f} s"
            sys.stderr.write(f"  {time_}, bound on validation data {metrics.held_out}\n")
        return metrics.held_out is not None and self.spent >= self.allowed

    @property
    def spent(self) -> float:
        return time.process_time() - self.start if self.start else 0.0


def train(
    cells: Cells,
    name: str,
    networks: tuple[Any, Any],
    data: Splits,
    method: Any,
    budget: Budget,
    *,
    seed: int = 0,
    optimizer: Any = USUAL,
    batch_size: int = 128,
) -> Trained:
    """Train from given weights until time or patience end; keep the best on validation data.

    `method` is one of aisle's methods, or the name of one of `METHODS`.
    """
    batch = min(batch_size, len(data.train))
    method = METHODS[method] if isinstance(method, str) else method

    def make() -> dict[str, Any]:
        clock = _Clock(budget.seconds)
        every = max(1, budget.look_every * batch // len(data.train))
        phase = aisle.Phase(method, optimizer)
        fitted = aisle.fit(
            *networks,
            data.train,
            method=aisle.Recipe((phase,), average=AVERAGE),
            num_updates=budget.updates,
            batch_size=batch,
            seed=seed,
            held_out=aisle.Validation(data.valid, every),
            callbacks=(clock, aisle.EarlyStopping(budget.patience)),
            show_progress=False,
        )
        bounds = [r["held_out_bound"] for r in fitted.history if "held_out_bound" in r]
        cells.save(name, (fitted.model, fitted.proposal))
        updates = int(fitted.state.update)
        return {"bound": max(bounds), "updates": updates, "seconds": round(clock.spent, 1)}

    found = cells(name, {"method": repr(method), "training_seed": seed}, make)
    return Trained(cells.load(name, networks), **found)


def starts(
    cells: Cells,
    name: str,
    build: Callable[[int], tuple[Any, Any]],
    latents: Sequence[int],
    data: Splits,
    budget: Budget,
    *,
    seed: int = 0,
) -> dict[int, Trained]:
    """Train a VAE of each number of latents, from which all methods go on."""
    return {
        n: train(cells, f"{name}-{n}-start", build(n), data, "VAE", budget, seed=seed)
        for n in latents
    }


def chosen(models: dict[int, Trained]) -> int:
    """Return the number of latents that is best on validation data."""
    return max(models, key=lambda n: models[n].bound)


def go_on(
    cells: Cells,
    name: str,
    latents: int,
    start: Trained,
    methods: Iterable[str],
    data: Splits,
    budget: Budget,
    *,
    optimizer: Any = USUAL,
) -> dict[str, tuple[Trained, Scored]]:
    """Train on from a start by each method, and evaluate on test data."""
    found = {}
    for method in methods:
        cell = f"{name}-{latents}-{method}"
        trained = train(cells, cell, start.networks, data, method, budget, optimizer=optimizer)
        facts = {
            "latents": latents,
            "updates": start.updates + trained.updates,
            "seconds": round(start.seconds + trained.seconds),
        }
        found[method] = trained, score(cells, cell, trained, data.test, budget, facts)
    return found


def score(
    cells: Cells, name: str, trained: Trained, x: np.ndarray, budget: Budget, facts: dict[str, Any]
) -> Scored:
    """Evaluate log p(x) of each example, with a certificate."""
    sampler = aisle.Sampler(budget.chains, budget.temperatures)

    def make() -> dict[str, Any]:
        certificate = aisle.Certificate(budget.simulated)
        found = aisle.log_likelihood(*trained.networks, x, sampler=sampler, certificate=certificate)
        assert found.gap is not None
        return {"log_p": found.log_p.tolist(), "gap": found.gap._asdict()}

    found = cells(f"{name}-score", {"sampler": repr(sampler)}, make)
    return Scored(np.array(found["log_p"]), Mean(**found["gap"]), facts)
