"""What is read off the log-weights of the K chains of one example.

A weight of zero (log-weight -inf) is a valid outcome and counts as one. If all of them are zero
there is nothing to normalise: the normalised weights are zero and so is the effective sample size.
A NaN stays NaN.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aisle.types import Scalar


def log_mean_exp(log_weights: Float[Array, " samples"]) -> Scalar:
    """Return log of the mean weight: the estimate of log p(x).

    Example:
        >>> float(aisle.log_mean_exp(jnp.array([-3.0, -3.0])))
        -3.0
    """
    return jax.nn.logsumexp(log_weights) - jnp.log(len(log_weights))


def normalised_weights(log_weights: Float[Array, " samples"]) -> Float[Array, " samples"]:
    """Return the weights divided by their sum.

    Example:
        >>> [round(float(w), 3) for w in aisle.normalised_weights(jnp.log(jnp.array([1.0, 3.0])))]
        [0.25, 0.75]
    """
    highest = jnp.max(log_weights)
    weights = jnp.exp(log_weights - jnp.where(highest == -jnp.inf, 0, highest))
    total = jnp.sum(weights)
    return weights / jnp.where(total == 0, 1, total)


def effective_sample_size(log_weights: Float[Array, " samples"]) -> Scalar:
    """Return 1 / the sum of squared normalised weights: between 1 and K, or 0 for no weight.

    Example:
        >>> float(aisle.effective_sample_size(jnp.zeros(8)))
        8.0
    """
    squares = jnp.sum(normalised_weights(log_weights) ** 2)
    return jnp.where(squares == 0, 0, 1 / jnp.where(squares == 0, 1, squares))
