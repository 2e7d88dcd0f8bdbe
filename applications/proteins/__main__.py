"""`python -m applications.proteins`: beta-lactamase, held-out sequences and a mutational scan."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from matplotlib.figure import Figure

import aisle
from aisle.data import spread
from aisle.statistics import Mean, summarise
from applications.core.files import data_file
from applications.core.models import (
    METHODS,
    Budget,
    Scored,
    Splits,
    Trained,
    decayed,
    score,
    train,
)
from applications.core.pictures import COLOURS, intervals, panels
from applications.core.study import Command, Study, Table
from applications.proteins import mutants
from applications.proteins.alignment import (
    LETTERS,
    Alignment,
    Relatives,
    Scan,
    drawn,
    read_alignment,
    read_scan,
    relatives,
    split_clusters,
)
from applications.proteins.decoder import Noisy, SharedLetters, UnderNoise

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
_PREDICTION = "mutation_effect_prediction_"
_SINGLE = tuple(f"{_PREDICTION}vae_{number}" for number in range(1, 6))
_ENSEMBLE = f"{_PREDICTION}vae_ensemble"
FULL = Budget(
    seconds=90, look_every=200, patience=12, chains=8, temperatures=100, simulated=40, rows=200
)
_SEEDS = range(5)
# Sequences that are drawn by their weights for training.
_DRAWN = 20_000


class Form(NamedTuple):
    """What regularises a decoder.

    Attributes:
        decay: of its matrices.
        features: of each site, which letters share; 0 if they share nothing.
        noise: of its hidden units while it is trained; 0 for none.
    """

    latents: int
    hidden: tuple[int, ...]
    decay: float
    features: int = 0
    noise: float = 0.0

    def __str__(self) -> str:
        hidden = "x".join(map(str, self.hidden)) or "linear"
        name = f"{self.latents}-{hidden}-{self.decay:g}" + f"-{self.features}" * bool(self.features)
        return name + f"-noise-{self.noise:g}" * bool(self.noise)

    @property
    def text(self) -> str:
        """What a reader is told of it."""
        hidden = "x".join(map(str, self.hidden))
        units = f"{hidden} hidden units" if hidden else "one layer"
        shared = f", {self.features} features of a site that letters share" if self.features else ""
        noise = f", noise of {self.noise:g} on hidden units" if self.noise else ""
        return f"{self.latents} latents, {units}{shared}, a decay of {self.decay:g}{noise}"


# Chosen one after the other, from the first form on.
_FIRST = Form(20, (100, 100), 0.1)
_CHOICES: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"decay": 0.03}, {"decay": 0.3}),
    (
        {"hidden": ()},
        {"hidden": (300, 300)},
        {"features": 10},
        {"hidden": (300, 300), "features": 10},
    ),
    ({"latents": 10}, {"latents": 40}),
    ({"noise": 0.3}, {"noise": 0.5}, {"noise": 0.5, "decay": 0.03}),
)
_PSEUDOCOUNTS = (1, 3, 10, 30, 100)


class Family(NamedTuple):
    """The alignment, split and weighted, with the scan.

    Attributes:
        data: sequences to train on, drawn by their weights, to choose by, and to report.
        all_sequences: the same, but training is on those that are held out, too.
        shares: logarithms of the letters' shares, letters by columns.
        pseudocount: sequences, of all letters alike, that were added to the counted ones.
    """

    alignment: Alignment
    scan: Scan
    data: Splits
    all_sequences: Splits
    shares: np.ndarray
    pseudocount: int
    num_effective: float


def run(study: Study) -> tuple[Table, Figure]:
    """Choose a decoder, train on by both methods, and score held-out sequences and the scan."""
    family = made_up() if study.is_smoke else read(study)
    form, first = chosen(study, family)
    models = {m: _train(study, family, form, m, 0, first) for m in ("VAE", "AIS")}
    found, scores = {}, {}
    for method, trained in models.items():
        facts = {"latents": form.latents, "seconds": round(first.seconds + trained.seconds)}
        cell = f"BLAT-{form}-{method}-0"
        found[method] = score(study.cells, cell, trained, family.data.test, study.budget, facts)
        scores[method] = _by_draws(study, family, cell, trained)
    check = _checked(study, family, f"BLAT-{form}-AIS-0", models["AIS"], scores["AIS"])
    found["independent sites"] = Scored(site_log_p(family.shares, family.data.test), None, {})
    rhos = {name: mutants.rho(one.values, family.scan) for name, one in scores.items()}
    rhos["AIS, by ELBOs"] = mutants.rho(np.array(check["bounds"]), family.scan)
    rhos |= _ensemble(study, family, form, (first.updates, models["AIS"].updates))
    rhos["independent sites"] = mutants.rho(site_scores(family), family.scan)
    rhos |= _published(family.scan)
    return table(found, rhos, form, family, check), picture(found, rhos)


def read(study: Study) -> Family:
    """Read the alignment and the scan, and hold a tenth of the clusters each out."""
    alignment = read_alignment(data_file("proteins/BLAT_ECOLX.a2m", study.data, _ALIGNMENT))
    path = data_file("proteins/BLAT_ECOLX_Ranganathan2015.csv", study.data, _SCAN)
    scan = read_scan(path, alignment, "2500", (_ENSEMBLE, *_SINGLE))
    stored = study.cells(
        "BLAT-relatives",
        {},
        lambda: {k: v.tolist() for k, v in relatives(alignment.codes)._asdict().items()},
    )
    known = Relatives(**{name: np.array(values) for name, values in stored.items()})
    return _family(alignment, scan, known, study.budget.rows)


def made_up() -> Family:
    """Return an alignment and a scan to try the program on."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 20, (60, 3)).astype(np.float32)
    codes[1:][random.random((59, 3)) < 0.1] = np.nan
    effects = random.normal(size=10)
    scan = Scan(random.integers(0, 3, 10), random.integers(0, 20, 10), effects, {})
    return _family(Alignment(codes, np.arange(1, 4)), scan, relatives(codes), 24)


