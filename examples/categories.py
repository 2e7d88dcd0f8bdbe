"""A model of your own for categories: digits in five grey levels, which no Bernoulli can describe.

`python categories.py` trains it from Python. The command line takes the same two classes through
`networks`: aisle train grey_levels.npz --model categories:networks
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import aisle

NUM_LEVELS, NUM_LATENTS = 5, 8


class Categories(eqx.Module):  # a generative model of one example, without a batch axis
    network: eqx.nn.MLP

    def log_prior(self, z):
        return jnp.sum(jax.scipy.stats.norm.logpdf(z))

    def log_likelihood(self, x, z):
        log_probs = jax.nn.log_softmax(self._logits(z))
        return jnp.sum(jnp.take_along_axis(log_probs, x[:, None].astype(int), axis=1))

    def sample_prior(self, key):
        return jax.random.normal(key, (NUM_LATENTS,))

    def sample_observation(self, key, z):
        return jax.random.categorical(key, self._logits(z)).astype(jnp.uint8)

    def mean_observation(self, z):  # optional: what pictures and reconstructions show
        return jax.nn.softmax(self._logits(z)) @ jnp.arange(NUM_LEVELS, dtype=float)

    def _logits(self, z):
        return self.network(z).reshape(-1, NUM_LEVELS)


class Encoder(eqx.Module):  # from x to a distribution with sample, log_prob and scale
    network: eqx.nn.MLP

    def __call__(self, x):
        loc, log_scale = jnp.split(self.network(jax.nn.one_hot(x, NUM_LEVELS).ravel()), 2)
        return aisle.DiagonalNormal(loc, jnp.exp(log_scale))


def networks(key, train):
    """Build (model, proposal) for the training examples, an aisle.Split."""
    num_outputs = NUM_LEVELS * train.example.shape[0]
    key_model, key_encoder = jax.random.split(key)
    decoder = eqx.nn.MLP(NUM_LATENTS, num_outputs, 64, 2, jnp.tanh, key=key_model)
    encoder = eqx.nn.MLP(num_outputs, 2 * NUM_LATENTS, 64, 2, jnp.tanh, key=key_encoder)
    return Categories(decoder), Encoder(encoder)


if __name__ == "__main__":
    levels = np.uint8(load_digits().data // 4)  # whole numbers from 0 to 4, and they stay so
    train, valid, test = np.split(levels, [1400, 1600])
    np.savez("grey_levels.npz", train=train, valid=valid, test=test)

    model, proposal = networks(jax.random.key(0), aisle.Split(train))
    fitted = aisle.fit(model, proposal, train, held_out=valid, num_updates=600, out="runs/own")
    print("trained:", fitted)

    sampler = aisle.Sampler(num_chains=4, num_temperatures=100)
    result = aisle.log_likelihood(fitted.model, fitted.proposal, test, sampler=sampler)
    print("test log p(x):", result)
