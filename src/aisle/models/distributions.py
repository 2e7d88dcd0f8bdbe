"""Distributions over latents, in the form that an annealing run starts from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from aisle.types import Latent, Model, Observation, PRNGKey, Scalar


class DiagonalNormal(eqx.Module):
    """A normal distribution with independent components; its draws are reparameterised."""

    loc: Float[Array, "*latent"]
    scale: Float[Array, "*latent"]

    def sample(self, key: PRNGKey) -> Float[Array, "*latent"]:
        """Draw one latent, differentiable in `loc` and `scale`."""
        return self.loc + self.scale * jax.random.normal(key, self.loc.shape, self.loc.dtype)

    def log_prob(self, z: Float[Array, "*latent"]) -> Scalar:
        """Return the log-density of one latent."""
        return dist.Normal(self.loc, self.scale).to_event().log_prob(z)


class FullNormal(eqx.Module):
    """A normal distribution with the covariance factor factor'; its draws are reparameterised.

    The factor is lower-triangular. It is inverted once, for a density that is asked for often.
    """

    loc: Float[Array, " latent"]
    factor: Float[Array, "latent latent"]
    inverse: Float[Array, "latent latent"]

    def __init__(self, loc: Float[Array, " latent"], factor: Float[Array, "latent latent"]):
        """Take the mean, and the factor with a positive diagonal."""
        self.loc, self.factor, self.inverse = loc, factor, _inverse(factor)

    def sample(self, key: PRNGKey) -> Float[Array, " latent"]:
        """Draw one latent, differentiable in `loc` and `factor`."""
        noise = jax.random.normal(key, self.loc.shape, self.loc.dtype)
        return self.loc + noise @ self.factor.T

    def log_prob(self, z: Float[Array, " latent"]) -> Scalar:
        """Return the log-density of one latent."""
        noise = (z - self.loc) @ self.inverse.T
        return standard_log_prob(noise) + jnp.sum(jnp.log(jnp.diagonal(self.inverse)))

    @property
    def scale(self) -> Float[Array, " latent"]:
        """Standard deviations of the components."""
        return jnp.sqrt(jnp.sum(self.factor**2, axis=1))


class PriorDistribution(eqx.Module):
    """A model's prior as a distribution."""

    model: Model

    def sample(self, key: PRNGKey) -> Latent:
        """Draw z from p(z)."""
        return self.model.sample_prior(key)

    def log_prob(self, z: Latent) -> Scalar:
        """Return log p(z)."""
        return self.model.log_prior(z)


class PriorProposal(eqx.Module):
    """The proposal that ignores x: annealing from the prior needs no encoder."""

    model: Model

    def __call__(self, x: Observation) -> PriorDistribution:
        """Return the prior, whatever the observation."""
        del x
        return PriorDistribution(self.model)


def standard_log_prob(z: Float[Array, " latent"]) -> Scalar:
    """Return the log-density of N(0, I)."""
    return jnp.asarray(dist.Normal().expand(z.shape).to_event(1).log_prob(z))


@jax.custom_jvp
def _inverse(factor: Float[Array, "latent latent"]) -> Float[Array, "latent latent"]:
    """Invert a lower-triangular matrix, row by row."""
    # Not by LAPACK: on few cores, many such calls of jaxlib 0.10 at once wait for one another.
    identity = jnp.eye(len(factor), dtype=factor.dtype)

    def add_row(i: Array, rows: Array) -> Array:
        return rows.at[i].set((identity[i] - factor[i] @ rows) / factor[i, i])

    return jax.lax.fori_loop(0, len(factor), add_row, jnp.zeros_like(factor))


@_inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverse = _inverse(*primals)
    return inverse, -inverse @ tangents[0] @ inverse
