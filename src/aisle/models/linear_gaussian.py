"""The model in which everything is known: z ~ N(0, I), x|z ~ N(W z + b, sigma^2 I)."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, PyTree

from aisle.context import Context
from aisle.errors import InputError
from aisle.models.distributions import DiagonalNormal
from aisle.types import PRNGKey, Scalar


class LinearGaussian(eqx.Module):
    """Probabilistic PCA, with its exact marginal likelihood and posterior.

    Estimators are checked against it: `log_marginal` is differentiable in the weights, so that
    gradients of log p(x) are exact too. Given an `aisle.Context`, entries that were not observed
    drop out, and a condition c moves the mean to W z + b + V c.

    Example:
        >>> model = aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.array(0.0))
        >>> round(float(model.log_marginal(jnp.zeros(3))), 2)
        -3.45
    """

    weight: Float[Array, "observed latent"]
    bias: Float[Array, " observed"]
    log_sigma: Scalar
    condition_weight: Float[Array, "observed condition"] | None = None
    is_observed: Bool[Array, " observed"] | None = None

    def given(self, context: PyTree) -> "LinearGaussian":
        """Return the model of one example in its context."""
        shift, is_right = self.condition_weight, isinstance(context, Context)
        is_right = is_right and context.exposure is None
        if not is_right or (context.condition is None) != (shift is None):
            raise InputError(
                f"is {context!r:.60}: a LinearGaussian takes an aisle.Context with is_observed, "
                "and with a condition if it has a condition_weight",
                argument="context",
            )
        bias = self.bias
        if shift is not None:
            bias = bias + shift @ jnp.asarray(context.condition, bias.dtype)
        mask = None if context.is_observed is None else jnp.asarray(context.is_observed)
        return dataclasses.replace(self, bias=bias, is_observed=mask)

    def log_prior(self, z: Float[Array, " latent"]) -> Scalar:
        """Return log p(z)."""
        return dist.Normal().expand(z.shape).to_event(1).log_prob(z)

    def log_likelihood(self, x: Float[Array, " observed"], z: Float[Array, " latent"]) -> Scalar:
        """Return log p(x|z)."""
        if self.is_observed is None:
            return jnp.asarray(self._observation(z).to_event(1).log_prob(x))
        terms = self._observation(z).log_prob(jnp.where(self.is_observed, x, 0))
        return jnp.sum(jnp.where(self.is_observed, terms, 0))

    def sample_prior(self, key: PRNGKey) -> Float[Array, " latent"]:
        """Draw z from p(z)."""
        return jax.random.normal(key, self.weight.shape[1:])

    def sample_observation(
        self, key: PRNGKey, z: Float[Array, " latent"]
    ) -> Float[Array, " observed"]:
        """Draw x from p(x|z), with NaN for what is not observed."""
        x = jnp.asarray(self._observation(z).to_event(1).sample(key))
        return x if self.is_observed is None else jnp.where(self.is_observed, x, jnp.nan)

    def log_marginal(self, x: Float[Array, " observed"]) -> Scalar:
        """Return the exact log p(x)."""
        noise = jnp.exp(2 * self.log_sigma) * jnp.eye(len(self.bias))
        covariance = self.weight @ self.weight.T + noise
        if self.is_observed is None:
            return dist.MultivariateNormal(self.bias, covariance).log_prob(x)
        # What is missing becomes independent N(0, 1) at 0, whose density is taken out again.
        is_pair = self.is_observed[:, None] & self.is_observed[None]
        covariance = jnp.where(is_pair, covariance, jnp.eye(len(self.bias)))
        centred = jnp.where(self.is_observed, x - self.bias, 0)
        added = 0.5 * math.log(2 * math.pi) * jnp.sum(~self.is_observed)
        normal = dist.MultivariateNormal(jnp.zeros_like(centred), covariance)
        return normal.log_prob(centred) + added

    def posterior(self, x: Float[Array, " observed"]) -> dist.MultivariateNormal:
        """Return the exact p(z|x), which has a full covariance."""
        loc, precision = self._posterior(x)
        return dist.MultivariateNormal(loc, precision_matrix=precision)

    def mean_field_posterior(self, x: Float[Array, " observed"]) -> DiagonalNormal:
        """Return the diagonal normal q that minimises KL(q || p(z|x)).

        For a normal target it has the target's mean and its precision's diagonal.
        """
        loc, precision = self._posterior(x)
        return DiagonalNormal(loc, jnp.diagonal(precision) ** -0.5)

    def _posterior(self, x: Float[Array, " observed"]) -> tuple[Array, Array]:
        noise, weight, centred = jnp.exp(2 * self.log_sigma), self.weight, x - self.bias
        if self.is_observed is not None:
            weight = jnp.where(self.is_observed[:, None], weight, 0)
            centred = jnp.where(self.is_observed, centred, 0)
        precision = jnp.eye(weight.shape[1]) + weight.T @ weight / noise
        return jnp.linalg.solve(precision, weight.T @ centred / noise), precision

    def _observation(self, z: Float[Array, " latent"]) -> dist.Distribution:
        return dist.Normal(self.weight @ z + self.bias, jnp.exp(self.log_sigma))
