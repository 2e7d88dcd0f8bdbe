"""A small problem for `fit`: a linear-Gaussian model, whose data are known to be of one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from aisle.learning import DReG
from aisle.models import DiagonalNormal, LinearGaussian

TRUTH = LinearGaussian(jnp.array([[1.5], [-1.0], [0.5]]), jnp.array([1.0, 0.0, -2.0]), jnp.log(0.6))
START = LinearGaussian(jnp.array([[0.3], [0.2], [0.1]]), jnp.zeros(3), jnp.array(0.0))

# A batch that one device takes: compiling for eight takes longer. 29 updates are an epoch.
QUICK = {
    "method": DReG(2),
    "optimizer": optax.adam(0.01),
    "batch_size": 11,
    "num_epochs": 2,
    "show_progress": False,
}


class Encoder(eqx.Module):
    weight: Array
    bias: Array
    log_scale: Array

    def __call__(self, x):
        return DiagonalNormal(self.weight @ jnp.ravel(x) + self.bias, jnp.exp(self.log_scale))


def encoder(num_observed=3):
    return Encoder(jnp.zeros((1, num_observed)), jnp.zeros(1), jnp.zeros(1))


def simulate(number):
    """Draw from `TRUTH`; in double precision, as NumPy has it by default."""
    generator = np.random.default_rng(8)
    z, noise = generator.normal(size=(number, 1)), generator.normal(size=(number, 3))
    return z @ np.asarray(TRUTH.weight.T) + np.asarray(TRUTH.bias) + 0.6 * noise


DATA = simulate(320)


def assert_identical(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)
