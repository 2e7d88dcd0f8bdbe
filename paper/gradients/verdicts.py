"""What the results of the estimators say, in sentences."""

import itertools
import math
from collections.abc import Iterable

import jax.numpy as jnp

from paper.core.chains import schedules
from paper.gradients.estimators import CHAIN_SCHEDULES, ESTIMATORS, KERNELS, EstimatorResult

# A difference must be shown, at 3 standard errors; what is worse by less than 2 is not shown worse.
SHOWN_Z = 3.0
WORSE_Z = 2.0

_MEASURES = {
    "in bias": ("squared_bias",),
    "in bias and in noise": ("squared_bias", "squared_noise"),
}


def best_hybrid(results: Iterable[EstimatorResult]) -> str:
    """Return the one of the least bias with the paper's kernel, of those that anneal and stay."""
    hybrids = [name for name, e in ESTIMATORS.items() if e.schedule.startswith("ramp")]
    biases = dict.fromkeys(hybrids, 0.0)
    for result in results:
        if result.kernel == "paper" and result.estimator in biases:
            biases[result.estimator] += result.squared_bias
    return min(hybrids, key=biases.__getitem__)


def verdict(results: list[EstimatorResult]) -> list[str]:
    """Say in sentences which of ais and mh-hmc is less biased where, and what neither beats."""
    temperatures = sorted({result.num_temperatures for result in results})
    lines = [_compare(results, *case) for case in itertools.product(KERNELS, temperatures)]
    both = "the better of ais and mh-hmc with the paper's kernel"
    for kernel, (words, fields) in itertools.product(KERNELS, _MEASURES.items()):
        found = _list(beaten_by_neither(results, kernel, fields))
        lines.append(f"{kernel} kernel, not shown worse {words} than {both}, at any T: {found}.")
    return [*lines, *_without_path({result.num_transitions for result in results})]


def _without_path(numbers: set[int]) -> list[str]:
    """Say where a part of the transitions, rounded, is none: the names then promise too much."""
    found = {}
    for number in sorted(numbers):
        there = schedules.immediate(number)
        found[number] = [
            name
            for name, estimator in ESTIMATORS.items()
            if estimator.schedule.startswith("ramp")
            and jnp.array_equal(CHAIN_SCHEDULES[estimator.schedule](number), there)
        ]
    return [
        f"With {number} transitions these anneal nothing, and all moves are those of mh-hmc: "
        f"{_list(names)}."
        for number, names in found.items()
        if names
    ]


def beaten_by_neither(
    results: list[EstimatorResult], kernel: str, fields: Iterable[str]
) -> list[str]:
    """Return the estimators that the paper's two do not beat in any field, at any temperature."""
    temperatures = {result.num_temperatures for result in results}
    wanted = list(itertools.product(temperatures, fields))
    return [
        name
        for name in ESTIMATORS
        if not any(
            _is_beaten(results, _find(results, kernel, T, name), field) for T, field in wanted
        )
    ]


def _is_beaten(results: list[EstimatorResult], own: EstimatorResult, field: str) -> bool:
    rivals = [_find(results, "paper", own.num_temperatures, name) for name in ("ais", "mh-hmc")]
    best = min(rivals, key=lambda result: getattr(result, field))
    return own != best and not _z(own, best, field) < WORSE_Z


def _compare(results: list[EstimatorResult], kernel: str, num_temperatures: int) -> str:
    """Compare ais with mh-hmc, and say what the path and what the weights do to its bias."""
    names = ("ais", "mh-hmc", "ais, equal weights")
    ais, hmc, unweighted = (_find(results, kernel, num_temperatures, name) for name in names)
    z = _z(hmc, ais, "squared_bias")
    nearer = "ais" if z > SHOWN_Z else "mh-hmc" if z < -SHOWN_Z else "neither"
    size, chains = ais.effective_sample_size, hmc.effective_sample_size
    return (
        f"{kernel} kernel, {ais.num_transitions} transitions of {ais.num_leapfrog} steps: the less "
        f"biased is {nearer} (ais {_root(ais.squared_bias):.3f}, "
        f"mh-hmc {_root(hmc.squared_bias):.3f}, z = {z:.1f}). "
        f"Without its weights ais has {_root(unweighted.squared_bias):.3f}; with them "
        f"{size:.1f} of {chains:.0f} chains count, and its noise is "
        f"{_root(ais.squared_noise):.2f}, mh-hmc's {_root(hmc.squared_noise):.2f}."
        f"{_break_even(ais, hmc, nearer)}"
    )


def _break_even(ais: EstimatorResult, hmc: EstimatorResult, nearer: str) -> str:
    """Say over how many updates noise must average out until less bias pays."""
    if nearer != "ais" or ais.squared_noise <= hmc.squared_noise:
        return ""
    gained, lost = hmc.squared_bias - ais.squared_bias, ais.squared_noise - hmc.squared_noise
    return f" Its error is the smaller one in an average over {lost / gained:.0f} updates or more."


def _find(
    results: list[EstimatorResult], kernel: str, num_temperatures: int, name: str
) -> EstimatorResult:
    wanted = (kernel, num_temperatures, name)
    return next(r for r in results if (r.kernel, r.num_temperatures, r.estimator) == wanted)


def _z(first: EstimatorResult, second: EstimatorResult, field: str) -> float:
    """Return how many standard errors the first lies above the second."""
    values, errors = ([getattr(r, f) for r in (first, second)] for f in (field, f"{field}_error"))
    return (values[0] - values[1]) / math.hypot(*errors)


def _root(square: float) -> float:
    return math.sqrt(max(square, 0.0))


def _list(names: list[str]) -> str:
    if len(names) == len(ESTIMATORS):
        return "all"
    return "; ".join(names) or "none"
