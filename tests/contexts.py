"""A linear-Gaussian model with conditions and missing entries, whose answers are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from aisle.context import Context
from aisle.models import DiagonalNormal, LinearGaussian

WEIGHT = np.array([[1.0, 0.5], [-0.5, 1.0], [1.5, -0.3], [0.2, 0.8]])
BIAS, SIGMA = np.array([0.2, 0.0, -1.0, 0.5]), 0.6
# So large that a condition of another example would show.
SHIFT = np.array([[2.0], [-4.0], [1.0], [0.0]])
MODEL = LinearGaussian(*(jnp.asarray(a, jnp.float32) for a in (WEIGHT, BIAS, np.log(SIGMA), SHIFT)))


class Encoder(eqx.Module):
    """The best diagonal normal for each example in its context, wider or narrower."""

    model: LinearGaussian
    width: float
    is_bound: bool = eqx.field(static=True, default=False)

    def given(self, context):
        return Encoder(self.model.given(context), self.width, True)

    def __call__(self, x):
        assert self.is_bound, "the encoder was called without its context"
        q = self.model.mean_field_posterior(x)
        return DiagonalNormal(q.loc + 0.3 * q.scale, self.width * q.scale)


def draw_contexts(number, seed=0):
    """Return masks of all kinds, empty ones too, and conditions that differ."""
    random = np.random.default_rng(seed)
    masks = random.random((number, 4)) < random.choice([0.2, 0.7, 1.0], (number, 1))
    return Context(masks, random.normal(size=(number, 1)).astype(np.float32))


def draw_observations(contexts, seed=1):
    random, number = np.random.default_rng(seed), len(contexts.condition)
    noise = SIGMA * random.normal(size=(number, 4))
    x = random.normal(size=(number, 2)) @ WEIGHT.T + BIAS + contexts.condition @ SHIFT.T + noise
    return np.where(contexts.is_observed, x, np.nan).astype(np.float32)


def law(context):
    """Return the exact law of what is observed of one example."""
    mask = np.asarray(context.is_observed)
    mean = (BIAS + SHIFT @ np.asarray(context.condition, float))[mask]
    covariance = WEIGHT[mask] @ WEIGHT[mask].T + SIGMA**2 * np.eye(mask.sum())
    return scipy.stats.multivariate_normal(mean, covariance) if mask.any() else None


def row(contexts, i):
    return jax.tree.map(lambda a: np.asarray(a)[i], contexts)


def exact_log_p(xs, contexts):
    found = []
    for i, x in enumerate(np.asarray(xs, float)):
        own = law(row(contexts, i))
        found.append(0 if own is None else own.logpdf(x[np.asarray(contexts.is_observed[i])]))
    return np.array(found)
