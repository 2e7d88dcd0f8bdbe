"""`python -m applications.pictures`: digits of MNIST by linear layers and by convolutions."""

import dataclasses
import sys
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import aisle
from aisle.data import spread
from applications.core.models import Budget, Scored, Splits, go_on, starts
from applications.core.pictures import intervals, panels
from applications.core.study import SEED, Command, Study, Table

QUESTION = (
    "Binarised digits of MNIST: in the same time on one core, is a decoder of convolutions better "
    "than one of linear layers (200 units each), and what does annealing add to each?"
)
FULL = Budget(seconds=300, patience=1_000, chains=8, temperatures=100, simulated=40)
_LATENTS, _TEST, _VALID, _FIRST = 50, 200, 500, 2_000
NETWORKS = ("linear", "convolutions")


def run(study: Study) -> tuple[Table, Figure]:
    """Train and evaluate both networks by both methods."""
    (latents,), (hidden,) = study.sizes((_LATENTS,), (200,))
    found = {}
    for name in NETWORKS:
        data = made_up(name) if study.is_smoke else digits(study, name)
        start = observed(data.train, _FIRST)

        def build(number: int, name: str = name, start: np.ndarray = start) -> tuple[Any, Any]:
            key, fitted = jax.random.key(SEED), aisle.Bernoulli.fitted(start)
            if name == "linear":
                layers = (hidden, hidden)
                return aisle.mlp_model(key, *fitted, num_latents=number, hidden=layers)
            return aisle.convolutional_model(
                key,
                *fitted,
                shape=start.shape[1:],
                num_latents=number,
                channels=(16, 32),
                num_hidden=hidden,
            )

        first = starts(study.cells, name, build, (latents,), data, study.budget)[latents]
        both = go_on(study.cells, name, latents, first, ("VAE", "AIS"), data, study.budget)
        found |= {(name, method): scored for method, (_, scored) in both.items()}
    return table(found), picture(found)


def digits(study: Study, network: str) -> Splits:
    """Return MNIST, whose bits are drawn anew for each update; the others are drawn once."""
    sets = aisle.data.load("mnist", study.data)
    assert sets.valid is not None
    view = dataclasses.replace(sets.train.view, is_flat=network == "linear")
    splits = [dataclasses.replace(s, view=view) for s in (sets.train, sets.valid, sets.test)]
    train: Any = splits[0]
    return Splits(train, observed(splits[1], _VALID), observed(splits[2], _TEST))


def observed(split: Any, number: int) -> np.ndarray:
    """Return some examples as the model sees them."""
    if isinstance(split, np.ndarray):
        return split[:number]
    return split.observe(spread(len(split), number))


def made_up(network: str) -> Splits:
    """Return pictures to try the program on."""
    random = np.random.default_rng(0)
    shape = (30,) if network == "linear" else (6, 5)
    return Splits(*(random.integers(0, 2, (number, *shape)) for number in (24, 6, 6)))


def table(found: dict[tuple[str, str], Scored]) -> Table:
    """Return a line for each model."""
    rows = []
    for (name, method), one in found.items():
        row = {"network": name, "method": method}
        row |= {heading: one.facts[heading] for heading in ("updates", "seconds")}
        row |= {"log p(x)": one.mean, "gap": one.gap}
        over = None if name == "linear" else one.ahead_of(found["linear", method])
        gain = None if method == "VAE" else one.ahead_of(found[name, "VAE"])
        rows.append(row | {"over linear": over, "over VAE": gain})
    return Table(("network", "method"), rows, _answer(found), _NOTES)


_NOTES = (
    "Test log-likelihoods in nats, stochastic lower bounds with standard errors over examples; "
    "differences are paired. Gap: by how much the bound may be too low, by bidirectional Monte "
    "Carlo. Both networks have 50 latents. The linear one is the paper's (200 units, tanh); the "
    "other has two convolutions (16 and 32 channels) and a linear layer of 200 units each way. A "
    "VAE is trained first; both methods go on from it, each for the same processor time, with the "
    "weights of the best bound on validation data; it is looked at after whole epochs, so that a "
    "stretch may be longer (seconds). One seed; nothing was tuned for convolutions."
)


def _answer(found: dict[tuple[str, str], Scored]) -> str:
    words = []
    for method in ("VAE", "AIS"):
        linear, other = found["linear", method], found["convolutions", method]
        gain = other.ahead_of(linear)
        if other.is_clearly_ahead_of(linear):
            words.append(f"by {method}, convolutions are ahead by {gain}")
        elif linear.is_clearly_ahead_of(other):
            words.append(f"by {method}, linear layers are ahead by {linear.ahead_of(other)}")
        else:
            words.append(f"by {method}, convolutions less linear layers are {gain}, not clear")
    best = max(found, key=lambda one: found[one].mean.mean)
    return (
        f"In nats for a picture: {'; '.join(words)}. The best of the four is {best[0]} by "
        f"{best[1]} with {found[best].mean}."
    )


def picture(found: dict[tuple[str, str], Scored]) -> Figure:
    """Draw what each model gains over the linear VAE."""
    figure, (axes,) = panels(1)
    names = [f"{name}, {method}" for name, method in found]
    gains = [one.ahead_of(found["linear", "VAE"]) for one in found.values()]
    intervals(axes, names, gains, "MNIST: nats over the linear VAE")
    return figure


COMMAND = Command("pictures", QUESTION, FULL, run)

if __name__ == "__main__":
    sys.exit(COMMAND())
