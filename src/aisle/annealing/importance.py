"""Plain importance sampling: annealing without a temperature in between."""

import jax
from jaxtyping import Array, Float

from aisle.annealing.tiles import map_tiles
from aisle.types import Distribution, LogDensity, PRNGKey, Scalar


def importance_log_weights(
    key: PRNGKey,
    q: Distribution,
    log_joint: LogDensity,
    num_samples: int,
    *,
    samples_per_tile: int = 4096,
) -> Float[Array, " samples"]:
    """Return log p(x, z_k) - log q(z_k) of K samples; memory stays that of a tile."""

    def log_weight(key: PRNGKey) -> Scalar:
        z = q.sample(key)
        return log_joint(z) - q.log_prob(z)

    keys = jax.random.split(key, num_samples)
    return map_tiles(log_weight, keys, samples_per_tile)
