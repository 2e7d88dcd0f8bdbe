"""The target of figure 1, and the distance to it that draws are judged by.

The distance is KL(q || p) over 32 x 32 bins that have equal probability under p, in nats. Merging
points into bins can only lower a KL divergence, so it bounds that of the densities from below. Its
estimate loses its first-order bias by a jackknife over 50 batches of draws, which gives the
standard error too.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, ndtri

from aisle.statistics import Mean, summarise
from aisle.types import PRNGKey, Scalar
from paper.core.chains import DiagonalNormal

# Bins along each axis, and batches of the jackknife.
BINS_PER_AXIS = 32
NUM_BATCHES = 50


class CorrelatedNormal(eqx.Module):
    """Two variables of mean 0, variance 1 and the given correlation."""

    correlation: float = eqx.field(static=True)

    def log_prob(self, z: Float[Array, " 2"]) -> Scalar:
        """Return the normalised log-density."""
        rest = 1 - self.correlation**2
        square = (z[0] ** 2 - 2 * self.correlation * z[0] * z[1] + z[1] ** 2) / rest
        return -square / 2 - jnp.log(2 * jnp.pi) - jnp.log(rest) / 2

    def sample(self, key: PRNGKey) -> Float[Array, " 2"]:
        """Draw one point exactly."""
        first, second = jax.random.normal(key, (2,))
        other = self.correlation * first + (1 - self.correlation**2) ** 0.5 * second
        return jnp.stack([first, other])

    def mean_field(self) -> DiagonalNormal:
        """Return the independent normal q that minimises KL(q || p): p's precision's diagonal."""
        return DiagonalNormal(jnp.zeros(2), jnp.full(2, (1 - self.correlation**2) ** 0.5))

    def whiten(self, draws: np.ndarray) -> np.ndarray:
        """Return coordinates along the long and the short axis in which p is N(0, I)."""
        sums, differences = draws[:, 0] + draws[:, 1], draws[:, 0] - draws[:, 1]
        return np.stack([sums, differences], axis=1) / np.sqrt(2 * self.axes)

    @property
    def axes(self) -> np.ndarray:
        """Variances along the long and the short axis."""
        return 1 + self.correlation * np.array([1.0, -1.0])


def divergence(p: CorrelatedNormal, draws: np.ndarray) -> Mean:
    """Estimate KL(q || p) over the bins, from draws of q."""
    number = BINS_PER_AXIS
    places = np.minimum((ndtr(p.whiten(draws)) * number).astype(int), number - 1)
    bins = places[:, 0] * number + places[:, 1]
    counts = np.stack(
        [np.bincount(batch, minlength=number**2) for batch in np.array_split(bins, NUM_BATCHES)]
    )
    whole = counts.sum(axis=0)
    left_out = np.array([_from_equal(whole - batch) for batch in counts])
    return summarise(NUM_BATCHES * _from_equal(whole) - (NUM_BATCHES - 1) * left_out)


def proposal_divergence(p: CorrelatedNormal) -> float:
    """Return the exact KL(q || p) over the bins, for the proposal q."""
    edges = ndtri(np.linspace(0, 1, BINS_PER_AXIS + 1))
    # q is isotropic, so in whitened coordinates it is independent too.
    deviations = np.sqrt((1 - p.correlation**2) / p.axes)
    long, short = (np.diff(ndtr(edges / deviation)) for deviation in deviations)
    return _from_equal(np.outer(long, short))


def _from_equal(counts: np.ndarray) -> float:
    """Return KL(shares || equal shares)."""
    shares = counts[counts > 0] / counts.sum()
    return float(np.log(counts.size) + np.sum(shares * np.log(shares)))
