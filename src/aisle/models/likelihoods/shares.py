"""Values between 0 and 1, such as shares and probabilities: logit-normal and beta."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from aisle.models.likelihoods.base import (
    Likelihood,
    Units,
    check_fits,
    columns_of,
    floats,
    without_missing,
)
from aisle.models.likelihoods.special import digamma, log_rise
from aisle.types import PRNGKey

Features = Float[Array, " features"]

# Of a trapezoidal rule for means under a normal law, whose error vanishes faster than Gauss's:
# the sigmoid has poles beside the real line.
_NODES = np.linspace(-8, 8, 65)
_WEIGHTS = np.exp(-0.5 * _NODES**2)
# Beyond these a column says nothing about its concentration.
_CONCENTRATIONS = (0.1, 1e4)


class Shares(Likelihood):
    """What families on (0, 1) have in common."""

    @property
    def num_outputs(self) -> int:
        """A location for each feature."""
        return self.num_features

    @property
    def support(self) -> str:
        """Which values can be observed, in words."""
        return "numbers between 0 and 1, both excluded"

    @staticmethod
    def is_supported(values: np.ndarray) -> np.ndarray:
        """Say which values can be observed at all."""
        return (values > 0) & (values < 1)


class LogitNormal(Shares):
    """Values whose logits are normal around the decoder's output, with a learned scale.

    Example:
        >>> x = np.random.default_rng(0).beta(2.0, 5.0, (100, 3))
        >>> likelihood, output = aisle.LogitNormal.fitted(x)
        >>> bool(jnp.all(likelihood.mean(jnp.asarray(output)) < 0.4))
        True
    """

    log_scale: Features
    units: Units | None
    num_features: int = eqx.field(static=True)

    def __init__(self, num_features: int, *, units: Units | None = None):
        """Start from unit scales, in units of the columns' logits."""
        self.num_features, self.units = num_features, units
        self.log_scale = jnp.zeros(num_features)

    @classmethod
    def fitted(cls, x: ArrayLike) -> tuple["LogitNormal", np.ndarray]:
        """Fit mean and deviation of the logits of each column; see `Likelihood.fitted`."""
        columns = columns_of(x)
        check_fits(cls(columns.shape[1]), columns)
        logits = np.log(columns) - np.log1p(-columns)
        units = Units.of(np.nanmean(logits, axis=0), np.nanstd(logits, axis=0))
        return cls(columns.shape[1], units=units), np.zeros(columns.shape[1])

    def log_probs(self, x: Shaped[Array, " features"], output: Features) -> Features:
        """Return the log-density of each feature."""
        log_x, log_rest = _logs(floats(x, output))
        location, log_scale = self._of_logits(output)
        distance = (log_x - log_rest - location) * jnp.exp(-log_scale)
        normal = -0.5 * distance**2 - 0.5 * jnp.log(2 * jnp.pi) - log_scale
        return normal - log_x - log_rest

    def sample(self, key: PRNGKey, output: Features) -> Features:
        """Draw x."""
        location, log_scale = self._of_logits(output)
        noise = jax.random.normal(key, output.shape, output.dtype)
        return _inside(jax.nn.sigmoid(location + jnp.exp(log_scale) * noise))

    def mean(self, output: Features) -> Features:
        """Return E[x|z], by quadrature."""
        location, log_scale = self._of_logits(output)
        nodes = jnp.asarray(_NODES, output.dtype)[:, None]
        logits = location[None] + jnp.exp(log_scale)[None] * nodes
        return jnp.asarray(_WEIGHTS / _WEIGHTS.sum(), output.dtype) @ jax.nn.sigmoid(logits)

    def standardise(self, x: Shaped[Array, " features"]) -> Features:
        """Return the logits of x in units of their columns."""
        logits = _logit(floats(x))
        return without_missing(x, logits if self.units is None else self.units.inwards(logits))

    def _of_logits(self, output: Features) -> tuple[Features, Features]:
        if self.units is None:
            return output, self.log_scale
        return self.units.outwards(output), self.log_scale + self.units.log_scale