def _family(alignment: Alignment, scan: Scan, known: Relatives, most: int) -> Family:
    train_rows, valid, test = split_clusters(known.clusters)
    codes, weights = alignment.codes, known.weights
    tried = {
        count: site_shares(codes[train_rows], weights[train_rows], count) for count in _PSEUDOCOUNTS
    }
    best = max(tried, key=lambda count: site_log_p(tried[count], codes[valid]).mean())
    number = min(_DRAWN, 4 * len(codes))
    data = Splits(
        codes[train_rows[drawn(weights[train_rows], number)]],
        codes[valid],
        codes[test[spread(len(test), most)]],
    )
    everything = data._replace(train=codes[drawn(weights, number)])
    return Family(alignment, scan, data, everything, tried[best], best, float(weights.sum()))


def chosen(study: Study, family: Family) -> tuple[Form, Trained]:
    """Return what is best on validation sequences, by a VAE: one choice after the other."""
    best, choices = (Form(2, (8,), 1.0, 3, 0.3), ()) if study.is_smoke else (_FIRST, _CHOICES)
    starts = {best: _train(study, family, best, "VAE", 0)}
    for choice in choices:
        for change in choice:
            form = best._replace(**change)
            starts[form] = _train(study, family, form, "VAE", 0)
        best = max(starts, key=lambda form: starts[form].bound)
    return best, starts[best]


def _train(
    study: Study,
    family: Family,
    form: Form,
    method: str,
    seed: int,
    start: Trained | None = None,
    *,
    updates: int | None = None,
) -> Trained:
    """Train from the first weights, or on from a start; on all sequences for given updates."""
    name, data, budget = "BLAT", family.data, study.budget
    if updates is not None:
        name, data = "BLAT-all", family.all_sequences
        budget = replace(budget, updates=updates)
    return train(
        study.cells,
        f"{name}-{form}-{'start' if start is None else method}-{seed}",
        _built(form, family, seed) if start is None else start.networks,
        data,
        UnderNoise(METHODS[method], form.noise) if form.noise else method,
        budget,
        seed=seed,
        optimizer=decayed(form.decay),
    )


def _built(form: Form, family: Family, seed: int) -> tuple[Any, Any]:
    """Return a decoder of a form, and an encoder that is the same for all forms."""
    likelihood = aisle.Categorical([len(LETTERS)] * family.shares.shape[1])
    key = jax.random.key(seed)
    made: list[tuple[Any, Any]] = [
        aisle.mlp_model(
            key,
            likelihood,
            family.shares.ravel(),
            num_latents=form.latents,
            hidden=hidden,
            has_missing=True,
        )
        for hidden in (form.hidden, (100, 100))
    ]
    model, proposal = made[0][0], made[1][1]
    if form.features:
        bias = model.decoder.layers[-1].bias
        decoder = SharedLetters(key, (form.latents, *form.hidden), form.features, bias)
        model = eqx.tree_at(lambda m: m.decoder, model, decoder)
    if form.noise:
        where = _network_of_features if form.features else _decoder
        model = eqx.tree_at(where, model, Noisy(where(model)))
    return model, proposal


