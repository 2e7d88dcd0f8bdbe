"""The importance-weighted bound on held-out data: cheap, and comparable between methods."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.annealing import log_mean_exp
from aisle.annealing.importance import importance_log_weights
from aisle.models.joint import log_joint
from aisle.statistics import Mean, summarise
from aisle.types import Model, PRNGKey, Proposal, Scalar


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
        key_example = jax.random.fold_in(key, index)
        return log_mean_exp(
            importance_log_weights(
                key_example,
                proposal(x),
                log_joint(model, x),
                num_samples,
                samples_per_tile=samples_per_tile,
            )
        )

    tile = max(1, samples_per_tile // num_samples)
    return jax.lax.map(one, (jnp.arange(len(xs)), xs), batch_size=tile)


def make_validation(
    xs: Float[Array, "examples ..."], num_samples: int
) -> Callable[[PRNGKey, Model, Proposal], Mean]:
    """Compile a function that bounds log p of the held-out `xs`."""

    @eqx.filter_jit
    def bounds(key: PRNGKey, model: Model, proposal: Proposal) -> Float[Array, " examples"]:
        return importance_bounds(key, model, proposal, xs, num_samples)

    return lambda *arguments: summarise(np.asarray(bounds(*arguments), float))
