"""Counts: Poisson, negative binomial, and with more zeros than that.

An exposure is a positive number that belongs to an example: a time, an area, a library size. The
mean of each count is `exposure * exp(output)`.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from aisle.errors import InputError
from aisle.models.likelihoods.base import (
    Features,
    Likelihood,
    Outputs,
    Values,
    floats,
    log_of_each,
    supported_columns,
    without_missing,
)
from aisle.models.likelihoods.moments import dispersed, zero_inflated
from aisle.models.likelihoods.special import log_rise, softplus
from aisle.types import PRNGKey

Exposure = Float[Array, ""] | float


class Counts(Likelihood):
    """What families of counts have in common: an exposure, and whole numbers."""

    @abc.abstractmethod
    def log_probs(self, x: Values, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return the log-probability of each feature."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Draw counts, as floats."""

    @abc.abstractmethod
    def mean(self, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return E[x|z]."""

    @property
    def support(self) -> str:
        """Which values can be observed, in words."""
        return "counts: whole numbers from 0 on"

    def is_supported(self, values: np.ndarray) -> np.ndarray:
        """Say which values can be observed at all."""
        return np.isfinite(values) & (values >= 0) & (values == np.floor(values))

    def standardise(self, x: Values) -> Features:
        """Return log(1 + x), as counts differ widely."""
        return without_missing(x, jnp.log1p(floats(x)))


class Poisson(Counts):
    """Independent Poisson counts, from the logarithms of their rates.

    Example:
        >>> likelihood = aisle.Poisson(2)
        >>> likelihood.mean(jnp.log(jnp.array([3.0, 5.0])), exposure=2.0).tolist()
        [6.0, 10.0]
    """

    num_features: int = eqx.field(static=True)

    @classmethod
    def fitted(
        cls, x: ArrayLike, exposure: ArrayLike | float = 1.0
    ) -> tuple["Poisson", np.ndarray]:
        """Fit the mean of each column; see `Likelihood.fitted`.

        Args:
            x: training examples along the first axis; NaN is missing.
            exposure: of each example.
        """
        columns, _, rates = _counts_of(x, exposure)
        return cls(columns.shape[1]), np.log(rates)

    @property
    def num_outputs(self) -> int:
        """A logarithm of the rate for each feature."""
        return self.num_features

    def log_probs(self, x: Values, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return the log-probability of each feature.

        NumPyro's Poisson takes the rate, and with it a logarithm of an exponential.
        """
        x, log_mean = floats(x, output), output + jnp.log(exposure)
        return x * log_mean - jnp.exp(log_mean) - gammaln(x + 1)

    def sample(self, key: PRNGKey, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Draw counts, as floats."""
        return jax.random.poisson(key, self.mean(output, exposure)).astype(output.dtype)

    def mean(self, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return E[x|z]."""
        return exposure * jnp.exp(output)


class Dispersed(Counts):
    """What families with an inverse dispersion, learned for each feature, have in common."""

    log_inverse_dispersion: Features
    num_features: int = eqx.field(static=True)

    def __init__(self, num_features: int, *, inverse_dispersion: ArrayLike | float = 1.0):
        """Start from some inverse dispersion."""
        self.num_features = num_features
        self.log_inverse_dispersion = log_of_each(inverse_dispersion, num_features)


class NegativeBinomial(Dispersed):
    """Independent counts that vary more than Poisson's, from the logarithms of their means.

    The variance is m + m^2 / theta, with a learned theta for each feature: what scvi-tools calls
    the inverse dispersion.

    Example:
        >>> x = np.random.default_rng(0).negative_binomial(2.0, 0.1, (5000, 1))
        >>> likelihood, output = aisle.NegativeBinomial.fitted(x)
        >>> jnp.exp(likelihood.log_inverse_dispersion).round(1).tolist()
        [2.0]
    """

    @classmethod
    def fitted(
        cls, x: ArrayLike, exposure: ArrayLike | float = 1.0
    ) -> tuple["NegativeBinomial", np.ndarray]:
        """Fit mean and variance of each column; see `Poisson.fitted`."""
        columns, exposures, rates = _counts_of(x, exposure)
        theta = dispersed(columns, exposures, rates)
        likelihood = cls(columns.shape[1], inverse_dispersion=theta)  # pyright: ignore[reportCallIssue]
        return likelihood, np.log(rates)

    @property
    def num_outputs(self) -> int:
        """A logarithm of the mean for each feature."""
        return self.num_features

    def log_probs(self, x: Values, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return the log-probability of each feature."""
        return _log_binomial(floats(x, output), output, self.log_inverse_dispersion, exposure)

    def sample(self, key: PRNGKey, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Draw counts, as floats."""
        return _draw(key, self.mean(output, exposure), self.log_inverse_dispersion)

    def mean(self, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return E[x|z]."""
        return exposure * jnp.exp(output)


class ZeroInflatedNegativeBinomial(Dispersed):
    """Negative binomial counts that are lost, set to zero, with a probability for each feature.

    The output has the logarithms of the means of what is not lost, then the logits of the loss.

    Example:
        >>> likelihood = aisle.ZeroInflatedNegativeBinomial(1)
        >>> likelihood.mean(jnp.array([jnp.log(4.0), 0.0])).tolist()  # half are lost
        [2.0]
    """

    @classmethod
    def fitted(
        cls, x: ArrayLike, exposure: ArrayLike | float = 1.0
    ) -> tuple["ZeroInflatedNegativeBinomial", np.ndarray]:
        """Fit mean, variance and zeros of each column; see `Poisson.fitted`."""
        columns, exposures, rates = _counts_of(x, exposure)
        lost, theta = zero_inflated(columns, exposures, rates)
        output = np.concatenate([np.log(rates / (1 - lost)), np.log(lost / (1 - lost))])
        likelihood = cls(columns.shape[1], inverse_dispersion=theta)  # pyright: ignore[reportCallIssue]
        return likelihood, output

    @property
    def num_outputs(self) -> int:
        """The logarithm of a mean and a logit for each feature."""
        return 2 * self.num_features

    def log_probs(self, x: Values, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return the log-probability of each feature."""
        x, (log_mean, logit) = floats(x, output), jnp.split(output, 2)
        kept = _log_binomial(x, log_mean, self.log_inverse_dispersion, exposure)
        # The same at zero, without gamma functions, which the gradient would need.
        odds = log_mean + jnp.log(exposure) - self.log_inverse_dispersion
        none = -jnp.exp(self.log_inverse_dispersion) * softplus(odds)
        # log(exp(logit) + exp(none)) at zero; both are over 1 + exp(logit).
        return jnp.where(x == 0, none + softplus(logit - none), kept) - softplus(logit)

    def sample(self, key: PRNGKey, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Draw counts, as floats."""
        key_count, key_loss = jax.random.split(key)
        log_mean, logit = jnp.split(output, 2)
        counts = _draw(key_count, exposure * jnp.exp(log_mean), self.log_inverse_dispersion)
        return jnp.where(jax.random.bernoulli(key_loss, jax.nn.sigmoid(logit)), 0, counts)

    def mean(self, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return E[x|z]."""
        log_mean, logit = jnp.split(output, 2)
        return exposure * jnp.exp(log_mean) * jax.nn.sigmoid(-logit)


def _log_binomial(x: Features, output: Features, log_theta: Features, exposure: Exposure) -> Array:
    """Return log NB(x; mean, theta), with the terms that do not depend on the mean apart.

    NumPyro's differentiates gamma functions on the way to the mean, and loses large theta.
    """
    theta, odds = jnp.exp(log_theta), output + jnp.log(exposure) - log_theta
    fixed = log_rise(x, theta) + x * log_theta - gammaln(x + 1)
    return fixed + x * odds - (x + theta) * softplus(odds)


def _draw(key: PRNGKey, mean: Features, log_theta: Features) -> Features:
    """Draw counts of Poisson's whose rates vary by a gamma law."""
    key_rate, key_count = jax.random.split(key)
    theta = jnp.exp(log_theta)
    rate = mean * jax.random.gamma(key_rate, theta, mean.shape, mean.dtype) / theta
    return jax.random.poisson(key_count, rate).astype(mean.dtype)


def _counts_of(
    x: ArrayLike, exposure: ArrayLike | float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns of counts, exposures of the same shape, NaN where they are, and the rates.

    Rates are those of maximum likelihood; where nothing was counted, that of half a count.
    """
    columns = supported_columns(Poisson, x)
    given = np.asarray(exposure, np.float64)
    if given.shape not in ((), (len(columns),)) or not np.all((given > 0) & (given < np.inf)):
        raise InputError(
            f"has the shape {given.shape}, from {given.min():g} to {given.max():g}: give one "
            "positive number for each example, or for all",
            argument="exposure",
        )
    exposures = np.broadcast_to(given.reshape(-1, 1), columns.shape)
    exposures = np.where(np.isnan(columns), np.nan, exposures)
    rates = np.maximum(np.nansum(columns, axis=0), 0.5) / np.nansum(exposures, axis=0)
    return columns, exposures, rates
