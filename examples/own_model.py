"""Train a model of your own on a NumPy array: another network, and a Gaussian likelihood."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import aisle


class Curves(eqx.Module):  # a generative model of one example, without a batch axis
    network: eqx.nn.MLP

    def log_prior(self, z):
        return jnp.sum(norm.logpdf(z))

    def log_likelihood(self, x, z):
        return jnp.sum(norm.logpdf(x, self.network(z), 0.1))

    def sample_prior(self, key):
        return jax.random.normal(key, (2,))

    def sample_observation(self, key, z):
        return self.network(z) + 0.1 * jax.random.normal(key, (30,))


class Encoder(eqx.Module):  # from x to a distribution with sample, log_prob and scale
    network: eqx.nn.MLP

    def __call__(self, x):
        loc, log_scale = jnp.split(self.network(x), 2)
        return aisle.DiagonalNormal(loc, jnp.exp(log_scale))


rng = np.random.default_rng(0)
phase, height = rng.normal(size=(2, 1000, 1))
curves = np.float32(
    height * np.sin(np.linspace(0, 3, 30) + phase) + 0.1 * rng.normal(size=(1000, 30))
)
model = Curves(eqx.nn.MLP(2, 30, 64, 2, jnp.tanh, key=jax.random.key(0)))
proposal = Encoder(eqx.nn.MLP(30, 4, 64, 2, jnp.tanh, key=jax.random.key(1)))
plan = {"method": "ais", "num_samples": 2, "num_temperatures": 5, "num_epochs": 30}
fitted = aisle.fit(model, proposal, curves[:900], held_out=curves[900:], batch_size=50, **plan)
print("held-out bound, in nats:", fitted.history[-1]["held_out_bound"])