def _decoder(model: Any) -> Any:
    return model.decoder


def _network_of_features(model: Any) -> Any:
    return model.decoder.network


def _ensemble(
    study: Study, family: Family, form: Form, updates: tuple[int, int]
) -> dict[str, float]:
    """Return correlations of models of the chosen form on all sequences, and of their mean."""
    members = []
    for seed in _SEEDS[:1] if study.is_smoke else _SEEDS:
        start = _train(study, family, form, "VAE", seed, updates=updates[0])
        trained = _train(study, family, form, "AIS", seed, start, updates=updates[1])
        members.append(_by_draws(study, family, f"BLAT-all-{form}-AIS-{seed}", trained).values)
    rhos = [mutants.rho(values, family.scan) for values in members]
    name = f"AIS on all sequences, {{}} of {len(members)}"
    return {
        name.format("worst"): min(rhos),
        name.format("best"): max(rhos),
        name.format("mean"): mutants.rho(np.mean(members, axis=0), family.scan),
    }


def _by_draws(study: Study, family: Family, cell: str, trained: Trained) -> mutants.Scores:
    draws = 4 if study.is_smoke else mutants.DRAWS

    def make() -> dict[str, Any]:
        found = mutants.by_draws(trained.networks, family.alignment, family.scan, draws)
        return {name: values.tolist() for name, values in found._asdict().items()}

    found = study.cells(f"{cell}-scan", {"draws": draws}, make)
    return mutants.Scores(**{name: np.array(values) for name, values in found.items()})


def _checked(
    study: Study, family: Family, cell: str, trained: Trained, scores: mutants.Scores
) -> dict[str, Any]:
    """Compare scores by draws with certified ones of some mutants, and find those by ELBOs."""
    number, samples = (2, 4) if study.is_smoke else (mutants.CHECKED, mutants.SAMPLES)
    # From the worst to the best.
    places = np.linspace(0, len(scores.values) - 1, number).astype(int)
    some = np.argsort(scores.values)[places]

    def make() -> dict[str, Any]:
        parts = (trained.networks, family.alignment, family.scan)
        single, whole = mutants.one_by_one(*parts, some)
        assert whole.gap is not None
        differences = scores.values[some] - single.values
        return {
            "difference": float(differences.mean()),
            "largest": float(np.abs(differences).max()),
            "error": float(np.median(np.hypot(scores.errors[some], single.errors))),
            "gap": whole.gap._asdict(),
            "bounds": mutants.by_bounds(*parts, samples).tolist(),
        }

    return study.cells(f"{cell}-check", {"checked": number}, make)


def _published(scan: Scan) -> dict[str, float]:
    """Return what published predictions reach on the same mutants."""
    if not scan.published:
        return {}
    single = [mutants.rho(scan.published[name], scan) for name in _SINGLE]
    names = ("published VAE, worst of five", "published VAE, best of five", "their ensemble")
    ensemble = mutants.rho(scan.published[_ENSEMBLE], scan)
    return dict(zip(names, (min(single), max(single), ensemble), strict=True))


def site_shares(codes: np.ndarray, weights: np.ndarray, pseudocount: float) -> np.ndarray:
    """Return log shares, letters by columns, with some sequences of all letters alike added."""
    is_letter = codes[None] == np.arange(len(LETTERS))[:, None, None]
    counts = (is_letter * weights[None, :, None]).sum(axis=1) + pseudocount / len(LETTERS)
    return np.log(counts / counts.sum(axis=0))


