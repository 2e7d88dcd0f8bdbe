"""What a decoder's output says about x: the likelihoods p(x|z)."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Shaped

from aisle.errors import InputError
from aisle.types import PRNGKey, Scalar


class Bernoulli(eqx.Module):
    """Independent bits, from logits; values 0 and 1, of any type.

    Example:
        >>> aisle.Bernoulli(2).mean(jnp.zeros(2)).tolist()
        [0.5, 0.5]
    """

    support: ClassVar[str] = "0 and 1; bits are drawn from values in [0, 1] by binarize='dynamic'"

    def __init__(self, num_features: int):
        """Take no parameters of its own."""
        del num_features

    def log_prob(self, x: Shaped[Array, " features"], output: Float[Array, " features"]) -> Scalar:
        """Return log p(x|z) for the decoder's output."""
        return jnp.sum(_log_bernoulli(x.astype(output.dtype), output))

    def sample(self, key: PRNGKey, output: Float[Array, " features"]) -> Float[Array, " features"]:
        """Draw bits, as 0.0 and 1.0."""
        return jax.random.bernoulli(key, self.mean(output)).astype(output.dtype)

    def mean(self, output: Float[Array, " features"]) -> Float[Array, " features"]:
        """Return E[x|z]."""
        return jax.nn.sigmoid(output)

    @staticmethod
    def is_supported(values: np.ndarray) -> np.ndarray:
        """Say which values can be observed at all."""
        return (values == 0) | (values == 1)

    @staticmethod
    def initial_output(mean: np.ndarray) -> np.ndarray:
        """Return the output whose mean is the training mean, clipped to 0.001..0.999."""
        if not np.all((mean >= 0) & (mean <= 1)):
            wrong = mean[~((mean >= 0) & (mean <= 1))][0]
            raise InputError(
                f"has the value {wrong:g}: the mean of bits is from 0 to 1; take "
                "likelihood=aisle.Gaussian for real values",
                argument="mean",
            )
        clipped = np.clip(mean, 0.001, 0.999)
        return np.log(clipped / (1 - clipped))


class Gaussian(eqx.Module):
    """Independent normals around the decoder's output, with a learned scale for each feature.

    Example:
        >>> mean = np.array([3.0, -1.0])
        >>> model, proposal = aisle.one_layer(
        ...     jax.random.key(0), mean, num_latents=1, num_hidden=4, likelihood=aisle.Gaussian)
        >>> model.likelihood.log_scale.tolist()
        [0.0, 0.0]
    """

    support: ClassVar[str] = "finite numbers"

    log_scale: Float[Array, " features"]

    def __init__(self, num_features: int):
        """Start from unit scales."""
        self.log_scale = jnp.zeros(num_features)

    def log_prob(self, x: Shaped[Array, " features"], output: Float[Array, " features"]) -> Scalar:
        """Return log p(x|z) for the decoder's output."""
        return jnp.asarray(self._distribution(output).log_prob(x))

    def sample(self, key: PRNGKey, output: Float[Array, " features"]) -> Float[Array, " features"]:
        """Draw x."""
        return jnp.asarray(self._distribution(output).sample(key))

    def mean(self, output: Float[Array, " features"]) -> Float[Array, " features"]:
        """Return E[x|z]."""
        return output

    @staticmethod
    def is_supported(values: np.ndarray) -> np.ndarray:
        """Say which values can be observed at all."""
        return np.isfinite(values)

    @staticmethod
    def initial_output(mean: np.ndarray) -> np.ndarray:
        """Return the training mean."""
        return mean

    def _distribution(self, output: Float[Array, " features"]) -> dist.Distribution:
        return dist.Normal(output, jnp.exp(self.log_scale)).to_event(1)


Likelihood = Bernoulli | Gaussian


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
