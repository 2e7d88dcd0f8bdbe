"""`python -m applications.imputation`: wine with a fifth of its entries removed at random."""

import sys
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from scipy import stats
from sklearn.datasets import load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import aisle
from aisle.statistics import CLEAR, Mean, summarise
from applications.core.files import split_rows
from applications.core.models import Budget, Splits, Trained, chosen, starts, train
from applications.core.pictures import intervals, panels
from applications.core.study import Command, Study, Table

QUESTION = (
    "178 wines by 13 measurements, a fifth of all entries removed at random: how well does a "
    "model of the table fill the holes of rows it has not seen, against column means and "
    "scikit-learn's IterativeImputer?"
)
FULL = Budget(seconds=6, patience=30, chains=16, temperatures=200, simulated=100)
_SHARE, _SEEDS, _LATENTS, _HIDDEN = 0.2, 5, (2, 4), (16,)
_METHODS = ("column means", "IterativeImputer", "VAE", "AIS")


def run(study: Study) -> tuple[Table, Figure]:
    """Remove, train and fill for each seed."""
    seeds = range(1 if study.is_smoke else _SEEDS)
    found = [one_removal(study, seed) for seed in seeds]
    return table(found), picture(found)


def one_removal(study: Study, seed: int) -> dict[str, Any]:
    """Return errors and log p by method, for one removal and one split of the rows."""
    whole = load_wine(return_X_y=True)[0].astype(np.float32)
    is_removed = np.random.default_rng(seed).random(whole.shape) < _SHARE
    holed = np.where(is_removed, np.nan, whole).astype(np.float32)
    rows = split_rows(len(whole), seed)
    data = Splits(*(holed[r] for r in rows)).at_most(study.budget.rows)
    test = rows[2][: study.budget.rows]
    scale = np.nanstd(data.train, axis=0)

    def error(filled: np.ndarray) -> float:
        wrong = ((filled - whole[test]) / scale)[is_removed[test]]
        return float(np.sqrt(np.mean(wrong**2)))

    means = np.where(is_removed[test], np.nanmean(data.train, axis=0), data.test)
    # Both of the table's other users standardise, too; valid rows are for those who choose by them.
    standard = IterativeImputer(random_state=seed, max_iter=100, tol=1e-2).fit(
        (np.concatenate([data.train, data.valid]) - np.nanmean(data.train, axis=0)) / scale
    )
    filled = standard.transform((data.test - np.nanmean(data.train, axis=0)) / scale)
    errors = {
        "column means": error(means),
        "IterativeImputer": error(filled * scale + np.nanmean(data.train, axis=0)),
    }
    found: dict[str, Any] = {"independent": _independent(data), "errors": errors, "log_p": {}}
    start, latents = _start(study, data, seed)
    for method in ("VAE", "AIS"):
        cell = f"{seed}-{latents}-{method}"
        trained = train(study.cells, cell, start.networks, data, method, study.budget, seed=seed)
        scored = study.cells(f"{cell}-score", {}, lambda t=trained: _scores(study, t, data.test))
        errors[method] = error(np.array(scored["filled"]))
        found["log_p"][method] = scored["log_p"], scored["gap"]
    return found | {"latents": latents}


def _start(study: Study, data: Splits, seed: int) -> tuple[Trained, int]:
    """Train VAEs of several numbers of latents, and choose one by validation rows."""
    latents, hidden = study.sizes(_LATENTS, _HIDDEN)
    fitted = aisle.Gaussian.fitted(data.train)

    def build(number: int) -> tuple[Any, Any]:
        key = jax.random.key(seed)
        return aisle.mlp_model(key, *fitted, num_latents=number, hidden=hidden, has_missing=True)

    first = starts(study.cells, str(seed), build, latents, data, study.budget, seed=seed)
    return first[chosen(first)], chosen(first)


def _scores(study: Study, trained: Trained, x: np.ndarray) -> dict[str, Any]:
    budget = study.budget
    sampler = aisle.Sampler(budget.chains, budget.temperatures)
    result = aisle.log_likelihood(
        *trained.networks, x, sampler=sampler, certificate=aisle.Certificate(budget.simulated)
    )
    assert result.gap is not None
    draws = 4 if study.is_smoke else 200
    filled = aisle.impute(*trained.networks, x, num_draws=draws, average=True)
    return {"log_p": result.mean, "gap": result.gap.mean, "filled": np.asarray(filled).tolist()}


def _independent(data: Splits) -> float:
    """Return the mean log p of what was observed, each column a normal of its own."""
    loc, scale = np.nanmean(data.train, axis=0), np.nanstd(data.train, axis=0)
    return float(np.nansum(stats.norm.logpdf(data.test, loc, scale), axis=1).mean())


def table(found: list[dict[str, Any]]) -> Table:
    """Return a line for each way of filling, over the seeds of the removal."""
    errors = {m: np.array([one["errors"][m] for one in found]) for m in _METHODS}
    best = min(_METHODS, key=lambda m: errors[m].mean())
    rows = []
    for method in _METHODS:
        if method == "IterativeImputer":
            log_p, gap = None, None
        elif method == "column means":
            log_p, gap = _mean([one["independent"] for one in found]), None
        else:
            log_p = _mean([one["log_p"][method][0] for one in found])
            gap = _mean([one["log_p"][method][1] for one in found])
        worse = None if method == best else _mean(errors[method] - errors[best])
        row = {"filled by": method, "error": _mean(errors[method]), "worse than the best": worse}
        rows.append(row | {"log p of the observed": log_p, "gap": gap})
    return Table(("filled by",), rows, _answer(best, errors, found), _NOTES)


_NOTES = (
    "Error: root mean square over the removed entries of test rows, in standard deviations of the "
    "column. Figures are means over seeds of the removal and of the split of rows, with standard "
    "errors over seeds; differences are paired by seed. log p is that of the observed entries of "
    "test rows in nats for a row, in the units of the data; beside `column means` it is that of "
    "independent normal columns. A VAE with 2 or 4 latents, the better one on validation rows, is "
    "trained on by a VAE and by AIS for the same time, or until the validation bound stops rising. "
    "IterativeImputer (Bayesian ridge, up to 100 rounds) has standardised columns, and the "
    "validation rows as well."
)


def _answer(best: str, errors: dict[str, np.ndarray], found: list[dict[str, Any]]) -> str:
    behind = [_behind(m, _mean(errors[m] - errors[best])) for m in _METHODS if m != best]
    gain = _mean([one["log_p"]["AIS"][0] - one["log_p"]["VAE"][0] for one in found])
    over = _mean([one["log_p"]["AIS"][0] - one["independent"] for one in found])
    return (
        f"{best} fills best, with an error of {_mean(errors[best])} standard deviations; worse are "
        f"{', '.join(behind)}. The model by AIS gives the observed entries of a row {over} nats "
        f"more than independent columns, and {gain} more than the VAE."
    )


def _behind(method: str, lead: Mean) -> str:
    clear = lead.mean > CLEAR * lead.standard_error
    return f"{method} by {lead}" + ("" if clear else " (not clear)")


def _mean(values: Any) -> Mean:
    return summarise(np.asarray(values, float))


def picture(found: list[dict[str, Any]]) -> Figure:
    """Draw the errors."""
    figure, (axes,) = panels(1, 5.0, 2.4)
    errors = [_mean([one["errors"][m] for one in found]) for m in _METHODS]
    intervals(axes, _METHODS, errors, "error of filled entries, in standard deviations")
    return figure


COMMAND = Command("imputation", QUESTION, FULL, run)

if __name__ == "__main__":
    sys.exit(COMMAND())
