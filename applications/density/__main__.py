"""`python -m applications.density`: sets of bits with published splits, by certified log p(x)."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import aisle
from aisle.errors import InputError
from aisle.statistics import is_ahead
from applications.core import baselines
from applications.core.files import check_content, data_file
from applications.core.models import METHODS, Budget, Scored, Splits, chosen, go_on, starts
from applications.core.pictures import intervals, panels
from applications.core.study import Command, SetsOptions, Study, Table

QUESTION = (
    "Binary sets with published splits: how good are decoders of 4 and of a chosen number of "
    "latents by VAE, IWAE, DReG, MH-HMC and AIS in the same time, against independent bits, a "
    "mixture of Bernoullis and a Chow-Liu tree?"
)
_URL = "https://raw.githubusercontent.com/arranger1044/DEBD/master/datasets"
# Of train, valid and test together, as `check_content` has it.
SETS = {
    "nltcs": "e3c58c87",
    "plants": "bd09ac45",
    "baudio": "79927160",
    "jester": "7464ff65",
    "bnetflix": "6d072919",
    "accidents": "e071f9eb",
    "mushrooms": "0ed514d5",
    "pumsb_star": "e1c98cea",
    "dna": "445fac92",
    "nips": "82056eae",
    "moviereview": "2619834e",
    "bbc": "d78ebd8a",
    "voting": "9a7ab7ef",
}
FULL = Budget(seconds=12, patience=15, chains=8, temperatures=100, simulated=200)
_LATENTS, _HIDDEN, _COMPONENTS = (4, 10, 20), (100, 100), (10, 30, 100)


def read(name: str, data: Path | None) -> Splits:
    """Read a set: as one .npz, or in the three files that are published."""
    parts = ("train", "valid", "test")
    try:
        path = data_file(f"binary/{name}.npz", data)
        with np.load(path) as file:
            splits = Splits(*(file[part] for part in parts))
    except InputError:
        texts = [f"{name}/{name}.{part}.data" for part in parts]
        paths = [data_file(f"binary/{text}", data, f"{_URL}/{text}") for text in texts]
        path = paths[0].parent
        splits = Splits(*(np.loadtxt(p, np.uint8, delimiter=",", ndmin=2) for p in paths))
    check_content(list(splits), SETS[name], str(path))
    return splits


def run(study: Study) -> tuple[Table, Figure]:
    """Train and evaluate all models of the sets."""
    found = {}
    for name in study.options.chosen(SETS):
        data = made_up() if study.is_smoke else read(name, study.data)
        data = data.at_most(study.budget.rows)
        found[name] = exact(study, name, data) | latent(study, name, data)
    return table(found), picture(found)


def made_up() -> Splits:
    """Return bits to try the program on."""
    random = np.random.default_rng(0)
    return Splits(*(random.random((number, 4)) < 0.4 for number in (24, 6, 6)))


def exact(study: Study, name: str, data: Splits) -> dict[str, Scored]:
    """Return the exact models."""

    def make() -> dict[str, Any]:
        def value(model: Any) -> float:
            return model.log_p(data.valid).mean()

        steps = 3 if study.is_smoke else 150
        sizes = (2,) if study.is_smoke else _COMPONENTS
        mixtures = {n: baselines.mixture(data.train, data.valid, n, steps) for n in sizes}
        size = baselines.best(mixtures, lambda n: value(mixtures[n]))
        trees = [baselines.tree(data.train, a) for a in (0.01, 0.1, 1.0)]
        return {
            "independent bits": baselines.independent(data.train).log_p(data.test).tolist(),
            f"mixture of {size}": mixtures[size].log_p(data.test).tolist(),
            "Chow-Liu tree": baselines.best(trees, value).log_p(data.test).tolist(),
        }

    found = study.cells(f"{name}-exact", {}, make)
    return {model: Scored(np.array(log_p), None, {}) for model, log_p in found.items()}


def latent(study: Study, name: str, data: Splits) -> dict[str, Scored]:
    """Return the latent-variable models: of 4 latents, and of a number chosen by a VAE."""
    latents, hidden = study.sizes(_LATENTS, _HIDDEN)
    fitted = aisle.Bernoulli.fitted(data.train)

    def build(number: int) -> tuple[Any, Any]:
        key = jax.random.key(study.seed)
        return aisle.mlp_model(key, *fitted, num_latents=number, hidden=hidden)

    first = starts(study.cells, name, build, latents, data, study.budget)
    methods = ("VAE", "AIS") if study.is_smoke else tuple(METHODS)
    found = {}
    for number in sorted({latents[0], chosen(first)}):
        every = go_on(study.cells, name, number, first[number], methods, data, study.budget)
        found |= {f"{method}, {number} latents": scored for method, (_, scored) in every.items()}
    return found


def table(found: dict[str, dict[str, Scored]]) -> Table:
    """Return a line for each model of each set."""
    rows = []
    for name, models in found.items():
        rival = _best({m: s for m, s in models.items() if s.gap is None})
        for model, one in models.items():
            over = None if model == rival else one.ahead_of(models[rival])
            row = {"set": name, "model": model, "seconds": one.facts.get("seconds")}
            row |= {"log p(x)": one.mean, "gap": one.gap}
            rows.append(row | {"over the best exact model": over})
    answer = " ".join(_sentence(name, models) for name, models in found.items())
    return Table(("set", "model"), rows, answer, _NOTES)


_NOTES = (
    "Log-likelihoods of the whole test split in nats, with standard errors over examples; "
    "differences are paired by example. Those with a gap are stochastic lower bounds, and the gap "
    "of bidirectional Monte Carlo says by how much they may be too low; the others are exact. A "
    "VAE is trained first; all methods go on from its weights for the same processor time "
    "(seconds, in all) or until the validation bound stops rising. Numbers of latents (4, 10 or "
    "20), of components (10, 30 or 100) and pseudocounts are chosen on validation data. One seed."
)


def _best(models: dict[str, Scored]) -> str:
    return max(models, key=lambda name: models[name].mean.mean)


def _sentence(name: str, models: dict[str, Scored]) -> str:
    rival = _best({m: s for m, s in models.items() if s.gap is None})
    latents = {m: s for m, s in models.items() if s.gap is not None}
    best = _best(latents)
    gain = latents[best].ahead_of(models[rival])
    words = "ahead of" if gain.mean > 2 * gain.standard_error else "not clearly ahead of"
    level = [
        other
        for other, one in latents.items()
        if other != best and not is_ahead(latents[best].ahead_of(one), one.gap)
    ]
    others = f", level with {'; '.join(level)}," if level else ""
    return (
        f"{name}: {best}{others} is best at {latents[best].mean}, {words} the best exact model, "
        f"{rival}, by {gain}."
    )


def picture(found: dict[str, dict[str, Scored]]) -> Figure:
    """Draw all models of each set but independent bits, which are far off."""
    figure, axes = panels(len(found))
    for one, (name, models) in zip(axes, found.items(), strict=True):
        shown = {m: s for m, s in models.items() if m != "independent bits"}
        first = shown["Chow-Liu tree"]
        gains = [scored.ahead_of(first) for scored in shown.values()]
        intervals(one, list(shown), gains, f"{name}: nats over a Chow-Liu tree")
    return figure


COMMAND = Command("density", QUESTION, FULL, run, SetsOptions)

if __name__ == "__main__":
    sys.exit(COMMAND())
