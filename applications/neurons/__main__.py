"""`python -m applications.neurons`: words of 15 and of 50 neurons."""

import itertools
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import aisle
from aisle.statistics import Mean
from applications.core import baselines
from applications.core.files import check_content, data_file, split_rows
from applications.core.models import Budget, Scored, Splits, Trained, chosen, go_on, starts
from applications.core.pictures import intervals, panels
from applications.core.study import SEED, Command, Study, Table
from applications.neurons import pairwise

QUESTION = (
    "Which neurons fire together in a short window, in 40,000 words of 15 and of 50 neurons: do "
    "latent causes describe held-out words better than independent neurons and than pairwise "
    "couplings?"
)
FULL = Budget(seconds=12, patience=15, chains=8, temperatures=100, simulated=200)
_LATENTS, _HIDDEN, _PENALTIES = (5, 15), (64, 64), (1e-4, 1e-3, 3e-3, 1e-2, 3e-2)
# Chains and temperatures of each of all patterns.
_ALL = Budget(chains=4, temperatures=50, simulated=0)


def read(data: Path | None) -> dict[str, np.ndarray]:
    """Read the words of both sets."""
    path = data_file("spikes/words.npz", data)
    with np.load(path) as file:
        words = {f"{number} neurons": file[f"neurons{number}"] for number in (15, 50)}
    check_content(list(words.values()), "b4a10886", str(path))
    return words


def made_up() -> dict[str, np.ndarray]:
    """Return words to try the program on."""
    random = np.random.default_rng(0)
    return {"4 neurons": random.random((60, 4)) < 0.3}


def run(study: Study) -> tuple[Table, Figure]:
    """Train and evaluate all models of both sets."""
    words = made_up() if study.is_smoke else read(study.data)
    found, totals = {}, {}
    for name, bits in words.items():
        data = Splits(*(bits[r] for r in split_rows(len(bits)))).at_most(study.budget.rows)
        latent, trained = latent_models(study, name, data)
        found[name] = exact(study, name, data) | latent
        if bits.shape[1] <= 15:
            totals[name] = total(study, f"{name}-AIS-total".replace(" ", "-"), trained)
    return table(found, totals), picture(found)


def exact(study: Study, name: str, data: Splits) -> dict[str, Scored]:
    """Return independent neurons and the pairwise model, whose penalty validation data choose."""

    def make() -> dict[str, Any]:
        models = [pairwise.fit(data.train, penalty) for penalty in _PENALTIES]
        fitted = [(model, pairwise.log_normaliser(model)) for model in models]
        # Not by the pseudo-likelihood: with weak penalties, much of a model's mass is on words of
        # nearly all neurons, which it does not see.
        best, log_z = baselines.best(fitted, lambda one: _log_p(*one, data.valid).mean())
        return {
            "independent": baselines.independent(data.train).log_p(data.test).tolist(),
            "pairwise": _log_p(best, log_z, data.test).tolist(),
            "error": log_z.standard_error,
        }

    found = study.cells(f"{name}-exact".replace(" ", "-"), {}, make)
    error = {"normaliser": found["error"]}
    return {
        model: Scored(np.array(found[model]), None, error if model == "pairwise" else {})
        for model in ("independent", "pairwise")
    }


def _log_p(model: pairwise.Pairwise, log_z: Mean, words: np.ndarray) -> np.ndarray:
    return model.energy(words.astype(float)) - log_z.mean


def latent_models(study: Study, name: str, data: Splits) -> tuple[dict[str, Scored], Trained]:
    """Return the models by VAE and by AIS, and the networks of the latter."""
    latents, hidden = study.sizes(_LATENTS, _HIDDEN)
    fitted = aisle.Bernoulli.fitted(data.train)

    def build(number: int) -> tuple[Any, Any]:
        key = jax.random.key(SEED)
        return aisle.mlp_model(key, *fitted, num_latents=number, hidden=hidden)

    cell = name.replace(" ", "-")
    first = starts(study.cells, cell, build, latents, data, study.budget)
    number = chosen(first)
    both = go_on(study.cells, cell, number, first[number], ("VAE", "AIS"), data, study.budget)
    return {method: scored for method, (_, scored) in both.items()}, both["AIS"][0]


