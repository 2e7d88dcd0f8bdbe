"""Real values: normal, and Student's t for heavy tails.

Networks make and see values in units of the columns; log-densities are in units of the data.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.special
from numpy.typing import ArrayLike

from aisle.errors import check
from aisle.models.likelihoods.base import (
    Features,
    Likelihood,
    Outputs,
    Units,
    Values,
    floats,
    log_of_each,
    supported_columns,
    without_missing,
)
from aisle.models.likelihoods.special import log_rise
from aisle.types import PRNGKey


class Real(Likelihood):
    """What families of real values have in common."""

    units: eqx.AbstractVar[Units | None]

    @property
    def support(self) -> str:
        """Which values can be observed, in words."""
        return "finite numbers"

    def is_supported(self, values: np.ndarray) -> np.ndarray:
        """Say which values can be observed at all."""
        return np.isfinite(values)

    def standardise(self, x: Values) -> Features:
        """Return x in units of the columns."""
        values = floats(x)
        return without_missing(x, values if self.units is None else self.units.inwards(values))

    def _outwards(self, values: Features) -> Features:
        return values if self.units is None else self.units.outwards(values)


class Gaussian(Real):
    """Independent normals around the decoder's output.

    Their scales are learned, one for each feature, or given by the decoder: with `scale="of z"` the
    second half of its output has their logarithms.

    Example:
        >>> x = np.array([[1.0, 400.0], [3.0, 200.0]])
        >>> likelihood, output = aisle.Gaussian.fitted(x)
        >>> likelihood.mean(jnp.asarray(output)).tolist()  # in units of the data
        [2.0, 300.0]
        >>> likelihood.log_scale.tolist()  # relative to the deviations of the columns
        [0.0, 0.0]
    """

    log_scale: Features | None
    units: Units | None
    num_features: int = eqx.field(static=True)

    def __init__(
        self,
        num_features: int,
        *,
        scale: Literal["learned", "of z"] = "learned",
        units: Units | None = None,
    ):
        """Start from unit scales, in units of the columns."""
        check(scale in ("learned", "of z"), "scale", scale, "'learned' or 'of z'")
        self.num_features, self.units = num_features, units
        self.log_scale = jnp.zeros(num_features) if scale == "learned" else None

    @classmethod
    def fitted(
        cls, x: ArrayLike, *, scale: Literal["learned", "of z"] = "learned"
    ) -> tuple["Gaussian", np.ndarray]:
        """Fit mean and standard deviation of each column; see `Likelihood.fitted`."""
        columns = supported_columns(cls, x)
        likelihood = cls(columns.shape[1], scale=scale, units=Units.fitted(columns))
        return likelihood, np.zeros(likelihood.num_outputs)

    @property
    def num_outputs(self) -> int:
        """A location for each feature, and a log-scale if it is of z."""
        return self.num_features if self.log_scale is not None else 2 * self.num_features

    def log_probs(self, x: Values, output: Outputs) -> Features:
        """Return the log-density of each feature."""
        if self.units is None:
            return jnp.asarray(self._distribution(output).log_prob(x))
        inside = self.units.inwards(floats(x, output))
        return jnp.asarray(self._distribution(output).log_prob(inside)) - self.units.log_scale

    def sample(self, key: PRNGKey, output: Outputs) -> Features:
        """Draw x."""
        return self._outwards(jnp.asarray(self._distribution(output).sample(key)))

    def mean(self, output: Outputs) -> Features:
        """Return E[x|z]."""
        return self._outwards(output[: self.num_features])

    @staticmethod
    def initial_output(mean: np.ndarray) -> np.ndarray:
        """Return the training mean, which is the output without units."""
        return mean

    def _distribution(self, output: Outputs) -> dist.Distribution:
        if self.log_scale is not None:
            return dist.Normal(output, jnp.exp(self.log_scale))
        location, log_scale = jnp.split(output, 2)
        return dist.Normal(location, jnp.exp(log_scale))


class StudentT(Real):
    """Student's t around the decoder's output: real values with outliers.

    Scale and degrees of freedom are learned, one of each for each feature.

    Example:
        >>> x = np.random.default_rng(0).standard_t(3.0, (5000, 1))
        >>> likelihood, output = aisle.StudentT.fitted(x)
        >>> jnp.exp(likelihood.log_degrees).round().tolist()
        [3.0]
    """

    log_scale: Features
    log_degrees: Features
    units: Units | None
    num_features: int = eqx.field(static=True)

    def __init__(
        self, num_features: int, *, degrees: ArrayLike | float = 4.0, units: Units | None = None
    ):
        """Start from unit scales, in units of the columns, and some degrees of freedom."""
        self.num_features, self.units = num_features, units
        self.log_scale = jnp.zeros(num_features)
        self.log_degrees = log_of_each(degrees, num_features)

    @classmethod
    def fitted(cls, x: ArrayLike) -> tuple["StudentT", np.ndarray]:
        """Fit each column by its quantiles, which outliers do not move; see `Likelihood.fitted`."""
        columns = supported_columns(cls, x)
        location, scale, degrees = _fit_quantiles(columns)
        units = Units.of(location, scale)
        return cls(columns.shape[1], degrees=degrees, units=units), np.zeros(columns.shape[1])

    @property
    def num_outputs(self) -> int:
        """A location for each feature."""
        return self.num_features

    def log_probs(self, x: Values, output: Outputs) -> Features:
        """Return the log-density of each feature.

        NumPyro's has the same gradient, but subtracts gamma functions that cancel for many degrees.
        """
        x = floats(x, output)
        inside = x if self.units is None else self.units.inwards(x)
        degrees, half = jnp.exp(self.log_degrees), 0.5 * jnp.exp(self.log_degrees)
        distance = (inside - output) * jnp.exp(-self.log_scale)
        tail = (half + 0.5) * jnp.log1p(distance**2 / degrees)
        value = log_rise(jnp.full_like(half, 0.5), half) - 0.5 * jnp.log(2 * jnp.pi) - tail
        log_scale = self.log_scale if self.units is None else self.log_scale + self.units.log_scale
        return value - log_scale

    def sample(self, key: PRNGKey, output: Outputs) -> Features:
        """Draw x."""
        noise = jax.random.t(key, jnp.exp(self.log_degrees), output.shape, output.dtype)
        return self._outwards(output + jnp.exp(self.log_scale) * noise)

    def mean(self, output: Outputs) -> Features:
        """Return the centre, which is E[x|z] for more than one degree of freedom."""
        return self._outwards(output)


# Degrees of freedom that a fit chooses from: fewer or more are left to training.
_DEGREES = np.geomspace(1, 100, 200)


def _fit_quantiles(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return location, scale and degrees of freedom with the columns' median and two ranges."""
    points = np.array([0.025, 0.25, 0.5, 0.75, 0.975])
    low, first, median, third, high = np.nanquantile(columns, points, axis=0)
    quartile, far = (scipy.special.stdtrit(_DEGREES, p) for p in (0.75, 0.975))
    middle = third - first
    # Where half of the values are one, the deviation has to do.
    is_flat = middle <= 0
    ratio = (high - low) / np.where(is_flat, 1, middle)
    # The ratio of the ranges falls as degrees grow, and np.interp wants what rises.
    degrees = np.interp(ratio, (far / quartile)[::-1], _DEGREES[::-1])
    scale = middle / (2 * scipy.special.stdtrit(degrees, 0.75))
    return median, np.where(is_flat, np.nanstd(columns, axis=0), scale), degrees
