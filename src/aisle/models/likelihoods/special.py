"""Functions of the densities, whose derivatives or rounding errors the usual forms get wrong."""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from aisle.models.likelihoods.base import Features

# From here on Stirling's series is exact to double precision.
_LARGE = 16.0


@jax.custom_jvp
def softplus(x: Features) -> Features:
    """Return log(1 + exp(x)), exact for very negative x."""
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


# In a closed form, so that a gradient is spared the logarithm; JAX's own needs the value.
softplus.defjvps(lambda dx, _, x: dx * jax.nn.sigmoid(x))


def log_rise(x: Features, r: Features) -> Features:
    """Return log Gamma(r + x) - log Gamma(r) - x log r, for x >= 0 and r > 0.

    For large r the gamma functions cancel: in single precision nothing would be left of the answer
    at r = 1e6. There their Stirling series are subtracted term by term.
    """
    is_large = r > _LARGE
    large, small = jnp.where(is_large, r, _LARGE), jnp.where(is_large, _LARGE, r)
    series = (large + x - 0.5) * jnp.log1p(x / large) - x + _tail(large + x) - _tail(large)
    direct = gammaln(small + x) - gammaln(small) - x * jnp.log(small)
    return jnp.where(is_large, series, direct)


def _tail(r: Features) -> Features:
    square = 1 / (r * r)
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / r


def digamma(x: Features) -> Features:
    """Return the derivative of log Gamma at x > 0, to ten digits.

    Six steps of the recurrence, then a series. It is used where XLA's would be too slow.
    """
    # The six terms 1 / (x + i) over one denominator; they do not matter where it would overflow.
    small = jnp.minimum(x, 1e6)
    p = small * (small + 5)
    steps = (2 * small + 5) * ((3 * p + 20) * p + 24) / (p * (p + 4) * (p + 6))
    inverse = 1 / (x + 6)
    square = inverse * inverse
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return jnp.log(x + 6) - 0.5 * inverse - series - steps