def total(study: Study, cell: str, trained: Trained) -> Mean:
    """Return the sum of p(x) over all patterns, which is 1 on average for chains of any length."""
    number = trained.networks[0].likelihood.num_features
    patterns = np.array(list(itertools.product((0, 1), repeat=number)), np.uint8)
    sampler = aisle.Sampler(_ALL.chains, _ALL.temperatures)

    def make() -> dict[str, Any]:
        certificate = aisle.Certificate(_ALL.simulated)
        found = aisle.log_likelihood(
            *trained.networks, patterns, sampler=sampler, certificate=certificate
        )
        p = np.exp(found.log_p)
        # The variance of a mean of weights, from how far their effective number is below C.
        spare = 1 / found.effective_sample_size - 1 / _ALL.chains
        variance = p**2 * np.maximum(spare, 0) * _ALL.chains / (_ALL.chains - 1)
        mean = Mean(float(p.sum()), float(np.sqrt(variance.sum())), len(p))
        return mean._asdict()

    return Mean(**study.cells(cell, {"sampler": repr(sampler)}, make))


def table(found: dict[str, dict[str, Scored]], totals: dict[str, Mean]) -> Table:
    """Return a line for each model of each set."""
    rows = []
    for name, models in found.items():
        for model, one in models.items():
            row = {"words of": name, "model": model, "latents": one.facts.get("latents")}
            row |= {"seconds": one.facts.get("seconds"), "log p(x)": _fine(one.mean)}
            row |= {"gap": None if one.gap is None else _fine(one.gap)}
            over = None if model == "pairwise" else _fine(one.ahead_of(models["pairwise"]))
            rows.append(row | {"over pairwise": over})
    sentences = [_sentence(name, models) for name, models in found.items()]
    for name, mean in totals.items():
        sentences.append(
            f"Summed over all {mean.num_examples:,} patterns of {name}, p(x) of the AIS model is "
            f"{mean:.4f}, where 1 is right."
        )
    error = max(s.facts.get("normaliser", 0.0) for m in found.values() for s in m.values())
    return Table(("words of", "model"), rows, " ".join(sentences), _NOTES.format(error=error))


_NOTES = (
    "Log-likelihoods of held-out words in nats, with standard errors over words; differences are "
    "paired by word. Those with a gap are stochastic lower bounds, and the gap of bidirectional "
    "Monte Carlo says by how much they may be too low. The pairwise model is fitted by "
    "pseudo-likelihood, its penalty chosen by log p(x) of validation data. Its normaliser is "
    "summed for 15 neurons, and annealed for 50 with an error of {error:.4f}. Latents: 5 or 15, "
    "chosen on validation data; a VAE is trained first, and VAE and AIS go on from it for the same "
    "processor time (seconds, in all) or until the validation bound stops rising. One seed."
)


def _fine(mean: Mean) -> str:
    # Words are rare events, and models differ in the third digit.
    return f"{mean:.4f}"


def _sentence(name: str, models: dict[str, Scored]) -> str:
    ais, vae, rival = models["AIS"], models["VAE"], models["pairwise"]
    gain, more = ais.ahead_of(rival), ais.ahead_of(vae)
    if ais.is_clearly_ahead_of(rival):
        verdict = f"latent causes by AIS are better than pairwise couplings by {gain:.4f}"
    elif rival.is_clearly_ahead_of(ais):
        loss = rival.ahead_of(ais)
        verdict = f"pairwise couplings are better than latent causes by AIS by {loss:.4f}"
    else:
        verdict = f"latent causes by AIS and pairwise couplings do not differ clearly ({gain:.4f})"
    clear = "clearly" if ais.is_clearly_ahead_of(vae) else "not clearly"
    return (
        f"{name}: {verdict} nats for a word; AIS is {clear} better than the VAE after the same "
        f"time ({more:.4f})."
    )


def picture(found: dict[str, dict[str, Scored]]) -> Figure:
    """Draw what each model gains over independent neurons."""
    figure, axes = panels(len(found))
    for one, (name, models) in zip(axes, found.items(), strict=True):
        others = {m: s for m, s in models.items() if m != "independent"}
        gains = [s.ahead_of(models["independent"]) for s in others.values()]
        intervals(one, list(others), gains, f"{name}: nats over independent neurons")
    return figure


COMMAND = Command("neurons", QUESTION, FULL, run)

if __name__ == "__main__":
    sys.exit(COMMAND())
