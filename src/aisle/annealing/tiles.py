"""A function over many items in equal tiles, so that memory is bounded and one program enough."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree


def map_tiles(function: Callable[[Any], PyTree], items: PyTree, most: int) -> PyTree:
    """Map over the first axis, at most so many items at once.

    `jax.lax.map` would compile a last tile of another size for itself: here the last one is filled
    up with copies, which are dropped again.
    """
    number = len(jax.tree.leaves(items)[0])
    num_tiles = -(-number // most)
    if num_tiles <= 1:
        return jax.vmap(function)(items)
    size = -(-number // num_tiles)
    places = jnp.arange(num_tiles * size) % number
    filled = jax.tree.map(lambda a: a[places], items)
    found = jax.lax.map(function, filled, batch_size=size)
    return jax.tree.map(lambda a: a[:number], found)
