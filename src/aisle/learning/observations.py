"""From stored examples to what a model sees: scaling and binarisation, on the device."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aisle.data import Split
from aisle.data.values import BINARIZE
from aisle.errors import InputError
from aisle.types import PRNGKey

# The bits of a static data set are the same in every run, whatever its seed.
_STATIC_SEED = 20_160_101


def observe(
    key: PRNGKey, stored: Array, index: Int[Array, ""], binarize: str
) -> Float[Array, "..."]:
    """Turn one stored example into an observation.

    Args:
        key: of this draw; used by "dynamic" only.
        stored: values, uint8 standing for value / 255.
        index: of the example in its data set; its static bits depend on nothing else.
        binarize: "dynamic" draws new bits each time, "static" the same ones, "none" keeps values.
    """
    scale = 255 if stored.dtype == jnp.uint8 else 1
    values = stored.astype(jnp.float32) / scale
    if binarize == "none":
        return values
    if binarize not in BINARIZE:
        raise InputError(f"binarize is {binarize!r}: choose from {', '.join(BINARIZE)}")
    if binarize == "static":
        key = jax.random.fold_in(jax.random.key(_STATIC_SEED), index)
    return jax.random.bernoulli(key, values).astype(jnp.float32)


def observe_rows(split: Split, indices: np.ndarray, binarize: str) -> Array:
    """Return held-out examples of a split as the model sees them; see `observe_all`."""
    return observe_all(jnp.asarray(split.take(indices)), jnp.asarray(indices), binarize)


def observe_all(stored: Array, indices: Int[Array, " examples"], binarize: str) -> Array:
    """Turn held-out examples into observations, once and for all: dynamic bits become static."""
    fixed = "none" if binarize == "none" else "static"
    key = jax.random.key(_STATIC_SEED)
    return jax.vmap(lambda row, index: observe(key, row, index, fixed))(stored, indices)