class Beta(Shares):
    """Beta laws, from the logits of their means, with a learned concentration.

    The variance is m (1 - m) / (1 + concentration).

    Example:
        >>> x = np.random.default_rng(0).beta(2.0, 5.0, (5000, 1))
        >>> likelihood, output = aisle.Beta.fitted(x)
        >>> jnp.exp(likelihood.log_concentration).round().tolist()
        [7.0]
    """

    log_concentration: Features
    num_features: int = eqx.field(static=True)

    def __init__(self, num_features: int, *, concentration: ArrayLike | float = 2.0):
        """Start from some concentration."""
        self.num_features = num_features
        values = jnp.broadcast_to(jnp.asarray(concentration, float), (num_features,))
        self.log_concentration = jnp.log(values)

    @classmethod
    def fitted(cls, x: ArrayLike) -> tuple["Beta", np.ndarray]:
        """Fit mean and variance of each column; see `Likelihood.fitted`."""
        columns = columns_of(x)
        check_fits(cls(columns.shape[1]), columns)
        mean, variance = np.nanmean(columns, axis=0), np.nanvar(columns, axis=0)
        spread = np.maximum(variance, mean * (1 - mean) / (1 + _CONCENTRATIONS[1]))
        concentration = np.maximum(mean * (1 - mean) / spread - 1, _CONCENTRATIONS[0])
        return cls(columns.shape[1], concentration=concentration), np.log(mean / (1 - mean))

    def log_probs(self, x: Shaped[Array, " features"], output: Features) -> Features:
        """Return the log-density of each feature."""
        log_x, log_rest = _logs(floats(x, output))
        concentration = jnp.exp(self.log_concentration)
        first, second = _parameters(output, concentration)
        powers = (first - 1) * log_x + (second - 1) * log_rest
        return powers - _log_beta(output, concentration)

    def sample(self, key: PRNGKey, output: Features) -> Features:
        """Draw x."""
        parameters = _parameters(output, jnp.exp(self.log_concentration))
        return _inside(jax.random.beta(key, *parameters, output.shape, output.dtype))

    def mean(self, output: Features) -> Features:
        """Return E[x|z]."""
        return jax.nn.sigmoid(output)

    def standardise(self, x: Shaped[Array, " features"]) -> Features:
        """Return the logits of x."""
        return without_missing(x, _logit(floats(x)))


def _parameters(logit: Features, concentration: Features) -> tuple[Features, Features]:
    # Zero would make a gradient that is not a number.
    least = jnp.finfo(logit.dtype).tiny ** 0.75
    first, second = concentration * jax.nn.sigmoid(logit), concentration * jax.nn.sigmoid(-logit)
    return jnp.maximum(first, least), jnp.maximum(second, least)


@jax.custom_jvp
def _log_beta(logit: Features, concentration: Features) -> Features:
    """Return log B(m c, (1 - m) c)."""
    parameters = _parameters(logit, concentration)
    low, high = jnp.minimum(*parameters), jnp.maximum(*parameters)
    return gammaln(low) - log_rise(low, high) - low * jnp.log(high)


# XLA's digamma, which NumPyro's Beta would call, takes longer than all the rest of a decoder.
@_log_beta.defjvp
def _log_beta_jvp(
    primals: tuple[Features, Features], tangents: tuple[Features, Features]
) -> tuple[Features, Features]:
    logit, concentration = primals
    first, second = _parameters(logit, concentration)
    share, rest = jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)
    by_first, by_second = digamma(first), digamma(second)
    by_logit = concentration * share * rest * (by_first - by_second)
    by_concentration = share * by_first + rest * by_second - digamma(concentration)
    return _log_beta(*primals), by_logit * tangents[0] + by_concentration * tangents[1]


def _inside(x: Features) -> Features:
    """Move what was rounded to 0 or 1 into the support."""
    limits = jnp.finfo(x.dtype)
    return jnp.clip(x, limits.tiny, 1 - limits.epsneg)


def _logs(x: Features) -> tuple[Features, Features]:
    inside = _inside(x)
    return jnp.log(inside), jnp.log1p(-inside)


def _logit(x: Features) -> Features:
    log_x, log_rest = _logs(x)
    return log_x - log_rest
