"""What the weights of an example's chains say about its estimate: rows are examples."""

import math

import numpy as np
from jaxtyping import Bool, Float

Numbers = Float[np.ndarray, " examples"]

# From these on an example is doubtful: an error in nats, or a smaller one with a heavy tail.
LARGE_ERROR, NOTABLE_ERROR, HEAVY_TAIL = 0.5, 0.1, 0.7

# Of a tail, the fewest weights to fit a shape to.
_FEWEST = 5


def monte_carlo_errors(sizes: Numbers, num_chains: int) -> Numbers:
    """Return the standard error of each log p(x), to first order, from effective sample sizes.

    It is that of the mean weight over the mean weight, between 0 and 1; not a number for one chain.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.maximum(num_chains / np.asarray(sizes, np.float64) - 1, 0)
        return np.sqrt(excess / (num_chains - 1))


def pareto_shapes(log_weights: Float[np.ndarray, "examples chains"]) -> Numbers:
    """Return the shape k of a generalised Pareto law of each example's largest weights.

    Weights have no variance from k = 0.5 on, and their mean cannot be trusted from about 0.7 on
    (Vehtari et al., 2024). The fit is that of Zhang & Stephens (2009), drawn towards 0.5 by a prior
    that is worth ten weights, of as many weights as in Pareto-smoothed importance sampling but five
    at the least. With fewer than ten chains, and with equal weights, it is not a number.
    """
    num_chains = log_weights.shape[1]
    number = max(_FEWEST, math.ceil(min(num_chains / 5, 3 * math.sqrt(num_chains))))
    if num_chains < 2 * number:
        return np.full(len(log_weights), np.nan)
    logs = np.sort(log_weights.astype(np.float64), axis=1)[:, -number - 1 :]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        weights = np.exp(logs - logs[:, -1:])
        return _shapes(weights[:, 1:] - weights[:, :1])


def is_doubtful(errors: Numbers, shapes: Numbers) -> Bool[np.ndarray, " examples"]:
    """Say of which examples log p(x) may be too low by more than its error tells."""
    is_heavy = (errors > NOTABLE_ERROR) & (shapes > HEAVY_TAIL)
    return ~(errors <= LARGE_ERROR) | is_heavy


def _shapes(tails: np.ndarray) -> np.ndarray:
    """Fit tails, which are sorted: a mean over b = -k / scale, weighted by its likelihood."""
    number = tails.shape[1]
    num_points = 30 + math.isqrt(number)
    grid = 1 - np.sqrt(num_points / (np.arange(num_points) + 0.5))
    quartile = tails[:, int(number / 4 + 0.5) - 1, None]
    points = grid / (3 * quartile) + 1 / tails[:, -1:]

    def shape(b: np.ndarray) -> np.ndarray:
        return np.log1p(-b[..., None] * tails[:, None]).mean(-1)

    shapes = shape(points)
    likelihood = number * (np.log(-points / shapes) - shapes - 1)
    weights = np.exp(likelihood - likelihood.max(1, keepdims=True))
    b = (points * weights).sum(1, keepdims=True) / weights.sum(1, keepdims=True)
    prior = 10
    return (number * shape(b)[:, 0] + prior * 0.5) / (number + prior)
