"""The model in which everything is known: z ~ N(0, I), x|z ~ N(W z + b, sigma^2 I)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from aisle.models.distributions import DiagonalNormal
from aisle.types import PRNGKey, Scalar


class LinearGaussian(eqx.Module):
    """Probabilistic PCA, with its exact marginal likelihood and posterior.

    Estimators are checked against it: `log_marginal` is differentiable in the weights, so that
    gradients of log p(x) are exact too.

    Example:
        >>> model = aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.array(0.0))
        >>> round(float(model.log_marginal(jnp.zeros(3))), 2)
        -3.45
    """

    weight: Float[Array, "observed latent"]
    bias: Float[Array, " observed"]
    log_sigma: Scalar

    def log_prior(self, z: Float[Array, " latent"]) -> Scalar:
        """Return log p(z)."""
        return dist.Normal().expand(z.shape).to_event(1).log_prob(z)

    def log_likelihood(self, x: Float[Array, " observed"], z: Float[Array, " latent"]) -> Scalar:
        """Return log p(x|z)."""
        return jnp.asarray(self._observation(z).log_prob(x))

    def sample_prior(self, key: PRNGKey) -> Float[Array, " latent"]:
        """Draw z from p(z)."""
        return jax.random.normal(key, self.weight.shape[1:])

    def sample_observation(
        self, key: PRNGKey, z: Float[Array, " latent"]
    ) -> Float[Array, " observed"]:
        """Draw x from p(x|z)."""
        return jnp.asarray(self._observation(z).sample(key))

    def log_marginal(self, x: Float[Array, " observed"]) -> Scalar:
        """Return the exact log p(x)."""
        noise = jnp.exp(2 * self.log_sigma) * jnp.eye(len(self.bias))
        covariance = self.weight @ self.weight.T + noise
        return dist.MultivariateNormal(self.bias, covariance).log_prob(x)

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
        noise = jnp.exp(2 * self.log_sigma)
        precision = jnp.eye(self.weight.shape[1]) + self.weight.T @ self.weight / noise
        return jnp.linalg.solve(precision, self.weight.T @ (x - self.bias) / noise), precision

    def _observation(self, z: Float[Array, " latent"]) -> dist.Distribution:
        return dist.Normal(self.weight @ z + self.bias, jnp.exp(self.log_sigma)).to_event(1)
