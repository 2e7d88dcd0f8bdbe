"""What certificates cost and whether they are right: `python -m benchmarks.certificates --help`.

bounds: the gap by the upper bound of reverse chains alone, and by that which aisle reports, at the
same number of gradients. planning: gradients to a certified tolerance, planned and by doubling T.
others: the error of log p(x) by importance sampling, by annealing from the prior and by aisle, for
the same gradients. exact: sums of p(x) over all patterns of a few bits.

Each writes a line of JSON for each case into --out as soon as it is known, and goes on after those
that are there.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import aisle
from aisle.annealing import anneal, anneal_reverse
from aisle.data import spread
from aisle.evaluation import examples, pilot
from aisle.evaluation.bounds import lower_bounds, upper_bounds
from aisle.evaluation.work import Job, preferred_examples, walk
from aisle.models.joint import log_joint
from aisle.provenance import provenance
from aisle.statistics import CLEAR, summarise

CELLS = Path(__file__).parents[1] / "results" / "tables" / "cells"
MODELS = {
    "mnist": ("mnist-ais-T11-K5", "mnist"),
    "omniglot": ("omniglot-ais-T11-K5", "omniglot"),
    "two layers": ("mnist-two-layer-annealed-start", "mnist"),
}
NUM_CHAINS, KERNEL = 16, aisle.Kernel.tuned(is_long=True)

Case = dict[str, Any]


def opened(name: str, number: int) -> tuple[Any, Any, Any, Any]:
    """Return a recorded model with its encoder, test examples, and others to tune on."""
    weights, data = MODELS[name]
    model, proposal = aisle.load_weights(CELLS / f"{weights}.safetensors")
    sets = aisle.data.load(data)
    test, train = (split.observe(spread(len(split), n)) for split, n in
                   ((sets.test, number), (sets.train, pilot.NUM_EXAMPLES)))  # fmt: skip
    return model, proposal, test, train


def bounds(options: argparse.Namespace) -> Iterator[tuple[Case, Callable[[], Case]]]:
    """Yield cases of model and T: the gap before and after, at the same gradients."""
    for name in options.models:
        for number in options.temperatures:
            yield (
                {"model": name, "num_temperatures": number, "num_examples": options.num_examples},
                lambda name=name, number=number: _both_bounds(name, number, options.num_examples),
            )


def _both_bounds(name: str, number: int, num_examples: int) -> Case:
    model, proposal, _, train = opened(name, 1)
    sizes = pilot.tune(jax.random.key(1), model, proposal, train, KERNEL, number)
    ladder = KERNEL.ladder(number, sizes, last_move=False)

    def plain(shared: Any, key: Any, _: Any) -> dict[str, Any]:
        """Anneal all chains back from the exact sample itself."""
        model, proposal, ladder, num_chains = shared
        key_z, key_x, key_up, key_down = jax.random.split(key, 4)
        z = model.sample_prior(key_z)
        x = model.sample_observation(key_x, z)
        q, density = proposal(x), log_joint(model, x)
        keys = (jax.random.split(k, num_chains) for k in (key_up, key_down))
        up, down = (
            jax.vmap(run)(own).log_weight
            for run, own in zip(
                (
                    lambda k: anneal(k, q, density, ladder),
                    lambda k: anneal_reverse(k, z, q, density, ladder),
                ),
                keys,
                strict=True,
            )
        )
        return {"up": up, "down": down}

    def found(function: Any, count: int) -> dict[str, np.ndarray]:
        context = (model, proposal, ladder, NUM_CHAINS)
        size = preferred_examples(NUM_CHAINS, ladder.num_gradients)
        job = Job(name, function, context, jax.random.key(2), None, np.arange(count), 0, size)
        return walk(job, show_progress=False).numbers

    old_cost = 2 * NUM_CHAINS * ladder.num_gradients
    per_move = KERNEL.transition.num_gradients
    new_cost = examples.num_gradients_both_ways(number, per_move, NUM_CHAINS)
    old, new = (
        found(plain, num_examples),
        found(examples.both_ways, round(num_examples * old_cost / new_cost)),
    )
    before = -lower_bounds(-old["down"]) - lower_bounds(old["up"])
    after = upper_bounds(new["up"], new["down"]) - lower_bounds(new["up"])
    return {
        "gradients": old_cost * num_examples,
        "before": summarise(before)._asdict(),
        "after": summarise(after)._asdict(),
    }


def planning(options: argparse.Namespace) -> Iterator[tuple[Case, Callable[[], Case]]]:
    """Yield cases of model and way: the gradients until the tolerance is certified."""
    ways = {"planned": _planned, "doubled": _doubled}
    for name in options.models:
        for way, run in ways.items():
            case = {"model": name, "way": way, "tolerance": options.tolerance}
            yield (
                case | {"num_examples": options.num_examples},
                lambda name=name, run=run: run(name, options.num_examples, options.tolerance),
            )


def _planned(name: str, number: int, tolerance: float) -> Case:
    model, proposal, x, train = opened(name, number)
    certificate = aisle.Certificate(50, tolerance)
    result = aisle.log_likelihood(
        model, proposal, x, certificate=certificate, pilot_x=train, report=print
    )
    return _described(result, result.decoder_gradients, bool(result.is_tolerance_reached))


def _doubled(name: str, number: int, tolerance: float) -> Case:
    """Double T from the default on until gap and change are small, as version 0.1 did."""
    model, proposal, x, train = opened(name, number)
    temperatures, simulated, spent, before = 500, 50, 0, None
    while True:
        result = aisle.log_likelihood(
            model,
            proposal,
            x,
            sampler=aisle.Sampler(NUM_CHAINS, temperatures),
            certificate=aisle.Certificate(simulated),
            pilot_x=train,
        )
        spent += result.decoder_gradients
        gap = result.gap
        assert gap is not None
        is_small = gap.mean + CLEAR * gap.standard_error < tolerance
        if before is not None and is_small and abs(result.mean - before) < tolerance:
            return _described(result, spent, True)
        if temperatures >= 8000:
            return _described(result, spent, False)
        is_noise = gap.mean < tolerance / 2 <= CLEAR * gap.standard_error
        simulated, temperatures = simulated * (4 if is_noise else 1), 2 * temperatures
        before = result.mean


def _described(result: aisle.LogLikelihood, gradients: int, is_reached: bool) -> Case:
    assert result.gap is not None
    return {
        "num_temperatures": result.num_temperatures,
        "log_p": result.estimate._asdict(),
        "gap": result.gap._asdict(),
        "doubtful": float(np.mean(result.is_doubtful)),
        "gradients": gradients,
        "is_reached": is_reached,
    }


def others(options: argparse.Namespace) -> Iterator[tuple[Case, Callable[[], Case]]]:
    """Yield cases of model, way and gradients for each example: the error against a long run."""
    for name in options.models:
        for way in ("importance", "prior, linear", "aisle"):
            for gradients in options.gradients:
                yield (
                    {"model": name, "way": way, "gradients": gradients},
                    lambda name=name, way=way, gradients=gradients: _error(
                        name, way, gradients, options.num_examples
                    ),
                )


def _error(name: str, way: str, gradients: int, number: int) -> Case:
    model, proposal, x, train = opened(name, number)
    long = aisle.Sampler(NUM_CHAINS, 2000)
    truth = aisle.log_likelihood(
        model, proposal, x, sampler=long, certificate=aisle.Certificate(20), pilot_x=train, seed=1
    )
    none = aisle.Certificate(0)
    if way == "importance":
        # As pythae and scvi-tools do: a value of the decoder counts as much as a gradient here.
        short = aisle.Sampler(1, 2)
        found = aisle.log_likelihood(
            model, proposal, x, sampler=short, certificate=none, importance_samples=gradients
        )
        assert found.importance is not None
        error = found.importance.bound.mean - truth.mean
        spread_ = found.importance.bound.standard_error
    else:
        is_ours = way == "aisle"
        kernel = KERNEL if is_ours else aisle.Kernel(aisle.schedules.linear, aisle.HMC(10), 0.65)
        per_move = kernel.transition.num_gradients
        sampler = aisle.Sampler(NUM_CHAINS, max(2, gradients // NUM_CHAINS // per_move), kernel)
        start = proposal if is_ours else None
        found = aisle.log_likelihood(
            model, start, x, sampler=sampler, certificate=none, pilot_x=train
        )
        paired = summarise(found.log_p - truth.log_p)
        error, spread_ = paired.mean, paired.standard_error
    assert truth.gap is not None
    return {"error": error, "standard_error": spread_, "gap_of_truth": truth.gap._asdict()}


def exact(options: argparse.Namespace) -> Iterator[tuple[Case, Callable[[], Case]]]:
    """Yield cases of methods: the sum of p(x) over all patterns of the bits of a file."""
    methods = {
        "vae": aisle.VAE(),
        "dreg": aisle.DReG(5),
        "mh-hmc": aisle.MHHMC(5),
        "ais": aisle.AIS(1, 11),
    }
    for name, method in methods.items():
        yield (
            {"data": options.bits.name, "method": name, "updates": options.updates},
            lambda method=method: _sum_over_all(options.bits, method, options.updates),
        )


def _sum_over_all(file: Path, method: aisle.Method, updates: int) -> Case:
    with np.load(file, allow_pickle=False) as arrays:
        train, valid, test = (arrays[part] for part in ("train", "valid", "test"))
    num_bits = train.shape[1]
    model, proposal = aisle.one_layer(
        jax.random.key(0), train.mean(0), num_latents=4, num_hidden=64
    )
    fitted = aisle.fit(model, proposal, train, method=method, held_out=valid, num_updates=updates)
    patterns = (np.arange(2**num_bits)[:, None] >> np.arange(num_bits)) & 1
    every = aisle.log_likelihood(
        fitted.model,
        fitted.proposal,
        patterns.astype(train.dtype),
        sampler=aisle.Sampler(10, 40),
        certificate=aisle.Certificate(200),
        pilot_x=valid,
    )
    p = np.exp(every.log_p)
    # Patterns are independent, so their variances add.
    error = math.sqrt(np.sum((p * every.monte_carlo_error) ** 2))
    codes = test @ (1 << np.arange(num_bits))
    return {
        "sum": float(p.sum()),
        "standard_error": error,
        "gap": every.gap and every.gap._asdict(),
        "test_log_p": summarise(every.log_p[codes])._asdict(),
    }


STUDIES = {"bounds": bounds, "planning": planning, "others": others, "exact": exact}


def main() -> None:
    """Run the cases of a study that are not in its file yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--num-examples", type=int, default=100)
    parser.add_argument("--temperatures", type=int, nargs="+", default=[100, 400])
    parser.add_argument("--gradients", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--bits", type=Path, help="npz file with train, valid and test")
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=Path("results/certificates"))
    options = parser.parse_args()
    if options.study == "exact" and options.bits is None:
        parser.error("exact needs --bits FILE")
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{options.study}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    done = [json.loads(line)["case"] for line in lines]
    for case, run in STUDIES[options.study](options):
        if case not in done:
            line = {"case": case, "found": run(), "provenance": provenance()}
            with file.open("a") as opened_file:
                opened_file.write(json.dumps(line) + "\n")
            print(json.dumps({**case, **line["found"]}), flush=True)


if __name__ == "__main__":
    main()
