"""`python -m applications.proteins`: beta-lactamase, held-out sequences and a mutational scan."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.special import log_softmax
from scipy.stats import rankdata

import aisle
from aisle.statistics import Mean, is_ahead, summarise
from applications.core.files import data_file, split_rows
from applications.core.models import Budget, Scored, Splits, Trained, chosen, score, starts, train
from applications.core.pictures import COLOURS, intervals, panels
from applications.core.study import Command, Study, Table
from applications.proteins.alignment import (
    LETTERS,
    Alignment,
    Scan,
    read_alignment,
    read_scan,
    sequence_weights,
)

QUESTION = (
    "Sequences of the family of beta-lactamase (BLAT_ECOLX): does a model that learned by "
    "annealing give held-out sequences a higher log p(x) than a VAE, and how well does each rank "
    "the measured effects of single mutations, which it has not seen?"
)
_ALIGNMENT = (
    "https://raw.githubusercontent.com/chloechsu/combining-evolutionary-and-assay-labelled-data/"
    "main/alignments/BLAT_ECOLX.a2m"
)
_SCAN = (
    "https://raw.githubusercontent.com/facebookresearch/esm/main/examples/variant-prediction/data/"
    "BLAT_ECOLX_Ranganathan2015.csv"
)
FULL = Budget(seconds=90, patience=10, chains=4, temperatures=100, simulated=40)
_LATENTS, _HIDDEN, _DRAWS, _TEST = (5, 20), (40, 40), 500, 300


def run(study: Study) -> tuple[Table, Figure]:
    """Train and evaluate both models, and score the scan."""
    alignment, scan = made_up() if study.is_smoke else read(study)
    weights = _weights(study, alignment)
    rows = split_rows(len(alignment.codes))
    rows = tuple(part[: study.budget.rows] for part in rows)
    train_part = aisle.Split(alignment.codes[rows[0]], weights=weights[rows[0]])
    test = alignment.codes[rows[2]][:_TEST]
    data = Splits(train_part, alignment.codes[rows[1]], test)  # type: ignore[arg-type]
    latents, hidden = study.sizes(_LATENTS, _HIDDEN)
    fitted = aisle.Categorical.fitted(alignment.codes[rows[0]], num_levels=len(LETTERS))

    def build(number: int) -> tuple[Any, Any]:
        key = jax.random.key(study.seed)
        return aisle.mlp_model(key, *fitted, num_latents=number, hidden=hidden, has_missing=True)

    first = starts(study.cells, "BLAT", build, latents, data, study.budget)
    number = chosen(first)
    found: dict[str, Scored] = {}
    rhos: dict[str, dict[str, float]] = {}
    for method in ("VAE", "AIS"):
        cell = f"BLAT-{number}-{method}"
        trained = train(study.cells, cell, first[number].networks, data, method, study.budget)
        seconds = round(first[number].seconds + trained.seconds)
        facts = {"latents": number, "seconds": seconds}
        found[method] = score(study.cells, cell, trained, test, study.budget, facts)
        rhos[method] = study.cells(
            f"{cell}-scan", {}, lambda t=trained: scanned(t, alignment, scan, study)
        )
    independent = _independent(alignment.codes[rows[0]], weights[rows[0]])
    found["independent sites"] = Scored(_site_log_p(independent, test), None, {})
    effect = (
        (independent[scan.codes, scan.columns])
        - (independent[alignment.codes[0, scan.columns].astype(int), scan.columns])
    )
    rhos["independent sites"] = {"rho": _rho(effect, scan), "error": 0.0}
    return table(found, rhos, float(weights.sum()), len(scan.effects)), picture(found, rhos)


def read(study: Study) -> tuple[Alignment, Scan]:
    """Read the alignment and the scan."""
    alignment = read_alignment(data_file("proteins/BLAT_ECOLX.a2m", study.data, _ALIGNMENT))
    path = data_file("proteins/BLAT_ECOLX_Ranganathan2015.csv", study.data, _SCAN)
    return alignment, read_scan(path, alignment, "2500")


def made_up() -> tuple[Alignment, Scan]:
    """Return an alignment and a scan to try the program on."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 20, (60, 3)).astype(np.float32)
    codes[1:][random.random((59, 3)) < 0.1] = np.nan
    places = random.integers(0, 3, 10)
    scan = Scan(places, random.integers(0, 20, 10), random.normal(size=10))
    return Alignment(codes, np.arange(1, 4)), scan


def _weights(study: Study, alignment: Alignment) -> np.ndarray:
    found = study.cells(
        "BLAT-weights", {}, lambda: {"weights": sequence_weights(alignment.codes).tolist()}
    )
    return np.array(found["weights"])


