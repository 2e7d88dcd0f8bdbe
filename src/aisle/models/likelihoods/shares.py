"""Values between 0 and 1, such as shares and probabilities: logit-normal and beta."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpy.typing import ArrayLike

from aisle.models.likelihoods.base import (
    Features,
    Likelihood,
    Units,
    Values,
    floats,
    log_of_each,
    supported_columns,
    without_missing,
)
from aisle.models.likelihoods.special import digamma, log_rise
from aisle.types import PRNGKey

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

    def is_supported(self, values: np.ndarray) -> np.ndarray:
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
        columns = supported_columns(cls, x)
        units = Units.fitted(np.log(columns) - np.log1p(-columns))
        return cls(columns.shape[1], units=units), np.zeros(columns.shape[1])

    def log_probs(self, x: Values, output: Features) -> Features:
        """Return the log-density of each feature."""
        inside = _inside(floats(x, output))
        location, log_scale = self._of_logits(output)
        distance = (_logit(inside) - location) * jnp.exp(-log_scale)
        normal = -0.5 * distance**2 - 0.5 * jnp.log(2 * jnp.pi) - log_scale
        return normal - jnp.log(inside) - jnp.log1p(-inside)

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

    def standardise(self, x: Values) -> Features:
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
        self.log_concentration = log_of_each(concentration, num_features)

    @classmethod
    def fitted(cls, x: ArrayLike) -> tuple["Beta", np.ndarray]:
        """Fit mean and variance of each column; see `Likelihood.fitted`."""
        columns = supported_columns(cls, x)
        mean, variance = np.nanmean(columns, axis=0), np.nanvar(columns, axis=0)
        spread = np.maximum(variance, mean * (1 - mean) / (1 + _CONCENTRATIONS[1]))
        concentration = np.maximum(mean * (1 - mean) / spread - 1, _CONCENTRATIONS[0])
        return cls(columns.shape[1], concentration=concentration), np.log(mean / (1 - mean))

    def log_probs(self, x: Values, output: Features) -> Features:
        """Return the log-density of each feature."""
        inside = _inside(floats(x, output))
        concentration = jnp.exp(self.log_concentration)
        fixed = (concentration - 1) * jnp.log1p(-inside) - jnp.log(inside)
        return fixed + _powers_over_beta(_logit(inside), output, concentration)

    def sample(self, key: PRNGKey, output: Features) -> Features:
        """Draw x."""
        parameters = _parameters(output, jnp.exp(self.log_concentration))
        return _inside(jax.random.beta(key, *parameters, output.shape, output.dtype))

    def mean(self, output: Features) -> Features:
        """Return E[x|z]."""
        return jax.nn.sigmoid(output)

    def standardise(self, x: Values) -> Features:
        """Return the logits of x."""
        return without_missing(x, _logit(floats(x)))


def _shares(logit: Features) -> tuple[Features, Features]:
    """Return sigmoid(logit) and sigmoid(-logit), by one exponential."""
    odds = jnp.exp(-jnp.abs(logit))
    more = 1 / (1 + odds)
    less = odds * more
    return jnp.where(logit > 0, more, less), jnp.where(logit > 0, less, more)


def _parameters(logit: Features, concentration: Features) -> tuple[Features, Features]:
    # Zero would make a gradient that is not a number.
    least = jnp.finfo(logit.dtype).tiny ** 0.75
    share, rest = _shares(logit)
    return jnp.maximum(concentration * share, least), jnp.maximum(concentration * rest, least)


@jax.custom_jvp
def _powers_over_beta(logit_x: Features, logit: Features, concentration: Features) -> Features:
    """Return a logit(x) - log B(a, c - a) for a = c sigmoid(logit)."""
    first, second = _parameters(logit, concentration)
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    log_beta = gammaln(low) - log_rise(low, high) - low * jnp.log(high)
    return first * logit_x - log_beta


# By hand: XLA's digamma, which NumPyro's Beta leads to, takes longer than the decoder.
def _by_logit(
    tangent: Features, _: Features, logit_x: Features, logit: Features, concentration: Features
) -> Features:
    (share, rest), (first, second) = _shares(logit), _parameters(logit, concentration)
    slope = logit_x - digamma(first) + digamma(second)
    return tangent * concentration * share * rest * slope


def _by_concentration(
    tangent: Features, _: Features, logit_x: Features, logit: Features, concentration: Features
) -> Features:
    (share, rest), (first, second) = _shares(logit), _parameters(logit, concentration)
    slope = share * (logit_x - digamma(first)) - rest * digamma(second) + digamma(concentration)
    return tangent * slope


_powers_over_beta.defjvps(
    lambda tangent, _, *args: tangent * _parameters(*args[1:])[0], _by_logit, _by_concentration
)


def _inside(x: Features) -> Features:
    """Move what was rounded to 0 or 1 into the support."""
    limits = jnp.finfo(x.dtype)
    return jnp.clip(x, limits.tiny, 1 - limits.epsneg)


def _logit(x: Features) -> Features:
    inside = _inside(x)
    return jnp.log(inside / (1 - inside))
