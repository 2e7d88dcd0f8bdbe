"""Inverse temperatures 0 = beta_0 <= beta_1 <= ... <= beta_T = 1.

Every schedule takes T, the number of transitions, and returns T + 1 points. They are computed in
double precision and rounded once, with both ends exact: a weight is right for whichever betas are
used, so long as its increments and its kernels use the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from aisle.errors import InputError, check, check_count, check_positive
from aisle.objects import Chosen

# What `placed` keeps of a curve.
_POINTS = 121

# NumPy arrays where they are constants, JAX arrays inside a compiled run.
Betas = Float[Array | np.ndarray, " points"]


def linear(num_temperatures: int) -> Betas:
    """Space the temperatures evenly, as in Ding & Freedman (2020).

    Example:
        >>> aisle.schedules.linear(4).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return explicit(_grid(num_temperatures))


def sigmoid(num_temperatures: int, steepness: float = 4.0) -> Betas:
    """Space them densely near both ends: a logistic curve on [-steepness, steepness].

    The schedule of the AIS evaluation literature (Wu et al., 2017), which uses a steepness of 4.

    Example:
        >>> print(aisle.schedules.sigmoid(4).round(3))
        [0.    0.105 0.5   0.895 1.   ]
    """
    check_positive("steepness", steepness)
    curve = np.tanh(steepness / 2 * (2 * _grid(num_temperatures) - 1))
    return explicit((curve - curve[0]) / (curve[-1] - curve[0]))


def geometric(num_temperatures: int, first: float = 0.01) -> Betas:
    """Let beta grow by a constant factor from `first` to 1: dense near the proposal.

    Example:
        >>> print(aisle.schedules.geometric(3).round(3))
        [0.   0.01 0.1  1.  ]
    """
    check(0 < first < 1, "first", first, "between 0 and 1")
    exponent = 1 - _grid(num_temperatures)[1:]
    if num_temperatures > 1:
        exponent = exponent / exponent[0]
    return explicit([0.0, *first**exponent])


def ramp(num_temperatures: int, share: float = 0.5) -> Betas:
    """Space a share of the temperatures evenly and stay at the posterior for the rest.

    Between `linear`, whose chains spend all their time away from the posterior, and `immediate`,
    whose weights are those of importance sampling.

    Example:
        >>> aisle.schedules.ramp(4).tolist()
        [0.0, 0.5, 1.0, 1.0, 1.0]
    """
    check(0 < share <= 1, "share", share, "above 0 and at most 1")
    rising = max(1, round(share * _checked(num_temperatures)))
    return explicit(np.minimum(np.arange(num_temperatures + 1) / rising, 1))


def immediate(num_temperatures: int) -> Betas:
    """Jump to the posterior at once: with K = 1 this is MH-HMC (Hoffman, 2017).

    Example:
        >>> aisle.schedules.immediate(3).tolist()
        [0.0, 1.0, 1.0, 1.0]
    """
    return explicit(np.minimum(np.arange(_checked(num_temperatures) + 1), 1))


@dataclass(frozen=True, repr=False)
class Placed(Chosen):
    """Space any number of temperatures as these are spaced, linear in between.

    Example:
        >>> print(aisle.schedules.Placed((0.0, 0.1, 1.0))(4).round(3))
        [0.   0.05 0.1  0.55 1.  ]
    """

    betas: tuple[float, ...]

    def __post_init__(self) -> None:
        explicit(self.betas)

    def __call__(self, num_temperatures: int) -> Betas:
        """Return T + 1 inverse temperatures."""
        known = np.linspace(0, 1, len(self.betas))
        return explicit(np.interp(_grid(num_temperatures), known, self.betas))


def placed(betas: Betas, log_ratios: Float[Array | np.ndarray, " temperatures"]) -> Placed:
    """Place temperatures so that each step loses the same, judged by an earlier run.

    A step of width d from beta loses about d^2 m'(beta) / 2 of the log-weight, where m(beta) is the
    mean of log p - log q at beta (were the chains always in equilibrium, exactly so for small d).
    Equal losses need a density of temperatures proportional to the root of m'. The mean log-ratios
    of a run are such an m.

    Example:
        >>> found = aisle.schedules.placed(aisle.schedules.linear(3), np.array([-9.0, -1.0, 0.0]))
        >>> print(found(3).round(2))
        [0.   0.19 0.47 1.  ]

    Args:
        betas: T + 1 inverse temperatures of the run.
        log_ratios: mean over chains of log p - log q at each of betas[:-1], as in `AnnealInfo`.
    """
    if len(log_ratios) < 2:
        return Placed((0.0, 1.0))
    betas, log_ratios = np.asarray(betas, np.float64), np.asarray(log_ratios, np.float64)
    widths = np.diff(betas)
    slopes = np.diff(log_ratios) / np.maximum(widths[:-1], 1e-9)
    # Nothing was measured at beta = 1: the last slope stands for the last stretch too.
    slopes = np.maximum(np.append(slopes, slopes[-1:]), 0)
    # A share of the mean slope keeps a stretch within reach that noise has made flat.
    density = np.sqrt(slopes + 0.01 * np.sum(slopes * widths) + 1e-9)
    place = np.append(0, np.cumsum(density * widths))
    inside = np.interp(np.linspace(0, 1, _POINTS), place / place[-1], betas)
    return Placed((0.0, *inside[1:-1].tolist(), 1.0))


def explicit(betas: ArrayLike | Sequence[float]) -> Betas:
    """Check a list of inverse temperatures, and return it as an array.

    Example:
        >>> print(aisle.schedules.explicit([0, 0.1, 1]).round(3))
        [0.  0.1 1. ]
    """
    values = np.asarray(betas, np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise InputError(
            f"betas has the shape {values.shape}: give a list of at least two inverse "
            "temperatures, from 0 to 1"
        )
    if not np.all(np.isfinite(values)):
        index = int(np.argmax(~np.isfinite(values)))
        raise InputError(f"betas[{index}] is {values[index]}: inverse temperatures must be finite")
    if values[0] != 0 or values[-1] != 1:
        raise InputError(
            f"betas runs from {values[0]:g} to {values[-1]:g}: it must start at 0, the proposal, "
            "and end at 1, the posterior"
        )
    drops = np.diff(values) < 0
    if np.any(drops):
        index = int(np.argmax(drops))
        raise InputError(
            f"betas falls from {values[index]:g} to {values[index + 1]:g} at index {index + 1}: "
            "inverse temperatures must not decrease"
        )
    return values.astype(jnp.result_type(float))


def _grid(num_temperatures: int) -> np.ndarray:
    return np.linspace(0, 1, _checked(num_temperatures) + 1)


def _checked(num_temperatures: int) -> int:
    check_count("num_temperatures", num_temperatures)
    return num_temperatures
