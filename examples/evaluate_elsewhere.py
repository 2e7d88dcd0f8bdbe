"""Evaluate a decoder that was trained elsewhere: its weights come from a safetensors file.

Here "elsewhere" is scikit-learn's factor analysis, whose exact log-likelihood shows that the
estimate is right. For a decoder of your own, change `Decoder` to its architecture and `read` to the
names in its file. No encoder is needed: the chains start from the prior.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from safetensors.numpy import load_file, save_file
from sklearn.datasets import load_digits
from sklearn.decomposition import FactorAnalysis

import aisle


class Decoder(eqx.Module):  # the model protocol: one example, without a batch axis
    weight: jax.Array
    bias: jax.Array
    scale: jax.Array

    def log_prior(self, z):
        return jnp.sum(norm.logpdf(z))

    def log_likelihood(self, x, z):
        return jnp.sum(norm.logpdf(x, self.weight @ z + self.bias, self.scale))

    def sample_prior(self, key):
        return jax.random.normal(key, self.weight.shape[1:])

    def sample_observation(self, key, z):
        noise = jax.random.normal(key, self.bias.shape)
        return self.weight @ z + self.bias + self.scale * noise


def read(path):  # the architecture is yours; the file only has the arrays
    arrays = {name: jnp.asarray(a) for name, a in load_file(path).items()}
    return Decoder(arrays["decoder.weight"], arrays["decoder.bias"], arrays["noise.scale"])


# Elsewhere: fit 8 factors to pictures of digits, and save the weights.
rng = np.random.default_rng(0)
digits = np.float32(load_digits().data / 16 + 0.1 * rng.normal(size=(1797, 64)))
train, test = digits[:1500], digits[1500:1550]
elsewhere = FactorAnalysis(8).fit(train)
weights = {
    "decoder.weight": elsewhere.components_.T,
    "decoder.bias": elsewhere.mean_,
    "noise.scale": np.sqrt(elsewhere.noise_variance_),
}
save_file(
    {name: np.ascontiguousarray(a, np.float32) for name, a in weights.items()},
    "decoder.safetensors",
)

# Here: read them into the protocol, and evaluate from the prior.
decoder = read("decoder.safetensors")
sampler = aisle.Sampler(num_chains=8, num_temperatures=500)
result = aisle.log_likelihood(decoder, None, test, sampler=sampler)
exact = elsewhere.score_samples(test)
print("log p(x), a stochastic lower bound:", result)
print(f"exact: {exact.mean():.2f} nats")