def site_log_p(log_shares: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return log p(x) of independent sites."""
    is_there = ~np.isnan(codes)
    found = log_shares[np.where(is_there, codes, 0).astype(int), np.arange(codes.shape[1])]
    return np.where(is_there, found, 0).sum(axis=1)


def site_scores(family: Family) -> np.ndarray:
    """Return the scores of mutants by independent sites."""
    shares, scan = family.shares, family.scan
    wild = family.alignment.codes[0, scan.columns].astype(int)
    return shares[scan.codes, scan.columns] - shares[wild, scan.columns]


def table(
    found: Mapping[str, Scored],
    rhos: Mapping[str, float],
    form: Form,
    family: Family,
    check: Mapping[str, Any],
) -> Table:
    """Return a line for each model."""
    rows = []
    for model, rho in rhos.items():
        one = found.get(model)
        row: dict[str, Any] = {"model": model}
        row |= {"seconds": one and one.facts.get("seconds"), "log p(x)": one and one.mean}
        row |= {"gap": one and one.gap}
        over = None if one is None or model == "VAE" else one.ahead_of(found["VAE"])
        rows.append(row | {"over VAE": over, "Spearman's rho": f"{rho:.3f}"})
    ensemble = next(name for name in rhos if "mean of" in name)
    verdict = _verdict(found["AIS"], found["VAE"])
    answer = (
        f"Held-out sequences: {verdict}, in nats for a sequence. The scan of "
        f"{len(family.scan.effects):,} single mutants is ranked with a Spearman's rho of "
        f"{rhos['AIS']:.3f} by the AIS model, {rhos[ensemble]:.3f} by the mean of several on all "
        f"sequences, {rhos['VAE']:.3f} by the VAE and {rhos['independent sites']:.3f} by "
        "independent sites"
        f"{_others(rhos)}."
    )
    return Table(("model",), rows, answer, _notes(form, family, check))


def _others(rhos: Mapping[str, float]) -> str:
    published = [f"{rho:.3f}" for name, rho in rhos.items() if "published" in name]
    if not published:
        return ""
    return (
        f"; published VAEs reach {published[0]} to {published[-1]}, and their ensemble "
        f"{rhos['their ensemble']:.3f}"
    )


def _verdict(ais: Scored, vae: Scored) -> str:
    if ais.is_clearly_ahead_of(vae):
        return f"AIS is better than the VAE by {ais.ahead_of(vae)}"
    if vae.is_clearly_ahead_of(ais):
        return f"the VAE is better than AIS by {vae.ahead_of(ais)}"
    return f"AIS and the VAE do not differ clearly ({ais.ahead_of(vae)})"


def _notes(form: Form, family: Family, check: Mapping[str, Any]) -> str:
    gap = Mean(**check["gap"])
    return (
        "Gaps of the alignment are missing values; sequences are drawn by weights, one over their "
        f"neighbours at 80 % identity, {family.num_effective:,.0f} effective ones. A tenth of the "
        "clusters at 80 % each is held out to choose by and to report, with one sequence each. "
        "log p(x) of observed letters, stochastic lower bounds with the gap of bidirectional Monte "
        "Carlo. Chosen on validation sequences: a pseudocount of "
        f"{family.pseudocount} sequences, by independent sites, and a decoder with {form.text}, by "
        f"the bound of a VAE, from {_FIRST.text} on, one of {_TRIED} after the other. Nothing was "
        "chosen by the scan. Models on all sequences have that form and as many updates. Scores "
        "are by annealed draws of the posterior of the wild type. Those of some mutants, from "
        f"worst to best, less the differences of certified log p(x) (gap {gap}): "
        f"{check['difference']:.3f} on average, at the most {check['largest']:.3f}, with a Monte "
        f"Carlo error of {check['error']:.3f}, of which the one wild type that all share is a "
        "part. Published predictions are those in the file of the scan."
    )


_TRIED = (
    "decays of 0.03 and 0.3, other decoders (one layer, 300x300 units, 10 features of a site that "
    "letters share, both), 10 or 40 latents, and noise (0.3, 0.5, or 0.5 with a decay of 0.03)"
)


def picture(found: Mapping[str, Scored], rhos: Mapping[str, float]) -> Figure:
    """Draw the gains over independent sites, and the correlations with the scan."""
    figure, (left, right) = panels(2)
    models = [name for name in found if name != "independent sites"]
    gains = [summarise(found[m].log_p - found["independent sites"].log_p) for m in models]
    intervals(left, models, gains, "nats over independent sites")
    right.barh(list(rhos), list(rhos.values()), color=COLOURS[1], height=0.5)
    right.set_title("Spearman's rho with the scan", fontsize=9)
    return figure


COMMAND = Command("proteins", QUESTION, FULL, run)

if __name__ == "__main__":
    sys.exit(COMMAND())
