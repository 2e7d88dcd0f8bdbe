"""How many temperatures and simulated examples a tolerance takes, predicted from short runs.

With many temperatures the log-weight of a chain is nearly normal. By Crooks' relation it is then
N(log p(x) - s/2, s) forwards and N(log p(x) + s/2, s) in reverse, so that the difference of both
means is s; and s falls as 1/T, or more slowly where chains mix slowly. From s of each example and
from how it fell between two short runs follow the gap's mean and variance for any T.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from aisle.evaluation.bounds import lower_bounds, upper_bounds
from aisle.evaluation.examples import num_reverse
from aisle.statistics import CLEAR

# Temperatures, examples and chains of the short runs.
TEMPERATURES, NUM_EXAMPLES, NUM_CHAINS = (25, 100), 32, 9

# A plan aims at this share of the tolerance, as forecasts err.
_AIM = 0.8

_FEWEST_TEMPERATURES, _MOST_TEMPERATURES, _MOST_EXAMPLES = 10, 20_000, 20_000
_SPREADS = np.geomspace(1e-4, 1e3, 57)


class Plan(NamedTuple):
    """What to compute for a tolerance; fixed before it is.

    Attributes:
        num_simulated: examples for bidirectional Monte Carlo.
        is_refitted: whether chains start from a refitted copy of the proposal.
        is_careful: whether they make smaller steps, and more of them, than was asked for.
        gap: expected, with two standard errors.
        gradients: of log p(x, z) that it takes.
        seconds: that it is expected to take.
    """

    num_temperatures: int
    num_simulated: int
    is_refitted: bool
    is_careful: bool
    gap: float
    gradients: int
    seconds: float

    def __str__(self) -> str:
        start = ", from a refitted encoder" * self.is_refitted + ", small steps" * self.is_careful
        return (
            f"planned: T={self.num_temperatures}, {self.num_simulated:,} simulated examples"
            f"{start}; gap below {self.gap:.3f} expected, in about {self.seconds:.0f} s"
        )


class Forecast(NamedTuple):
    """Spreads s of examples at one T, and the power of T by which they fall."""

    spreads: Float[np.ndarray, " examples"]
    num_temperatures: int
    power: float

    def gap(self, num_temperatures: int, num_chains: int) -> tuple[float, float]:
        """Return the mean and the variance over examples of the gap at another T."""
        spreads = self.spreads * (self.num_temperatures / num_temperatures) ** self.power
        means, variances = _normal_gaps(num_chains)
        mean = np.interp(spreads, _SPREADS, means)
        variance = np.interp(spreads, _SPREADS, variances)
        return float(mean.mean()), float(variance.mean() + mean.var())


class Costs(NamedTuple):
    """What a plan costs: gradients of a real and of a simulated example by T, and seconds."""

    of_given: Callable[[int], int]
    of_simulated: Callable[[int], int]
    num_given: int
    num_chains: int
    seconds_per_gradient: float
    seconds_to_compile: float

    def gradients(self, num_temperatures: int, num_simulated: int) -> int:
        """Count the gradients of a round."""
        given = self.num_given * self.of_given(num_temperatures)
        return given + num_simulated * self.of_simulated(num_temperatures)


def spreads_of(
    up: Float[np.ndarray, "examples chains"], down: Float[np.ndarray, "examples reverse"]
) -> Float[np.ndarray, " examples"]:
    """Return s of each example; one whose weights are not finite is taken for a bad one.

    The variance of its chains is less noisy than the difference of their means, which counts where
    it is clearly larger: chains of both directions then stay in different places.
    """
    up, down = up.astype(np.float64), down.astype(np.float64)
    counts = np.array([up.shape[1], down.shape[1]])
    with np.errstate(invalid="ignore"):
        squares = [np.sum((a - a.mean(1, keepdims=True)) ** 2, axis=1) for a in (up, down)]
        variance = sum(squares) / (counts.sum() - 2)
        difference = down.mean(1) - up.mean(1)
        apart = difference - CLEAR * np.sqrt(variance * np.sum(1 / counts))
        spreads = np.maximum(variance, apart)
    return np.clip(np.nan_to_num(spreads, nan=np.inf), _SPREADS[0], _SPREADS[-1])


def forecast(short: tuple[int, np.ndarray], long: tuple[int, np.ndarray]) -> Forecast:
    """Forecast from the spreads of two numbers of temperatures."""
    fall = np.mean(np.sqrt(short[1])) / np.mean(np.sqrt(long[1]))
    power = 2 * math.log(fall) / math.log(long[0] / short[0])
    return Forecast(long[1], long[0], min(1.0, max(0.5, power)))


def choose(
    known: Forecast,
    costs: Costs,
    tolerance: float,
    *,
    fewest_examples: int,
    temperatures: list[int],
    seconds: float = math.inf,
) -> Plan:
    """Return the cheapest plan that should reach the tolerance, or the best one for the time."""
    budget = (seconds - 2 * costs.seconds_to_compile) / costs.seconds_per_gradient
    plans = [
        _plan(known, costs, number, _AIM * tolerance, fewest_examples, budget)
        for number in temperatures
    ]
    affordable = [plan for plan in plans if plan.gradients <= budget] or plans[:1]
    enough = [plan for plan in affordable if plan.gap <= 1.001 * _AIM * tolerance]
    if enough:
        return min(enough, key=lambda plan: plan.gradients)
    return min(affordable, key=lambda plan: plan.gap)


def ladder_of_temperatures(first: int = _FEWEST_TEMPERATURES, times: float = math.inf) -> list[int]:
    """Return numbers of temperatures to choose from, an eighth apart, up to so many times more."""
    last = max(first, min(_MOST_TEMPERATURES, first * times))
    steps = math.floor(math.log(last / first) / math.log(1.125) + 1e-9)
    return sorted({round(first * 1.125**i) for i in range(steps + 1)})


def _plan(
    known: Forecast, costs: Costs, number: int, wanted: float, fewest: int, budget: float
) -> Plan:
    mean, variance = known.gap(number, costs.num_chains)
    most = _MOST_EXAMPLES
    if math.isfinite(budget):
        left = budget - costs.gradients(number, 0)
        most = min(most, max(2, int(left / costs.of_simulated(number))))
    needed = CLEAR**2 * variance / (wanted - mean) ** 2 if mean < wanted else fewest
    num_simulated = min(most, max(fewest, math.ceil(needed)))
    gap = mean + CLEAR * math.sqrt(variance / num_simulated)
    gradients = costs.gradients(number, num_simulated)
    seconds = gradients * costs.seconds_per_gradient + 2 * costs.seconds_to_compile
    return Plan(number, num_simulated, False, False, gap, gradients, seconds)


@functools.lru_cache(maxsize=16)
def _normal_gaps(num_chains: int, num_draws: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the variance of the gap for each of `_SPREADS`, by simulation."""
    random = np.random.default_rng(0)
    up = random.standard_normal((num_draws, num_chains))
    down = random.standard_normal((num_draws, num_reverse(num_chains)))
    gaps = []
    for spread in _SPREADS:
        there, back = (
            sign * spread / 2 + math.sqrt(spread) * noise for sign, noise in ((-1, up), (1, down))
        )
        gaps.append(upper_bounds(there, back) - lower_bounds(there))
    return np.maximum(np.mean(gaps, axis=1), 0), np.var(gaps, axis=1)
