"""The bias and the noise of repeated gradient estimates, apart from each other.

With g_1..g_R the gradients of R independent repeats over the same examples and r_1..r_M those of M
independent parts of a reference,

    squared bias   mean over i != j and a != b of <g_i - r_a, g_j - r_b>
    squared noise  trace of the covariance of one g_i
    squared norm   mean over a != b of <r_a, r_b>

No vector is multiplied by itself, so that no noise counts as bias, be it the estimator's or the
reference's. All of these are functions of the inner products.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Error(NamedTuple):
    """A squared error as a share of the reference's squared norm, with its standard error."""

    value: float
    standard_error: float


class SplitError(NamedTuple):
    """The squared error of one repeat: that of its mean, the rest, and both together."""

    bias: Error
    noise: Error
    total: Error


def compare(
    gradients: Float[np.ndarray, "repeats parameters"],
    references: Float[np.ndarray, "parts parameters"],
    noise_scale: float = 1.0,
) -> SplitError:
    """Compare repeats of an estimate with a reference's parts, three or more of each.

    Standard errors are those of a jackknife over the repeats and over the parts; what other
    examples would give is not in them. The squared noise is multiplied by `noise_scale`.
    """
    products = gram(np.concatenate([gradients, references]))
    repeats, parts = np.split(np.arange(len(products)), [len(gradients)])
    shares = partial(_shares, products, noise_scale)
    without_repeat = [shares(np.delete(repeats, i), parts) for i in range(len(repeats))]
    without_part = [shares(repeats, np.delete(parts, a)) for a in range(len(parts))]
    variance = _jackknife(without_repeat) + _jackknife(without_part)
    pairs = zip(shares(repeats, parts), np.sqrt(variance), strict=True)
    return SplitError(*(Error(float(value), float(error)) for value, error in pairs))


def squared_norm(references: Float[np.ndarray, "parts parameters"]) -> float:
    """Return the squared norm of what independent vectors are noisy versions of."""
    return _between(gram(references))


def gram(vectors: np.ndarray) -> np.ndarray:
    """Return all inner products, in double precision."""
    vectors = np.asarray(vectors, np.float64)
    return vectors @ vectors.T


def _shares(
    products: np.ndarray, noise_scale: float, repeats: np.ndarray, parts: np.ndarray
) -> np.ndarray:
    own, other = (products[np.ix_(chosen, chosen)] for chosen in (repeats, parts))
    norm = _between(other)
    bias = _between(own) - 2 * products[np.ix_(repeats, parts)].mean() + norm
    noise = noise_scale * (np.diagonal(own).mean() - _between(own))
    return np.array([bias, noise, bias + noise]) / norm


def _between(products: np.ndarray) -> float:
    """Return the mean product of two different vectors."""
    number = len(products)
    return (products.sum() - np.trace(products)) / (number * (number - 1))


def _jackknife(left_out: list[np.ndarray]) -> np.ndarray:
    number = len(left_out)
    return (number - 1) * np.var(left_out, axis=0)
