"""Targets whose normalisers, and more, are known exactly: what the sampler is checked against."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from aisle.models import DiagonalNormal, LinearGaussian
from aisle.types import LogDensity, PRNGKey


class Problem(NamedTuple):
    """An unnormalised log-density with its log-normaliser, an exact sampler and two proposals.

    A standard error can be believed only if the tails are light: those of w, in a forward run,
    if the proposal is wider than the target; those of 1/w, in a reverse run, if it is narrower.
    """

    wide: DiagonalNormal
    narrow: DiagonalNormal
    log_joint: LogDensity
    log_normaliser: float
    sample: Callable[[PRNGKey], Float[Array, " latent"]]


@functools.cache
def narrow_normal() -> Problem:
    """N(0, 1) -> N(1.5, 0.3^2): an energy kept from the temperature before shows as a bias."""
    target = dist.Normal(jnp.array([1.5]), 0.3).to_event(1)
    q = DiagonalNormal(jnp.zeros(1), jnp.ones(1))
    return Problem(q, q, lambda z: target.log_prob(z), 0.0, lambda key: target.sample(key))


@functools.cache
def lopsided() -> Problem:
    """N(0, 1) -> half of itself and half N(1.5, 0.4^2), scaled: skewed, so no sign error hides.

    The ratio of target and proposal is bounded from both sides, so one proposal serves both ways.
    """
    log_normaliser = 0.7
    loc, scale = jnp.array([0.0, 1.5]), jnp.array([1.0, 0.4])
    target = dist.MixtureSameFamily(dist.Categorical(jnp.full(2, 0.5)), dist.Normal(loc, scale))
    q = DiagonalNormal(jnp.zeros(1), jnp.ones(1))
    return Problem(
        q,
        q,
        lambda z: log_normaliser + target.log_prob(z[0]),
        log_normaliser,
        lambda key: target.sample(key)[None],
    )


class LinearGaussianProblem(NamedTuple):
    """The posterior of one observation of a linear-Gaussian model, as a problem."""

    model: LinearGaussian
    x: Float[Array, " observed"]
    posterior: Problem


@functools.cache
def linear_gaussian() -> LinearGaussianProblem:
    """Return a model of 4 observed and 3 latent dimensions, the latents correlated given x.

    The narrow proposal is the best diagonal normal q, as an ideal encoder's would be.
    """
    key_weight, key_x = jax.random.split(jax.random.key(7))
    weight = jax.random.normal(key_weight, (4, 3))
    model = LinearGaussian(weight, jnp.linspace(-1, 1, 4), jnp.log(0.7))
    x = 1.5 * jax.random.normal(key_x, (4,))
    exact = model.posterior(x)
    deviation = jnp.sqrt(jnp.diagonal(jnp.asarray(exact.covariance_matrix)))
    problem = Problem(
        DiagonalNormal(jnp.asarray(exact.loc) + 0.2, 1.2 * deviation),
        model.mean_field_posterior(x),
        lambda z: model.log_prior(z) + model.log_likelihood(x, z),
        float(model.log_marginal(x)),
        lambda key: jnp.asarray(exact.sample(key)),
    )
    return LinearGaussianProblem(model, x, problem)
