"""`python -m benchmarks.trials`: what trains best in the same time, by validation data of MNIST."""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import aisle
from aisle.annealing import effective_sample_size, log_mean_exp
from aisle.annealing.path import path_from
from aisle.data import spread
from aisle.learning.methods import stop
from aisle.learning.protocol import Estimate, Losses, Metrics
from aisle.models.joint import log_joint
from applications.core.models import USUAL, Budget, Scored, Splits, decayed, score, train
from applications.core.pictures import intervals, panels
from applications.core.study import SEED, Command, Study, Table

QUESTION = (
    "The paper's network on MNIST, from one VAE on, for the same processor time: which method, "
    "ladder, optimiser and batch reach the highest log p(x) of validation images?"
)
FULL = Budget(seconds=150, patience=1_000, chains=8, temperatures=100, simulated=60)
_VALID, _SCORED, _FIRST = 300, 600, 2_000


@dataclass(frozen=True, repr=False)
class LateStates(aisle.AIS):
    """AIS whose gradient of theta is averaged over more moves at the posterior.

    Attributes:
        num_late: moves after the last one of the ladder, whose ends count as much as its end.
    """

    num_late: int = 3

    @property
    def num_gradients(self) -> int:
        """Those of AIS, and those of the moves after it."""
        more = self.num_late * (self.kernel.transition.num_gradients + 1) + 1
        return super().num_gradients + self.num_samples * more

    def estimate(self, key: Any, model: Any, proposal: Any, x: Any, state: Any) -> Estimate:
        """Estimate the losses of one example."""
        key_chains, key_late, key_phi = jax.random.split(key, 3)
        ladder, density, q = self.ladder(state), log_joint(stop(model), x), stop(proposal)(x)
        path = path_from(q, density)

        def chain(key: Any, key_late: Any) -> tuple[Any, Any]:
            def move(at: Any, key: Any) -> tuple[Any, Any]:
                beta = jnp.ones((), ladder.betas.dtype)
                at, _ = ladder.transition.step(key, at, path, beta, ladder.step_sizes[-1])
                return at, at.z

            run = aisle.anneal(key, q, density, ladder)
            first, rest = jax.random.split(key_late)
            start = ladder.transition.init(first, run.z, path)
            _, zs = jax.lax.scan(move, start, jax.random.split(rest, self.num_late))
            return run, jnp.concatenate([run.z[None], zs])

        keys = [jax.random.split(k, self.num_samples) for k in (key_chains, key_late)]
        runs, zs = jax.vmap(chain)(*keys)
        weights = self._weights(runs.log_weight)
        values = jax.vmap(jax.vmap(log_joint(model, x)))(stop(zs))
        theta = -jnp.sum(weights[:, None] * values) / (1 + self.num_late)
        free = proposal(x)
        z = free.sample(key_phi)
        phi = free.log_prob(z) - density(z)
        metrics = Metrics(
            log_mean_exp(runs.log_weight),
            effective_sample_size(runs.log_weight),
            jnp.mean(runs.info.acceptance, axis=0),
            jnp.sum(runs.info.is_nonfinite).astype(theta.dtype),
        )
        return Losses(theta, phi), stop(metrics)


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
    "T = 5": Trial(aisle.AIS(1, 5)),
    "T = 22": Trial(aisle.AIS(1, 22)),
    "K = 2, T = 5": Trial(aisle.AIS(2, 5)),
    "evenly spaced": Trial(aisle.AIS(1, 11, aisle.Kernel.tuned(schedule=aisle.schedules.linear))),
    "paper's kernel": Trial(aisle.AIS(1, 11, aisle.Kernel.paper())),
    "3 late states more": Trial(LateStates(1, 11, num_late=3)),
    "T = 6, 5 late states more": Trial(LateStates(1, 6, num_late=5)),
    "encoder by ELBO and wake": Trial(aisle.AIS(1, 11, phi_objective="elbo+wake")),
    "Adam, rate 0.001": Trial(optimizer=aisle.Adam(0.001, aisle.rates.constant)),
    "Muon, half the rate": Trial(optimizer=_muon(USUAL.learning_rate / 2)),
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
    for name in (REFERENCE, "3 late states more") if study.is_smoke else TRIALS:
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
