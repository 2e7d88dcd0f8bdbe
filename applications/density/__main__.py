"""`python -m applications.density`: sets of bits with published splits, by certified log p(x)."""

import functools
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from matplotlib.figure import Figure
from scipy.special import logsumexp
from scipy.stats import norm, qmc

import aisle
from aisle.errors import InputError
from aisle.statistics import Mean, summarise
from applications.core import baselines
from applications.core.files import check_content, data_file
from applications.core.models import (
    METHODS,
    Budget,
    Scored,
    Splits,
    Trained,
    decayed,
    go_on,
    train,
)
from applications.core.pictures import intervals, panels
from applications.core.study import SEED, Command, SetsOptions, Study, Table
from applications.density.exclusive import Exclusive

QUESTION = (
    "Binary sets with published splits: how good are decoders of 4 and of a chosen number of "
    "latents by VAE, IWAE, DReG, MH-HMC and AIS in the same time, against independent bits, a "
    "mixture of Bernoullis, a Chow-Liu tree and a sum-product network?"
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
FULL = Budget(seconds=20, look_every=100, patience=15, chains=8, temperatures=100, simulated=200)
_LATENTS, _HIDDEN, _COMPONENTS = (4, 10, 20, 40), (100, 100), (10, 30, 100)
# The usual rate overfits a set of few rows before it has learned anything.
_OPTIMIZERS = {"muon": decayed(0.0), "muon-decay": decayed(0.1), "adam": optax.adam(1e-3)}
_BITS, _CATEGORIES = "bits", "categories"
# Columns up to which log p of four latents is integrated, too.
_FEW_COLUMNS = 16


@dataclass
class DensityOptions(SetsOptions):
    """What this application takes beside what all do."""

    networks: Path | None = None
    """Python of an environment that has deeprob-kit; without it, no sum-product networks."""


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


class Latent(NamedTuple):
    """Models with latents.

    Attributes:
        form: in which they see the set.
        scores: of 4 latents and of the chosen number, by method and number.
    """

    form: str
    scores: dict[tuple[str, int], Scored]


class Found(NamedTuple):
    """What was found about a set.

    Attributes:
        exact: models whose log p is exact.
        latent: models with latents.
        integrated: log p of AIS with 4 latents by integration, or None for many columns.
    """

    exact: dict[str, Scored]
    latent: Latent
    integrated: Mean | None

    @property
    def rival(self) -> tuple[str, Scored]:
        """The best exact model."""
        return max(self.exact.items(), key=lambda item: item[1].mean.mean)

    @property
    def chosen(self) -> dict[str, Scored]:
        """The models of the number of latents that validation data chose."""
        scores = self.latent.scores
        *_, (_, number) = scores
        return {method: one for (method, n), one in scores.items() if n == number}

    @property
    def has_best(self) -> bool:
        """Whether the highest figure of the table is of a model with latents."""
        scores = self.latent.scores.values()
        return max(one.mean.mean for one in scores) > self.rival[1].mean.mean


def run(study: Study) -> tuple[Table, Figure]:
    """Train and evaluate all models of the sets."""
    found = {}
    for name in study.options.chosen(SETS):
        data = made_up() if study.is_smoke else read(name, study.data)
        data = data.at_most(study.budget.rows)
        models, four = latent(study, name, data)
        whole = None
        if data.train.shape[1] <= _FEW_COLUMNS and models.form == _BITS:
            make = functools.partial(integrated, four, data.test)
            whole = Mean(**study.cells(f"{name}-integrated", {}, make))
        found[name] = Found(exact(study, name, data), models, whole)
        # Compiled programs take parts of memory, of which Linux allows a process 65,530.
        jax.clear_caches()
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
    if study.options.networks is not None:
        python = study.options.networks
        network = study.cells(f"{name}-networks", {}, lambda: sum_product(python, data))
        found["sum-product network"] = network["log_p"]
    return {model: Scored(np.array(log_p), None, {}) for model, log_p in found.items()}


def sum_product(python: Path, data: Splits) -> dict[str, Any]:
    """Return log p of the test rows by a network that another environment learns."""
    with tempfile.TemporaryDirectory() as folder:
        splits, found = Path(folder) / "splits.npz", Path(folder) / "found.json"
        np.savez(splits, **data._asdict())
        program = Path(__file__).with_name("sum_product.py")
        try:
            subprocess.run([python, program, splits, found], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"").decode().strip() or str(error)
            raise InputError(
                f"--networks {python} does not learn sum-product networks "
                f"({said.splitlines()[-1]}): name a Python that has deeprob-kit"
            ) from None
        return json.loads(found.read_text())


class Form(NamedTuple):
    """How models see a set.

    Attributes:
        data: what they are trained on and score.
        likelihood: of the decoder, with its first output.
        lacks: what their log p of each row lacks of that of its bits.
    """

    data: Splits
    likelihood: tuple[Any, Any]
    lacks: Splits


def forms(data: Splits) -> dict[str, Form]:
    """Return the set as bits, and as categories where some exclude each other."""
    lacks = Splits(*(np.zeros(len(x)) for x in data))
    found = {_BITS: Form(data, aisle.Bernoulli.fitted(data.train), lacks)}
    exclusive = Exclusive.found(data.train)
    if exclusive.has_any:
        codes = Splits(*map(exclusive.codes, data))
        likelihood = aisle.Categorical.fitted(codes.train, num_levels=exclusive.num_levels)
        found[_CATEGORIES] = Form(codes, likelihood, Splits(*map(exclusive.log_share, codes)))
    return found


def latent(study: Study, name: str, data: Splits) -> tuple["Latent", Trained]:
    """Return the models of 4 latents and of a number that validation data choose.

    And the networks by AIS of 4 latents.
    """
    latents, hidden = study.sizes(_LATENTS, _HIDDEN)
    known = forms(data)

    def start(number: int, learner: str, form: str = _BITS) -> Trained:
        seen = known[form]
        key = jax.random.key(SEED)
        networks = aisle.mlp_model(key, *seen.likelihood, num_latents=number, hidden=hidden)
        cell, optimizer = f"{name}-{form}-{number}-{learner}-start", _OPTIMIZERS[learner]
        trained = train(
            study.cells, cell, networks, seen.data, "VAE", study.budget, optimizer=optimizer
        )
        return trained._replace(bound=trained.bound + seen.lacks.valid.mean())

    middle = latents[len(latents) // 2]
    learners = list(_OPTIMIZERS)[: 1 if study.is_smoke else None]
    learner = max(learners, key=lambda learner: start(middle, learner).bound)
    form = max(known, key=lambda form: start(middle, learner, form).bound)
    starts = {number: start(number, learner, form) for number in latents}
    methods = ("VAE", "AIS") if study.is_smoke else METHODS
    found = {}
    # The chosen ones last, also where they are four.
    for number in (latents[0], max(latents, key=lambda number: starts[number].bound)):
        trained = go_on(
            study.cells,
            f"{name}-{form}",
            number,
            starts[number],
            methods,
            known[form].data,
            study.budget,
            optimizer=_OPTIMIZERS[learner],
        )
        found |= {(method, number): each for method, each in trained.items()}
    four, _ = found["AIS", latents[0]]
    lacks = known[form].lacks.test
    scores = {
        key: scored._replace(log_p=scored.log_p + lacks) for key, (_, scored) in found.items()
    }
    return Latent(form, scores), four


def integrated(trained: Trained, x: np.ndarray, points: int = 2**18) -> dict[str, Any]:
    """Return log p of a model of few latents, by quasi-random latents from the prior.

    Its standard error is that between four sequences, not over examples.
    """
    model, num_parts = trained.networks[0], 64
    # Few bits repeat themselves.
    x, counts = np.unique(x, axis=0, return_counts=True)
    means = []
    for seed in range(4):
        sequence = qmc.Sobol(model.num_latents, rng=seed).random(points)
        log_p = np.full(len(x), -np.inf)
        for z in np.split(norm.ppf(np.clip(sequence, 1e-12, 1 - 1e-12)), num_parts):
            logits = np.asarray(jax.vmap(model.decoder)(z.astype(np.float32)), float)
            joint = x @ logits.T - np.logaddexp(0, logits).sum(axis=1)
            log_p = np.logaddexp(log_p, logsumexp(joint, axis=1))
        means.append(np.average(log_p, weights=counts) - np.log(points))
    return summarise(np.array(means))._asdict()


def table(found: dict[str, Found]) -> Table:
    """Return a line for each model of each set."""
    rows = []
    for name, one in found.items():
        rival, rival_scored = one.rival
        latent_models = {
            f"{method}, {n} latents, {one.latent.form}": scored
            for (method, n), scored in one.latent.scores.items()
        }
        for model, scored in (one.exact | latent_models).items():
            row = {"set": name, "model": model, "seconds": scored.facts.get("seconds")}
            row |= {"log p(x)": scored.mean, "gap": scored.gap}
            over = None if model == rival else scored.ahead_of(rival_scored)
            rows.append(row | {"over the best exact model": over})
    return Table(("set", "model"), rows, _answer(found), _NOTES)


_NOTES = (
    "Log-likelihoods of the whole test split in nats, with standard errors over examples; "
    "differences are paired by example. Those with a gap are stochastic lower bounds, and the gap "
    "of bidirectional Monte Carlo says by how much they may be too low; the others are exact. "
    "All methods go on from the same VAE, for as much processor time again (seconds are both) or "
    "until the validation bound stops rising. The optimiser (Muon, Muon with a decay of 0.1, or "
    "Adam at 0.001), then the form of the data, and then the number of latents (4, 10, 20 or 40), "
    "all by VAEs, components (10, 30 or 100), pseudocounts and the structure of sum-product "
    "networks (LearnSPN with leaves of trees, by deeprob-kit) are chosen on validation data. In "
    "the form of categories, columns that are never 1 together in training rows, where chance "
    "would have it 20 times, are one category, with a level for all other patterns; log p(x) is "
    "that of the bits. One seed."
)


def _answer(found: dict[str, Found]) -> str:
    ahead, level, behind, over_vae = [], [], [], []
    for name, one in found.items():
        # Test data choose nothing: AIS with the chosen number of latents is what is compared.
        ais, vae = one.chosen["AIS"], one.chosen["VAE"]
        _, exact_one = one.rival
        is_behind = exact_one.is_clearly_ahead_of(ais)
        place = ahead if ais.is_clearly_ahead_of(exact_one) else behind if is_behind else level
        place.append(name)
        over_vae += [name] if ais.is_clearly_ahead_of(vae) else []
    words = [f"ahead of the best exact model on {_names(ahead)}"]
    words += [f"level with it on {_names(level)}"] if level else []
    words += [f"behind it on {_names(behind)}"] if behind else []
    number = sum(one.has_best for one in found.values())
    sentences = [
        f"AIS with the chosen number of latents is {', '.join(words)}.",
        f"It is clearly better than the VAE after the same time on {_names(over_vae)}.",
        f"The highest figure of the table is of a model with latents on {number} of {len(found)}.",
    ]
    for name, one in found.items():
        if one.integrated:
            annealed = next(s for (m, _), s in one.latent.scores.items() if m == "AIS")
            sentences.append(
                "Integrated over quasi-random latents instead of annealed, log p of "
                f"{name} by AIS with the fewest latents is {one.integrated:.4f}; annealing has "
                f"{annealed.mean.mean:.4f}."
            )
    return " ".join(sentences)


def _names(names: list[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def picture(found: dict[str, Found]) -> Figure:
    """Draw the exact models, and those of the chosen number of latents."""
    figure, axes = panels(len(found))
    for one, (name, models) in zip(axes, found.items(), strict=True):
        # Independent bits are far off.
        shown = {m: s for m, s in models.exact.items() if m != "independent bits"} | models.chosen
        gains = [scored.ahead_of(shown["Chow-Liu tree"]) for scored in shown.values()]
        intervals(one, list(shown), gains, f"{name}: nats over a Chow-Liu tree")
    return figure


COMMAND = Command("density", QUESTION, FULL, run, DensityOptions)

if __name__ == "__main__":
    sys.exit(COMMAND())
