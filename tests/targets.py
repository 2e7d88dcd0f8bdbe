"""Targets with known normalisers, and the statistics that tests measure errors in."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

from aisle.models import DiagonalNormal, LinearGaussian


class Target(NamedTuple):
    """A proposal, an unnormalised log-density, its log-normaliser and an exact sampler."""

    q: DiagonalNormal
    log_joint: Callable
    log_normaliser: float
    sample: Callable


@functools.cache
def narrow_normal():
    """N(0, 1) -> N(1.5, 0.3^2): the case in which a cached energy at the old temperature shows."""
    q = DiagonalNormal(jnp.zeros(1), jnp.ones(1))
    return Target(
        q,
        lambda z: jnp.sum(norm.logpdf(z, 1.5, 0.3)),
        0.0,
        lambda key: 1.5 + 0.3 * jax.random.normal(key, (1,)),
    )


@functools.cache
def skewed(shape=1.5):
    """The logarithm of a gamma variable: skewed, so that a sign error cannot hide."""
    q = DiagonalNormal(jnp.zeros(1), jnp.ones(1))
    return Target(
        q,
        lambda z: jnp.sum(shape * z - jnp.exp(z)),
        float(gammaln(shape)),
        lambda key: jnp.log(jax.random.gamma(key, shape, (1,))),
    )


class LinearGaussianProblem(NamedTuple):
    """One observation of a linear-Gaussian model, with the exact answers."""

    model: LinearGaussian
    x: jax.Array
    log_joint: Callable
    posterior: dist.MultivariateNormal
    mean_field: DiagonalNormal  # narrower than the posterior, as an encoder is
    wide: DiagonalNormal  # wider than the posterior, so that weights have a variance
    log_marginal: float


@functools.cache
def linear_gaussian(observed=4, latent=3):
    key_weight, key_x = jax.random.split(jax.random.key(7))
    weight = jax.random.normal(key_weight, (observed, latent))
    model = LinearGaussian(weight, jnp.linspace(-1, 1, observed), jnp.log(0.7))
    x = 1.5 * jax.random.normal(key_x, (observed,))
    exact = model.posterior(x)
    wide = DiagonalNormal(exact.loc + 0.3, 1.4 * jnp.sqrt(jnp.diagonal(exact.covariance_matrix)))
    return LinearGaussianProblem(
        model,
        x,
        lambda z: model.log_prior(z) + model.log_likelihood(x, z),
        exact,
        model.mean_field_posterior(x),
        wide,
        float(model.log_marginal(x)),
    )


def z_score(samples, truth):
    """Return how many standard errors the mean of `samples` lies above `truth`."""
    samples = np.asarray(samples, np.float64)
    return (samples.mean() - truth) / (samples.std(ddof=1) / np.sqrt(len(samples)))
