"""The estimators whose gradients are compared, their rows, and what the rows say."""

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from aisle.annealing import normalised_weights, schedules

# Presets of the chains, that of the paper first.
KERNELS = ("paper", "tuned")

# A difference must be shown, at 3 standard errors; what is worse by less than 2 is not shown worse.
SHOWN_Z = 3.0
WORSE_Z = 2.0

_MEASURES = {
    "in bias": ("squared_bias",),
    "in bias and in noise": ("squared_bias", "squared_noise"),
}

Shares = Float[Array, " samples"]

SCHEDULES: dict[str, Callable[[int], schedules.Betas]] = {
    "immediate": schedules.immediate,
    "linear": schedules.linear,
    "ramp25": partial(schedules.ramp, share=1 / 4),
    "ramp50": partial(schedules.ramp, share=1 / 2),
    "ramp75": partial(schedules.ramp, share=3 / 4),
}

# From the log-weights of K chains to the shares that they get.
WEIGHTINGS: dict[str, Callable[[Shares], Shares]] = {
    "weights": normalised_weights,
    "root": lambda log_weights: normalised_weights(log_weights / 2),
    "equal": lambda log_weights: jnp.full_like(log_weights, 1 / len(log_weights)),
}


class Estimator(NamedTuple):
    """Where the chains pass, and how their ends are averaged."""

    schedule: str
    weighting: str


ESTIMATORS = {
    "mh-hmc": Estimator("immediate", "equal"),
    "mh-hmc, weighted": Estimator("immediate", "weights"),
    "ais": Estimator("linear", "weights"),
    "ais, root of weights": Estimator("linear", "root"),
    "ais, equal weights": Estimator("linear", "equal"),
    "1/4 ais, then hmc": Estimator("ramp25", "weights"),
    "1/2 ais, then hmc": Estimator("ramp50", "weights"),
    "3/4 ais, then hmc": Estimator("ramp75", "weights"),
    "1/4 ais, then hmc, equal weights": Estimator("ramp25", "equal"),
    "1/2 ais, then hmc, equal weights": Estimator("ramp50", "equal"),
    "3/4 ais, then hmc, equal weights": Estimator("ramp75", "equal"),
}


class Row(NamedTuple):
    """What is known of one estimator with one kernel; squares are shares of the squared norm.

    Attributes:
        kernel: paper or tuned.
        num_temperatures: T of the paper's kernel, which sets the cost.
        num_transitions: that this kernel makes for it, each of `num_leapfrog` steps.
        gradients: of log p(x, z) that one example costs.
        squared_total: bias and noise together, the mean squared error of an update.
        log_joint_bias: mean of log p(x, z) less its posterior mean, in nats.
        log_joint_error: its standard error over the examples.
    """

    kernel: str
    num_temperatures: int
    num_transitions: int
    num_leapfrog: int
    estimator: str
    gradients: int
    squared_bias: float
    squared_bias_error: float
    squared_noise: float
    squared_noise_error: float
    squared_total: float
    squared_total_error: float
    log_joint_bias: float
    log_joint_error: float
    effective_sample_size: float
    acceptance: float


def best_hybrid(rows: Iterable[Row]) -> str:
    """Return the one of the least bias with the paper's kernel, of those that anneal and stay."""
    hybrids = [name for name, e in ESTIMATORS.items() if e.schedule.startswith("ramp")]
    biases = dict.fromkeys(hybrids, 0.0)
    for row in rows:
        if row.kernel == "paper" and row.estimator in biases:
            biases[row.estimator] += row.squared_bias
    return min(hybrids, key=biases.__getitem__)


def verdict(rows: list[Row]) -> list[str]:
    """Say in sentences which of ais and mh-hmc is nearer where, and what neither beats."""
    temperatures = sorted({row.num_temperatures for row in rows})
    lines = [_compare(rows, *case) for case in itertools.product(KERNELS, temperatures)]
    both = "the better of ais and mh-hmc with the paper's kernel"
    for kernel, (words, fields) in itertools.product(KERNELS, _MEASURES.items()):
        found = _list(beaten_by_neither(rows, kernel, fields))
        lines.append(f"{kernel} kernel, not shown worse {words} than {both}, at any T: {found}.")
    return [*lines, *_without_path({row.num_transitions for row in rows})]


def _without_path(numbers: set[int]) -> list[str]:
    """Say where a part of the transitions, rounded, is none: the names then promise too much."""
    found = {}
    for number in sorted(numbers):
        there = schedules.immediate(number)
        found[number] = [
            name
            for name, estimator in ESTIMATORS.items()
            if estimator.schedule.startswith("ramp")
            and jnp.array_equal(SCHEDULES[estimator.schedule](number), there)
        ]
    return [
        f"With {number} transitions these anneal nothing, and all moves are those of mh-hmc: "
        f"{_list(names)}."
        for number, names in found.items()
        if names
    ]


def beaten_by_neither(rows: list[Row], kernel: str, fields: Iterable[str]) -> list[str]:
    """Return the estimators that the paper's two do not beat in any field, at any temperature."""
    temperatures = {row.num_temperatures for row in rows}
    wanted = list(itertools.product(temperatures, fields))
    return [
        name
        for name in ESTIMATORS
        if not any(_is_beaten(rows, _find(rows, kernel, T, name), field) for T, field in wanted)
    ]


def _is_beaten(rows: list[Row], own: Row, field: str) -> bool:
    rivals = [_find(rows, "paper", own.num_temperatures, name) for name in ("ais", "mh-hmc")]
    best = min(rivals, key=lambda row: getattr(row, field))
    return own != best and not _z(own, best, field) < WORSE_Z


def _compare(rows: list[Row], kernel: str, num_temperatures: int) -> str:
    """Compare ais with mh-hmc, and say what the path and what the weights do to its bias."""
    names = ("ais", "mh-hmc", "ais, equal weights")
    ais, hmc, unweighted = (_find(rows, kernel, num_temperatures, name) for name in names)
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


def _break_even(ais: Row, hmc: Row, nearer: str) -> str:
    """Tell over how many updates noise must average out until less bias pays."""
    if nearer != "ais" or ais.squared_noise <= hmc.squared_noise:
        return ""
    gained, lost = hmc.squared_bias - ais.squared_bias, ais.squared_noise - hmc.squared_noise
    return f" Its error is the smaller one in an average over {lost / gained:.0f} updates or more."


def _find(rows: list[Row], kernel: str, num_temperatures: int, name: str) -> Row:
    wanted = (kernel, num_temperatures, name)
    return next(r for r in rows if (r.kernel, r.num_temperatures, r.estimator) == wanted)


def _z(first: Row, second: Row, field: str) -> float:
    """Return how many standard errors the first's figure lies above the second's."""
    values, errors = ([getattr(r, f) for r in (first, second)] for f in (field, f"{field}_error"))
    return (values[0] - values[1]) / math.hypot(*errors)


def _root(square: float) -> float:
    return math.sqrt(max(square, 0.0))


def _list(names: list[str]) -> str:
    if len(names) == len(ESTIMATORS):
        return "all"
    return "; ".join(names) or "none"
