"""A decoder whose sites share what they know of letters."""

import equinox as eqx
import jax
import jax.numpy as jnp

from aisle.models.networks import MLP
from applications.proteins.alignment import LETTERS


class SharedLetters(eqx.Module):
    """Sites have a few features each, and letters make the same of these everywhere.

    So a letter that was never seen at a site is likely there if letters like it are.

    Attributes:
        bias: what the output starts from, letter by letter.
    """

    network: MLP
    letters: jax.Array
    bias: jax.Array

    def __init__(self, key: jax.Array, sizes: tuple[int, ...], features: int, bias: jax.Array):
        """Build a network from latents through hidden layers, `sizes`, to features of sites."""
        keys = jax.random.split(key)
        self.network = MLP(keys[0], (*sizes, features * (len(bias) // len(LETTERS))))
        self.letters = jax.random.normal(keys[1], (len(LETTERS), features)) / jnp.sqrt(features)
        self.bias = bias

    def __call__(self, z: jax.Array) -> jax.Array:
        """Return what a categorical likelihood takes, letter by letter."""
        features = self.network(z).reshape(self.letters.shape[1], -1)
        return (self.letters @ features).ravel() + self.bias
