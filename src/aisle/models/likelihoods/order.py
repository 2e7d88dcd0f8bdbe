"""Numbers that were computed in groups, put back in order."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped


def reordered(
    blocks: Sequence[Shaped[Array, " _"]], places: Sequence[np.ndarray]
) -> Shaped[Array, " features"]:
    """Return the blocks as one vector, each number at its place."""
    values = jnp.concatenate(list(blocks)) if len(blocks) > 1 else blocks[0]
    order = np.concatenate(places)
    if np.array_equal(order, np.arange(len(order))):
        return values
    return values[np.argsort(order)]
