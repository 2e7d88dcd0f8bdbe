"""The importance-weighted bound on held-out data: cheap, and comparable between methods."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.annealing import log_mean_exp
from aisle.types import Model, PRNGKey, Proposal, Scalar


class Bound(NamedTuple):
    """A mean over examples with its standard error."""

    mean: float
    standard_error: float
    num_examples: int


def importance_bounds(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    xs: Float[Array, "examples ..."],
    num_samples: int,
    *,
    samples_per_tile: int = 4096,
) -> Float[Array, " examples"]:
    """Return log 1/K sum_k p(x, z_k) / q(z_k|x) for each example: a lower bound of log p(x).

    An example's draws depend on its place in `xs` only; memory does not grow with K beyond a tile.
    """

    def one(item: tuple[Array, Array]) -> Scalar:
        index, x = item
        q = proposal(x)

        def log_weight(key: PRNGKey) -> Scalar:
            z = q.sample(key)
            return model.log_prior(z) + model.log_likelihood(x, z) - q.log_prob(z)

        keys = jax.random.split(jax.random.fold_in(key, index), num_samples)
        return log_mean_exp(jax.lax.map(log_weight, keys, batch_size=samples_per_tile))

    tile = max(1, samples_per_tile // num_samples)
    return jax.lax.map(one, (jnp.arange(len(xs)), xs), batch_size=tile)


def make_validation(
    xs: Float[Array, "examples ..."], num_samples: int
) -> Callable[[PRNGKey, Model, Proposal], Bound]:
    """Compile a function that bounds log p of the held-out `xs`."""

    @eqx.filter_jit
    def bounds(key: PRNGKey, model: Model, proposal: Proposal) -> Float[Array, " examples"]:
        return importance_bounds(key, model, proposal, xs, num_samples)

    return lambda *arguments: summarise(np.asarray(bounds(*arguments), float))


def summarise(bounds: np.ndarray) -> Bound:
    """Return the mean over examples and its standard error."""
    error = bounds.std(ddof=1) / np.sqrt(len(bounds)) if len(bounds) > 1 else float("nan")
    return Bound(float(bounds.mean()), float(error), len(bounds))
