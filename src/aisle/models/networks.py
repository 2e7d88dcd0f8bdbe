"""The building blocks of the IWAE study's networks."""

import itertools
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions.util import vec_to_tril_matrix

from aisle.models.distributions import DiagonalNormal, FullNormal
from aisle.types import PRNGKey


class MLP(eqx.Module):
    """Linear layers with tanh between them, none after the last.

    Weights start from Glorot's uniform law and biases from zero, as in the study.
    """

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, key: PRNGKey, sizes: tuple[int, ...]):
        """Build layers of the given `sizes`, input first."""
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = itertools.pairwise(sizes)
        self.layers = tuple(_linear(k, *shape) for k, shape in zip(keys, shapes, strict=True))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Apply the network to one example."""
        return self.output(self.features(x))

    def features(self, x: Float[Array, " inputs"]) -> Float[Array, " features"]:
        """Return the last hidden layer."""
        for layer in self.layers[:-1]:
            x = jnp.tanh(_apply(layer, x))
        return x

    def output(self, features: Float[Array, " features"]) -> Float[Array, " outputs"]:
        """Apply the last layer."""
        return _apply(self.layers[-1], features)


class GaussianLayer(eqx.Module):
    """A network whose output is a diagonal normal: an encoder, or an upper stochastic layer."""

    network: MLP

    def __init__(self, key: PRNGKey, num_inputs: int, num_hidden: int, num_outputs: int):
        """Build a network with two hidden layers."""
        self.network = MLP(key, (num_inputs, num_hidden, num_hidden, 2 * num_outputs))

    def __call__(self, x: Float[Array, " inputs"]) -> DiagonalNormal:
        """Return the distribution given one input."""
        return self.given(self.network.features(x))

    def given(self, features: Float[Array, " features"]) -> DiagonalNormal:
        """Return the distribution given the last hidden layer."""
        loc, log_scale = jnp.split(self.network.output(features), 2)
        return DiagonalNormal(loc, jnp.exp(log_scale))


class FullGaussianLayer(eqx.Module):
    """A network whose output is a normal with any covariance.

    Its factor is diag(scale) (I + below): what is below the diagonal is in the units of its row. It
    starts at zero, and the whole as the `GaussianLayer` of the same key.
    """

    diagonal: GaussianLayer
    below: eqx.nn.Linear

    def __init__(self, key: PRNGKey, num_inputs: int, num_hidden: int, num_outputs: int):
        """Build the network of a `GaussianLayer` and one more output."""
        self.diagonal = GaussianLayer(key, num_inputs, num_hidden, num_outputs)
        self.below = zeroed(_linear(key, num_hidden, num_outputs * (num_outputs - 1) // 2))

    def __call__(self, x: Float[Array, " inputs"]) -> FullNormal:
        """Return the distribution given one input."""
        features = self.diagonal.network.features(x)
        base = self.diagonal.given(features)
        below = vec_to_tril_matrix(_apply(self.below, features), diagonal=-1)
        return FullNormal(base.loc, base.scale[:, None] * (jnp.eye(len(base.loc)) + below))


def zeroed(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    """Return the layer with all weights zero."""
    return jax.tree.map(jnp.zeros_like, layer)


def _apply(layer: eqx.nn.Linear, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
    # Under vmap Equinox's own `weight @ x` puts the batch last, and each pass back would transpose.
    return x @ layer.weight.T + cast("Array", layer.bias)


def _linear(key: PRNGKey, num_inputs: int, num_outputs: int) -> eqx.nn.Linear:
    layer = eqx.nn.Linear(num_inputs, num_outputs, key=key)
    weight = jax.nn.initializers.glorot_uniform()(key, layer.weight.shape)
    return eqx.tree_at(lambda m: (m.weight, m.bias), layer, (weight, jnp.zeros(num_outputs)))
