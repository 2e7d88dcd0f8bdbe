"""From a stored example to what a model sees: grey values and bits, on the device."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from aisle.errors import InputError
from aisle.objects import Chosen
from aisle.types import Observation, PRNGKey

Binarize = Literal["dynamic", "static", "none"]
BINARIZE: tuple[Binarize, ...] = ("dynamic", "static", "none")

# The bits of a static data set are the same in every run, whatever its seed.
_STATIC_SEED = 20_160_101


@dataclass(frozen=True, repr=False)
class View(Chosen):
    """How a stored example becomes an observation; by default it is one, dtypes untouched.

    Example:
        >>> aisle.View(is_grey=True, binarize="dynamic")
        aisle.View(is_grey=True, binarize='dynamic', is_flat=False)

    Attributes:
        is_grey: whether stored values of 0 to 255 stand for value / 255.
        binarize: whether values in [0, 1] are probabilities of bits. "dynamic" draws new bits each
            time in training, "static" the same ones, "none" keeps the values. Held-out examples
            get bits once, which depend on their index in the data set and on nothing else.
        is_flat: whether the model takes each example as one vector.
    """

    is_grey: bool = False
    binarize: Binarize = "none"
    is_flat: bool = False

    def __post_init__(self) -> None:
        if self.binarize not in BINARIZE:
            raise InputError(
                f"is {self.binarize!r}: choose from {', '.join(BINARIZE)}", argument="binarize"
            )

    @property
    def unit(self) -> int:
        """The stored value that stands for 1."""
        return 255 if self.is_grey else 1

    def observe(self, key: PRNGKey, stored: Observation, index: Int[Array, ""]) -> Observation:
        """Return a training example; `key` is that of this draw, `index` the example's."""
        return self._see(key if self.binarize == "dynamic" else _static_key(index), stored)

    def fixed(self, stored: Observation, index: Int[Array, ""]) -> Observation:
        """Return a held-out example: the same one for the same index."""
        return self._see(_static_key(index), stored)

    def _see(self, key: PRNGKey, stored: Observation) -> Observation:
        x = stored
        if self.is_grey:
            x = jax.tree.map(lambda a: a.astype(jnp.float32) / 255, x)
        if self.binarize != "none":
            leaves, structure = jax.tree.flatten(x)
            # Each array has a key of its own; that of the first is the example's.
            keys = [key, *(jax.random.fold_in(key, i) for i in range(1, len(leaves)))]
            x = structure.unflatten(map(_bits, keys, leaves))
        return jax.tree.map(jnp.ravel, x) if self.is_flat else x


def _static_key(index: Int[Array, ""]) -> PRNGKey:
    return jax.random.fold_in(jax.random.key(_STATIC_SEED), index)


def _bits(key: PRNGKey, values: Array) -> Array:
    return jax.random.bernoulli(key, values.astype(jnp.float32)).astype(jnp.float32)
