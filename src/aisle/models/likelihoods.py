"""What a decoder's output says about x: the likelihoods p(x|z)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from aisle.errors import InputError
from aisle.types import PRNGKey, Scalar


class Bernoulli(eqx.Module):
    """Independent bits, from logits. Values between 0 and 1 count as fractions of a bit."""

    def __init__(self, num_features: int):
        """Take no parameters of its own."""
        del num_features

    def log_prob(self, x: Float[Array, " features"], output: Float[Array, " features"]) -> Scalar:
        """Return log p(x|z) for the decoder's output."""
        return jnp.sum(_log_bernoulli(x, output))

    def sample(self, key: PRNGKey, output: Float[Array, " features"]) -> Float[Array, " features"]:
        """Draw bits, as 0.0 and 1.0."""
        return jax.random.bernoulli(key, self.mean(output)).astype(output.dtype)

    def mean(self, output: Float[Array, " features"]) -> Float[Array, " features"]:
        """Return E[x|z]."""
        return jax.nn.sigmoid(output)

    @staticmethod
    def initial_output(mean: np.ndarray) -> np.ndarray:
        """Return the output whose mean is the training mean, clipped to 0.001..0.999."""
        clipped = np.clip(mean, 0.001, 0.999)
        return np.log(clipped / (1 - clipped))


class Gaussian(eqx.Module):
    """Independent normals around the decoder's output, with a learned scale for each feature."""

    log_scale: Float[Array, " features"]

    def __init__(self, num_features: int):
        """Start from unit scales."""
        self.log_scale = jnp.zeros(num_features)

    def log_prob(self, x: Float[Array, " features"], output: Float[Array, " features"]) -> Scalar:
        """Return log p(x|z) for the decoder's output."""
        return jnp.asarray(self._distribution(output).log_prob(x))

    def sample(self, key: PRNGKey, output: Float[Array, " features"]) -> Float[Array, " features"]:
        """Draw x."""
        return jnp.asarray(self._distribution(output).sample(key))

    def mean(self, output: Float[Array, " features"]) -> Float[Array, " features"]:
        """Return E[x|z]."""
        return output

    @staticmethod
    def initial_output(mean: np.ndarray) -> np.ndarray:
        """Return the training mean."""
        return mean

    def _distribution(self, output: Float[Array, " features"]) -> dist.Distribution:
        return dist.Normal(output, jnp.exp(self.log_scale)).to_event(1)


Likelihood = Bernoulli | Gaussian
LIKELIHOODS: dict[str, type[Likelihood]] = {"bernoulli": Bernoulli, "gaussian": Gaussian}


def named(name: str) -> type[Likelihood]:
    """Return the class of the likelihood called `name`."""
    if name not in LIKELIHOODS:
        raise InputError(f"likelihood is {name!r}: choose from {', '.join(LIKELIHOODS)}")
    return LIKELIHOODS[name]


def takes_bits(model: object) -> bool:
    """Say whether a model is one of bits, as the built-in networks are by default."""
    return isinstance(getattr(model, "likelihood", None), Bernoulli)


@jax.custom_jvp
def _log_bernoulli(
    x: Float[Array, " features"], logits: Float[Array, " features"]
) -> Float[Array, " features"]:
    # softplus without log1p, which is slow: the sum over features cannot hold what that would add.
    return x * logits - jnp.maximum(logits, 0) - jnp.log(1 + jnp.exp(-jnp.abs(logits)))


# The derivative in its closed form, x - sigmoid(logits): a leapfrog step that needs no value of
# log p is then spared the logarithm, which automatic differentiation of softplus would keep.
_log_bernoulli.defjvps(
    lambda dx, _, _x, logits: dx * logits,
    lambda dlogits, _, x, logits: dlogits * (x - jax.nn.sigmoid(logits)),
)
