"""A model whose gradients are known exactly, measured as any other is."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from aisle.models import LinearGaussian
from paper.core.chains import DiagonalNormal, Kernel, betas_of
from paper.gradients import study
from paper.gradients.averages import Examples, average, make_program
from paper.gradients.bench import Settings
from paper.gradients.estimators import WEIGHTINGS

NUM_EXAMPLES = 6

# Enough for an exact answer on a linear-Gaussian model, in seconds.
SMALL = Settings(
    num_examples=NUM_EXAMPLES,
    repeats=4,
    num_samples=2,
    temperatures=(2,),
    num_leapfrog=2,
    reference_temperatures=20,
    reference_parts=8,
    reference_chains=4,
    reference_stops=4,
    reference_moves=3,
)


class Exact(eqx.Module):
    """The proposal that is the posterior."""

    model: LinearGaussian

    def __call__(self, x):
        return ExactDistribution(self.model, x)


class ExactDistribution(eqx.Module):
    model: LinearGaussian
    x: jax.Array

    def sample(self, key):
        return self.model.posterior(self.x).sample(key)

    def log_prob(self, z):
        return self.model.posterior(self.x).log_prob(z)


class ExactDraws(ExactDistribution):
    """Draws of the posterior with another density, so that the path is one from elsewhere."""

    def log_prob(self, z):
        return Shifted(self.model)(self.x).log_prob(z)


class Shifted(eqx.Module):
    """The mean-field posterior moved and stretched: a poor encoder, and one known exactly."""

    model: LinearGaussian
    shift: float = 0.3
    stretch: float = 1.3

    def __call__(self, x):
        q = self.model.mean_field_posterior(x)
        return DiagonalNormal(q.loc + self.shift, self.stretch * q.scale)


# The latents are correlated given x.
MODEL = LinearGaussian(
    jax.random.normal(jax.random.split(jax.random.key(7))[0], (4, 3)),
    jnp.linspace(-1, 1, 4),
    jnp.log(0.7),
)


@functools.cache
def examples():
    """Observations of the model, with numbers that are not their places."""
    keys = jax.random.split(jax.random.key(3), NUM_EXAMPLES)
    xs = jax.vmap(lambda k: MODEL.sample_observation(k, 1.5 * MODEL.sample_prior(k)))(keys)
    return Examples(np.asarray(xs), 10 * np.arange(NUM_EXAMPLES) + 4)


def gradient_of(objective):
    """Return the flat gradient of the mean of `objective(model, x)` over the examples."""
    mean = jax.grad(lambda m: jnp.mean(jax.vmap(functools.partial(objective, m))(examples().xs)))
    return np.asarray(ravel_pytree(mean(MODEL))[0], np.float64)


@functools.cache
def exact_gradient():
    return gradient_of(lambda model, x: model.log_marginal(x))


def expected_log_joint(model, x, q):
    """E_q log p(x, z) for a diagonal normal q, which is known as log p is quadratic in z."""
    variance = q.scale**2
    noise = jnp.exp(2 * model.log_sigma)
    spread = jnp.sum(variance * jnp.sum(model.weight**2, axis=0)) / noise + jnp.sum(variance)
    return model.log_prior(q.loc) + model.log_likelihood(x, q.loc) - spread / 2


@functools.cache
def gradient_under_q():
    """The mean of the gradient of log p(x, z) where z has the poor encoder's law."""
    proposal = Shifted(MODEL)
    return gradient_of(lambda model, x: expected_log_joint(model, x, proposal(x)))


def kernel(num_temperatures=1, num_samples=5, schedule="linear", size=0.5, **options):
    betas = betas_of(schedule, num_temperatures)
    sizes = jnp.full(num_temperatures, size)
    return Kernel(betas, sizes, num_samples, **{"num_leapfrog": 2} | options)


def repeated(kind, kernel, number, weighting="equal"):
    """Return the gradients of independent repeats, under one weighting."""
    program, place = program_of(kind), list(WEIGHTINGS).index(weighting)
    keys = jax.random.split(jax.random.key(8), number)
    return np.stack([average(program, kernel, k, examples()).gradients[place] for k in keys])


@functools.cache
def program_of(kind):
    return make_program(MODEL, kind(MODEL), study._weigh)


def exactly(gradient):
    """A reference without noise: three parts that agree."""
    return np.tile(gradient, (3, 1))


@functools.cache
def posterior_log_joints():
    """The exact posterior mean of log p(x, z), for each example."""

    def one(x):
        # log p(x, z) is its highest value less half a chi-squared of as many degrees as latents.
        best = MODEL.posterior(x).loc
        return MODEL.log_prior(best) + MODEL.log_likelihood(x, best) - len(best) / 2

    return np.asarray(jax.vmap(one)(jnp.asarray(examples().xs)))
