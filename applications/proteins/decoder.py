"""A decoder whose sites share what they know of letters, and one that is trained under noise."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from aisle.learning.protocol import Estimate
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


class Noisy(eqx.Module):
    """A network whose hidden units are multiplied by factors, which are 1 but in training.

    Random factors with mean 1 are Gaussian dropout (Srivastava et al., 2014), which makes the
    weights behind the units uncertain (Kingma et al., 2015).
    """

    network: MLP
    factors: tuple[jax.Array, ...]

    def __init__(self, network: MLP):
        """Take a network, which has no noise yet."""
        self.network = network
        self.factors = tuple(jnp.ones(layer.out_features) for layer in network.layers[:-1])

    def __call__(self, z: jax.Array) -> jax.Array:
        """Return the output of the network."""
        *hidden, last = self.network.layers
        for layer, factor in zip(hidden, self.factors, strict=True):
            z = self.network.activation(_apply(layer, z)) * factor
        return _apply(last, z)


def _apply(layer: eqx.nn.Linear, x: jax.Array) -> jax.Array:
    # In this order, as Equinox's own would transpose under vmap.
    assert layer.bias is not None
    return x @ layer.weight.T + layer.bias


@dataclass(frozen=True)
class UnderNoise:
    """Trains by another method, with factors of a `Noisy` decoder drawn anew for each example.

    Attributes:
        spread: standard deviation of the factors.
    """

    method: Any
    spread: float

    @property
    def num_gradients(self) -> int:
        """Gradients of log p(x, z) that one example costs."""
        return self.method.num_gradients

    def init(self) -> Any:
        """Return the state before the first update."""
        return self.method.init()

    def estimate(self, key: jax.Array, model: Any, proposal: Any, x: Any, state: Any) -> Estimate:
        """Estimate the losses of one example under noise, the same for all of its chains."""
        key, key_noise = jax.random.split(key)

        def drawn(part: Any) -> Any:
            if not isinstance(part, Noisy):
                return part
            keys = jax.random.split(key_noise, len(part.factors))
            factors = tuple(
                1 + self.spread * jax.random.normal(k, ones.shape)
                for k, ones in zip(keys, part.factors, strict=True)
            )
            return eqx.tree_at(lambda network: network.factors, part, factors)

        noisy = jax.tree.map(drawn, model, is_leaf=lambda part: isinstance(part, Noisy))
        return self.method.estimate(key, noisy, proposal, x, state)

    def adapt(self, state: Any, metrics: Any) -> Any:
        """Return the state for the next update."""
        return self.method.adapt(state, metrics)

    def __getattr__(self, name: str) -> Any:
        """Validate as the other method does, without noise."""
        if name in ("bound", "bound_gradients", "num_samples"):
            return getattr(self.method, name)
        raise AttributeError(name)
