"""Distributions over latents, in the form that an annealing run starts from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PyTree

from aisle.context import given
from aisle.types import Latent, Model, Observation, PRNGKey, Scalar


class DiagonalNormal(eqx.Module):
    """A normal distribution with independent components; its draws are reparameterised.

    Example:
        >>> q = aisle.DiagonalNormal(jnp.zeros(2), jnp.ones(2))
        >>> q.sample(jax.random.key(0)).shape
        (2,)
    """

    loc: Float[Array, "*latent"]
    scale: Float[Array, "*latent"]

    def sample(self, key: PRNGKey) -> Float[Array, "*latent"]:
        """Draw one latent, differentiable in `loc` and `scale`."""
        return self.loc + self.scale * jax.random.normal(key, self.loc.shape, self.loc.dtype)

    def log_prob(self, z: Float[Array, "*latent"]) -> Scalar:
        """Return the log-density of one latent."""
        return dist.Normal(self.loc, self.scale).to_event().log_prob(z)


class PriorDistribution(eqx.Module):
    """A model's prior as a distribution.

    Example:
        >>> model = aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.array(0.0))
        >>> aisle.PriorDistribution(model).sample(jax.random.key(0)).shape
        (1,)
    """

    model: Model

    def sample(self, key: PRNGKey) -> Latent:
        """Draw z from p(z)."""
        return self.model.sample_prior(key)

    def log_prob(self, z: Latent) -> Scalar:
        """Return log p(z)."""
        return self.model.log_prior(z)


class PriorProposal(eqx.Module):
    """The proposal that ignores x: annealing from the prior needs no encoder.

    Example:
        >>> model = aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.array(0.0))
        >>> round(float(aisle.PriorProposal(model)(jnp.zeros(3)).log_prob(jnp.zeros(1))), 2)
        -0.92
    """

    model: Model

    def __call__(self, x: Observation) -> PriorDistribution:
        """Return the prior, whatever the observation."""
        del x
        return PriorDistribution(self.model)

    def given(self, context: PyTree) -> "PriorProposal":
        """Return the proposal of an example, whose prior may depend on the context."""
        return PriorProposal(given(self.model, context))


def standard_log_prob(z: Float[Array, " latent"]) -> Scalar:
    """Return the log-density of N(0, I)."""
    return jnp.asarray(dist.Normal().expand(z.shape).to_event(1).log_prob(z))
