"""`aisle.LatentDensity` by its defaults against what scikit-learn has, by cross-validation.

`python -m benchmarks.estimator` prints and writes `results/estimator/estimator.md`: the mean
held-out log p in nats, with the standard error of the paired difference to the best rival. Rivals
choose by the training rows alone: GaussianMixture its components and covariances by BIC,
FactorAnalysis its factors and KernelDensity its bandwidth by cross-validation, all on standardised
columns. Names of data sets may be given, and results are kept, so that the work can be done in
parts; rivals that are on record are not fitted again.

Bits and grey values are whole numbers, of which a density can be as high as one likes. To compare,
the rivals of bits, and all models of grey values, see numbers to which uniform noise was added: the
mean log-density is then a lower bound of the log-probability of the whole numbers.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KernelDensity

import aisle
from aisle.provenance import provenance
from aisle.statistics import Mean, summarise

PLACE = Path(__file__).parents[1] / "results" / "estimator" / "estimator.json"
FOLDS = 5
# What is asked for beside data sets: the seconds of fits.
TIME = "time"


def tables() -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
    """Return, for each data set, what aisle sees, what rivals see, and aisle's likelihood."""
    random = np.random.default_rng(0)
    digits: Any = datasets.load_digits(return_X_y=True)[0]
    bits = (digits > 7).astype(float)
    grey = digits + random.random(digits.shape)
    real: dict[str, Any] = {
        "wine": datasets.load_wine(return_X_y=True)[0],
        "breast cancer": datasets.load_breast_cancer(return_X_y=True)[0],
        "iris": datasets.load_iris(return_X_y=True)[0],
        "digits, real": grey,
    }
    every: dict[str, Any] = {name: (x, x, "auto") for name, x in real.items()}
    return every | {"digits, bits": (bits, bits + random.random(bits.shape), "bernoulli")}


def mixture(train: np.ndarray) -> Any:
    """Return the Gaussian mixture of lowest BIC.

    Components have rows enough for a covariance of their own, or BIC would choose singular ones.
    """
    rows, columns = train.shape
    made = [
        GaussianMixture(number, covariance_type=kind, n_init=1, random_state=0).fit(train)
        for kind in ("full", "tied", "diag", "spherical")
        for number in (1, 2, 3, 4, 6, 8, 12, 16)
        if number * 2 * (columns + 1 if kind == "full" else 8) <= rows or number == 1
    ]
    return min(made, key=lambda one: one.bic(train))


def factors(train: np.ndarray) -> Any:
    """Return factor analysis with the best number of factors."""
    numbers = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if n <= train.shape[1]]
    # Exact, and for tables of few columns faster than the default.
    model = FactorAnalysis(svd_method="lapack")
    return GridSearchCV(model, {"n_components": numbers}).fit(train)


def kernels(train: np.ndarray) -> Any:
    """Return a kernel density with the best bandwidth."""
    return GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.05, 2, 25)}).fit(train)


RIVALS: dict[str, Callable[[np.ndarray], Any]] = {
    "GaussianMixture": mixture,
    "FactorAnalysis": factors,
    "KernelDensity": kernels,
}


def held_out(name: str, x: np.ndarray, fit: Callable[[np.ndarray], Any] | str) -> dict[str, Any]:
    """Return log p of each row by the model of the folds without it, and seconds of a fit."""
    log_p, seconds = np.zeros(len(x)), []
    for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(x):
        start = time.process_time()
        if isinstance(fit, str):
            model = aisle.LatentDensity(likelihood=fit, random_state=0).fit(x[train])
            seconds.append(time.process_time() - start)
            log_p[test] = model.score_samples(x[test])
            print(name, model.num_updates_, f"{seconds[-1]:.1f} s", log_p[test].mean(), flush=True)
            continue
        location, scale = x[train].mean(axis=0), x[train].std(axis=0)
        scale = np.where(scale > 0, scale, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = fit((x[train] - location) / scale)
        seconds.append(time.process_time() - start)
        best = getattr(model, "best_estimator_", model)
        log_p[test] = best.score_samples((x[test] - location) / scale) - np.log(scale).sum()
    print(name, f"{log_p.mean():.2f}", f"{seconds[-1]:.1f} s", flush=True)
    # The first fit has compiled.
    return {"log_p": log_p.round(4).tolist(), "seconds": float(np.median(seconds[1:]))}


def times() -> dict[str, float]:
    """Return the seconds of a fit to 1,000 rows of 20 columns on a curve, and of rivals' fits."""
    random = np.random.default_rng(0)
    z = random.normal(size=(1000, 2))
    x = np.tanh(z @ random.normal(size=(2, 20))) + 0.1 * random.normal(size=(1000, 20))
    models = {
        "LatentDensity, first fit": aisle.LatentDensity(random_state=0),
        "LatentDensity, second fit": aisle.LatentDensity(random_state=1),
        "GaussianMixture(10)": GaussianMixture(10, random_state=0),
        "FactorAnalysis(10)": FactorAnalysis(10, random_state=0),
    }
    found = {}
    for name, model in models.items():
        start = time.process_time()
        model.fit(x)
        found[name] = time.process_time() - start
    return found


def rows(found: dict[str, Any]) -> list[list[str]]:
    """Return what the table says of each data set."""
    lines = []
    for name, results in found.items():
        if "LatentDensity" not in results:
            continue
        log_p = {model: np.array(one["log_p"]) for model, one in results.items()}
        own = log_p.pop("LatentDensity")
        best = max(log_p, key=lambda model: log_p[model].mean())
        gain: Mean = summarise(own - log_p[best])
        words = [f"{values.mean():.2f}" for values in (own, *log_p.values())]
        times = [f"{results[model]['seconds']:.1f}" for model in ("LatentDensity", *RIVALS)]
        lines.append([name, *words, f"{gain} over {best}", " / ".join(times)])
    return lines


def main() -> None:
    """Compare on the data sets that are named, or all."""
    from aisle.cli.output import markdown_table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*tables(), TIME])
    parser.add_argument("--rivals-only", action="store_true", help="leave LatentDensity for later")
    names, rivals_only = vars(parser.parse_args()).values()
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    stored = json.loads(PLACE.read_text()) if PLACE.exists() else {}
    found, seconds = stored.get("results", {}), stored.get("times", {})
    for name in names:
        if name == TIME:
            seconds = times()
            continue
        own, seen, likelihood = tables()[name]
        results = found.setdefault(name, {})
        for model, fit in RIVALS.items():
            results[model] = results.get(model) or held_out(f"{name}, {model}", seen, fit)
            PLACE.write_text(json.dumps({"results": found, "times": seconds}))
        if not rivals_only:
            results["LatentDensity"] = held_out(name, own, likelihood)
        PLACE.write_text(json.dumps({"results": found, "times": seconds, **provenance()}))
    PLACE.write_text(json.dumps({"results": found, "times": seconds, **provenance()}))
    if rivals_only:
        return
    headings = ["data", "LatentDensity", *RIVALS, "gain", "seconds of processor time"]
    columns: Any = {h: "left" if h == "data" else "right" for h in headings}
    table = markdown_table(columns, rows(found))
    spent = "\n".join(f"- {name}: {number:.1f} s" for name, number in seconds.items())
    text = f"{table}\n\nA fit to 1,000 rows of 20 columns, processor time:\n\n{spent}\n"
    said = (__doc__ or "").partition("\n\n")[2].strip()
    title = "# LatentDensity by its defaults, and models of scikit-learn"
    PLACE.with_suffix(".md").write_text(f"{title}\n\n{said}\n\n{text}")
    print(text)


if __name__ == "__main__":
    main()
