"""`python -m applications.counts`: six models of the counts of two spatial experiments."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import aisle
from aisle.errors import InputError
from aisle.statistics import Mean
from applications.core.files import check_content, data_file, split_rows
from applications.core.models import Budget, Scored, Splits, chosen, go_on, starts
from applications.core.pictures import intervals, panels
from applications.core.study import SEED, Command, SetsOptions, Study, Table

QUESTION = (
    "Counts of transcripts in single cells of the mouse cortex (osmFISH, 33 genes; STARmap, 158 "
    "genes): are they Poisson, negative binomial or zero-inflated given a latent state of the "
    "cell, and is a model that learned by annealing better than a VAE?"
)
_URL = "https://github.com/YosefLab/scVI-data/raw/master/smfish.h5ad"
FAMILIES = {
    "Poisson": aisle.Poisson,
    "negative binomial": aisle.NegativeBinomial,
    "zero-inflated": aisle.ZeroInflatedNegativeBinomial,
}
_HIDDEN, _LATENTS = (64, 64), (4, 10)
FULL = Budget(seconds=60, patience=20, chains=16, temperatures=300, simulated=200)


def read_smfish(data: Path | None) -> np.ndarray:
    """Read the counts of osmFISH."""
    path = data_file("counts/smfish.h5ad", data, _URL)
    try:
        import h5py
    except ImportError:
        raise InputError("a file .h5ad is read by h5py: pip install h5py") from None
    with h5py.File(path) as file:
        counts = np.asarray(file["X"])
    check_content([counts], "320d07dd", str(path))
    return counts


def read_starmap(data: Path | None) -> np.ndarray:
    """Read the counts of STARmap."""
    path = data_file("counts/starmap.npz", data)
    with np.load(path) as file:
        counts = file["counts"]
    check_content([counts], "2b53535b", str(path))
    return counts


SETS = {"osmFISH": read_smfish, "STARmap": read_starmap}


def run(study: Study) -> tuple[Table, Figure]:
    """Train and evaluate all models of the sets."""
    found: dict[str, dict[tuple[str, str], Scored]] = {}
    for name in study.options.chosen(SETS):
        counts = made_up() if study.is_smoke else SETS[name](study.data)
        rows = split_rows(len(counts))
        data = Splits(*(counts[r].astype(np.float32) for r in rows)).at_most(study.budget.rows)
        found[name] = models(study, name, data)
    return table(found), picture(found)


def made_up() -> np.ndarray:
    """Return counts to try the program on."""
    return np.random.default_rng(0).negative_binomial(2, 0.4, (60, 5))


def models(study: Study, name: str, data: Splits) -> dict[tuple[str, str], Scored]:
    """Train each family by a VAE, and from the better number of latents on by both methods."""
    found = {}
    latents, hidden = study.sizes(_LATENTS, _HIDDEN)
    for family, kind in FAMILIES.items():
        fitted = kind.fitted(data.train)

        def build(number: int, fitted: Any = fitted) -> tuple[Any, Any]:
            key = jax.random.key(SEED)
            return aisle.mlp_model(key, *fitted, num_latents=number, hidden=hidden)

        cell = f"{name}-{family}".replace(" ", "-")
        first = starts(study.cells, cell, build, latents, data, study.budget)
        number = chosen(first)
        both = go_on(study.cells, cell, number, first[number], ("VAE", "AIS"), data, study.budget)
        found |= {(family, method): scored for method, (_, scored) in both.items()}
    return found


def table(found: dict[str, dict[tuple[str, str], Scored]]) -> Table:
    """Return a line for each model, compared with the Poisson and with the VAE."""
    rows = []
    for name, models in found.items():
        for (family, method), one in models.items():
            rows.append(
                {
                    "data": name,
                    "counts": family,
                    "method": method,
                    "latents": one.facts["latents"],
                    "updates": one.facts["updates"],
                    "seconds": one.facts["seconds"],
                    "log p(x)": one.mean,
                    "gap": one.gap,
                    "over Poisson": _over(one, models["Poisson", method]),
                    "over VAE": _over(one, models[family, "VAE"]),
                }
            )
    sentences = [_sentence(name, models) for name, models in found.items()]
    return Table(("data", "counts", "method"), rows, " ".join(sentences), _NOTES)


_NOTES = (
    "Test log-likelihoods in nats for a cell, stochastic lower bounds, with standard errors over "
    "cells; differences are paired by cell. Gap: by how much the bound may be too low, by "
    "bidirectional Monte Carlo. A VAE is trained first, with 4 and with 10 latents. The one with "
    "the better importance-weighted bound on validation data is trained on by a VAE and by AIS, "
    "for about the same processor time or until the validation bound stops rising. An update of "
    "AIS costs much more, so that it makes fewer of them (updates and seconds, in all). One seed."
)


def _over(one: Scored, other: Scored) -> Mean | None:
    return None if one is other else one.ahead_of(other)


def _sentence(name: str, models: dict[tuple[str, str], Scored]) -> str:
    """Say which model is best, and what annealing gains with each law."""
    best = max(models, key=lambda one: models[one].mean.mean)
    words = []
    for family in FAMILIES:
        if family != best[0]:
            other = max(("VAE", "AIS"), key=lambda m: models[family, m].mean.mean)
            gain, rival = models[best].ahead_of(models[family, other]), models[family, other]
            doubt = "" if models[best].is_clearly_ahead_of(rival) else ", which is not clear"
            words.append(f"{gain} over {family} by {other}{doubt}")
    verdicts = [_verdict(f, models[f, "AIS"], models[f, "VAE"]) for f in FAMILIES]
    return (
        f"{name}: {best[0]} counts by {best[1]} are best at {models[best].mean} nats for a cell "
        f"({'; '.join(words)}). In the same time, AIS against the VAE has {', '.join(verdicts)}."
    )


def _verdict(family: str, ais: Scored, vae: Scored) -> str:
    gain = ais.ahead_of(vae)
    clear = ais.is_clearly_ahead_of(vae) or vae.is_clearly_ahead_of(ais)
    return (
        f"{gain.mean:+.2f} +- {gain.standard_error:.2f} ({family}{'' if clear else ', not clear'})"
    )


def picture(found: dict[str, dict[tuple[str, str], Scored]]) -> Figure:
    """Draw what each model gains over the Poisson VAE."""
    figure, axes = panels(len(found))
    for one, (name, models) in zip(axes, found.items(), strict=True):
        first = models["Poisson", "VAE"]
        names = [f"{family}, {method}" for family, method in models]
        gains = [scored.ahead_of(first) for scored in models.values()]
        intervals(one, names, gains, f"{name}: nats over the Poisson VAE")
    return figure


COMMAND = Command("counts", QUESTION, FULL, run, SetsOptions)

if __name__ == "__main__":
    sys.exit(COMMAND())