def scanned(trained: Trained, alignment: Alignment, scan: Scan, study: Study) -> dict[str, Any]:
    """Rank the mutants by p(mutant) / p(wild type), and return what that is worth.

    The ratio is the mean of p(new letter | z) / p(old letter | z) over the posterior of the wild
    type, so one set of draws serves all mutants.
    """
    model, proposal = trained.networks
    draws = 4 if study.is_smoke else _DRAWS
    z = aisle.sample_posterior(model, proposal, alignment.codes[:1], num_draws=draws)[0]
    logits = np.asarray(jax.vmap(model.decoder)(jnp.asarray(z)), float)
    log_p = log_softmax(logits.reshape(draws, len(LETTERS), -1), axis=1)
    wild = alignment.codes[0, scan.columns].astype(int)
    ratios = np.exp(log_p[:, scan.codes, scan.columns] - log_p[:, wild, scan.columns])
    means = ratios.mean(axis=0)
    errors = ratios.std(axis=0, ddof=1) / np.sqrt(draws) / means
    return {"rho": _rho(np.log(means), scan), "error": float(np.median(errors))}


def _rho(score: np.ndarray, scan: Scan) -> float:
    # Ranks are correlated, ties at their mean.
    return float(np.corrcoef(rankdata(score), rankdata(scan.effects))[0, 1])


def _independent(codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return log shares, letters by columns, with a pseudocount of one sequence in all."""
    is_letter = codes[None] == np.arange(len(LETTERS))[:, None, None]
    counts = (is_letter * weights[None, :, None]).sum(axis=1) + 1 / len(LETTERS)
    return np.log(counts / counts.sum(axis=0))


def _site_log_p(log_shares: np.ndarray, codes: np.ndarray) -> np.ndarray:
    is_there = ~np.isnan(codes)
    found = log_shares[np.where(is_there, codes, 0).astype(int), np.arange(codes.shape[1])]
    return np.where(is_there, found, 0).sum(axis=1)


def table(
    found: dict[str, Scored], rhos: dict[str, dict[str, float]], effective: float, mutants: int
) -> Table:
    """Return a line for each model."""
    rows = []
    for model, one in found.items():
        row = {"model": model, "latents": one.facts.get("latents")}
        row |= {"seconds": one.facts.get("seconds"), "log p(x)": one.mean, "gap": one.gap}
        over = None if model == "VAE" else one.ahead_of(found["VAE"])
        rows.append(row | {"over VAE": over, "Spearman's rho": f"{rhos[model]['rho']:.3f}"})
    gain = found["AIS"].ahead_of(found["VAE"])
    verdict = _verdict(gain, found)
    answer = (
        f"Held-out sequences: {verdict}, in nats for a sequence. The scan of {mutants:,} single "
        f"mutants is ranked with a Spearman's rho of {rhos['AIS']['rho']:.3f} by the AIS model, "
        f"{rhos['VAE']['rho']:.3f} by the VAE and {rhos['independent sites']['rho']:.3f} by "
        "independent sites."
    )
    error = max(one["error"] for one in rhos.values())
    return Table(("model",), rows, answer, _NOTES.format(effective=effective, error=error))


def _verdict(gain: Mean, found: dict[str, Scored]) -> str:
    if is_ahead(gain, found["VAE"].gap):
        return f"AIS is better than the VAE by {gain}"
    if is_ahead(gain._replace(mean=-gain.mean), found["AIS"].gap):
        return f"the VAE is better than AIS by {gain._replace(mean=-gain.mean)}"
    return f"AIS and the VAE do not differ clearly ({gain})"


_NOTES = (
    "Gaps of the alignment are missing values; sequences are weighted by their neighbours at 80 % "
    "identity, {effective:,.0f} effective ones. Sequences are split at random, so that held-out "
    "ones have relatives among those to train on. log p(x) of the observed letters of test "
    "sequences, stochastic lower bounds with the gap of bidirectional Monte Carlo. Latents (5 or "
    "20) and when to stop are chosen on validation sequences, nothing by the scan. A mutant's "
    "score is log p(mutant) - log p(wild type), from annealed draws of the posterior of the wild "
    "type, with a median Monte Carlo error of {error:.3f}. One seed, no ensemble."
)


def picture(found: dict[str, Scored], rhos: dict[str, dict[str, float]]) -> Figure:
    """Draw the gains over independent sites, and the correlations with the scan."""
    figure, (left, right) = panels(2)
    models = [name for name in found if name != "independent sites"]
    gains = [summarise(found[m].log_p - found["independent sites"].log_p) for m in models]
    intervals(left, models, gains, "nats over independent sites")
    right.barh(list(rhos), [one["rho"] for one in rhos.values()], color=COLOURS[1], height=0.5)
    right.set_title("Spearman's rho with the scan", fontsize=9)
    return figure


COMMAND = Command("proteins", QUESTION, FULL, run)

if __name__ == "__main__":
    sys.exit(COMMAND())
