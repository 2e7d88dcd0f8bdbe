"""log p(x) of every observation that a model of six bits can make, against quadrature."""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from aisle import log_likelihood, schedules
from aisle.models import DiagonalNormal, one_layer, two_layer
from evaluating import chosen, kernel
from measures import log_mean_exp, z_score

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")


# Models of six bits, all 64 observations of which are evaluated, many times each.
BITS = np.array(list(itertools.product([0.0, 1.0], repeat=6)), np.float32)
NUM_COPIES = 16
# Where the density of `Walled` ends.
WALL = 1.9


class Problem(NamedTuple):
    model: object
    proposal: object
    # log p(x) of each of BITS.
    exact: np.ndarray
    kernel: object


class Wide(eqx.Module):
    """An encoder wider than the prior, so that all weights are bounded."""

    weight: Array

    def __call__(self, x):
        return DiagonalNormal(self.weight @ (x - 0.5), jnp.full(self.weight.shape[:1], 1.15))


class Walled(eqx.Module):
    """A model whose density ends at a wall: moves into it are not finite."""

    inner: object

    def log_prior(self, z):
        return jnp.where(z[0] < WALL, self.inner.log_prior(z), -jnp.inf)

    def log_likelihood(self, x, z):
        return self.inner.log_likelihood(x, z)

    def sample_prior(self, key):
        """Draw roughly, as only the pilot does."""
        return jnp.minimum(self.inner.sample_prior(key), WALL - 0.1)

    def sample_observation(self, key, z):
        return self.inner.sample_observation(key, z)


def networks(build, num_latents, scale, seed):
    """Return a model and its proposal, with normal weights."""

    def make(key):
        return build(key, np.full(6, 0.4), num_latents=num_latents, num_hidden=3)

    generator = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(make, jax.random.key(0))
    return jax.tree.map(lambda a: jnp.float32(scale * generator.normal(size=a.shape)), shapes)


def network(mlp, inputs):
    """Apply a network in double precision."""
    for layer in mlp.layers:
        outputs = inputs @ np.float64(layer.weight).T + np.float64(layer.bias)
        inputs = np.tanh(outputs)
    return outputs


def normal_grid(dimensions, number):
    """Points with log-weights that integrate against the standard normal density."""
    axis = np.linspace(-6, 6, number)
    return with_density([(axis, np.full(number, axis[1] - axis[0]))] * dimensions)


def with_density(rules):
    """Combine a rule of quadrature for each dimension, and the standard normal density."""
    nodes, weights = zip(*rules, strict=True)
    points, log_weights = (
        np.stack(np.meshgrid(*each), -1).reshape(-1, len(rules))
        for each in (nodes, np.log(weights))
    )
    return points, np.sum(log_weights - (points**2 + np.log(2 * np.pi)) / 2, axis=1)


def integrate(logits, log_weights):
    """Return log p(x) of each of BITS, from the logits at the points of a grid."""
    values = np.float64(BITS) @ logits.T - np.logaddexp(0, logits).sum(1) + log_weights
    return log_mean_exp(values, axis=1) + np.log(values.shape[1])


def one_latent(number=121):
    model, _ = networks(one_layer, num_latents=1, scale=2.0, seed=5)
    points, log_weights = normal_grid(1, number)
    exact = integrate(network(model.decoder, points), log_weights)
    return Problem(model, None, exact, kernel(2, precondition=0.0, schedule=schedules.linear))


def two_latents(number=121):
    inner, _ = networks(one_layer, num_latents=2, scale=1.5, seed=2)
    nodes, weights = np.polynomial.legendre.leggauss(number)
    half = (WALL + 6) / 2
    axis = np.linspace(-6, 6, number)
    rules = (half * (nodes + 1) - 6, half * weights), (axis, np.full(number, axis[1] - axis[0]))
    points, log_weights = with_density(rules)
    exact = integrate(network(inner.decoder, points), log_weights)
    encoder = Wide(jnp.linspace(-0.3, 0.5, 12).reshape(2, 6))
    return Problem(Walled(inner), encoder, exact, kernel(2, refresh=0.5))


def two_layers(number=45):
    """(h1, h2) of 2 + 1 dimensions, integrated over the noises that they are made of."""
    model, proposal = networks(two_layer, num_latents=1, scale=0.7, seed=1)
    # Wider than the model, as the weights should be bounded.
    proposal = eqx.tree_at(
        lambda q: [layer.network.layers[-1].bias for layer in (q.lower, q.upper)],
        jax.tree.map(lambda a: a / 5, proposal),
        [jnp.array([0.0, 0.0, 0.9, 0.9]), jnp.array([0.0, 0.3])],
    )
    points, log_weights = normal_grid(3, number)
    loc, log_scale = np.split(network(model.upper.network, points[:, :1]), 2, axis=1)
    first = loc + np.exp(log_scale) * points[:, 1:]
    exact = integrate(network(model.decoder, first), log_weights)
    return Problem(model, proposal, exact, kernel(2, 1.0, 0.5, schedule=schedules.geometric))


PROBLEMS = {"one latent": one_latent, "two latents": two_latents, "two layers": two_layers}


@pytest.fixture(scope="module", params=PROBLEMS)
def enumerated(request, quick_compilation, one_device):
    """A problem, and log p(x) of copies of all its observations by short runs."""
    problem = PROBLEMS[request.param]()
    result = log_likelihood(
        problem.model,
        problem.proposal,
        np.tile(BITS, (NUM_COPIES, 1)),
        **chosen(num_chains=4, num_temperatures=4, kernel=problem.kernel),
    )
    return request.param, problem.exact, result


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("one latent", 91),
        ("two latents", 91),
        pytest.param("two layers", 37, marks=pytest.mark.slow),
    ],
)
def test_the_quadrature_has_converged(name, number):
    coarse, fine = PROBLEMS[name](number), PROBLEMS[name]()
    np.testing.assert_allclose(coarse.exact, fine.exact, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_weights_of_enumerated_observations_are_unbiased(enumerated):
    name, exact, result = enumerated
    errors = result.log_p - np.tile(exact, NUM_COPIES)
    assert abs(z_score(np.exp(errors), 1)) < 4
    # Of each observation, too: log p(x) differs by nats between them.
    assert np.ptp(exact) > 3
    each = np.log(np.exp(errors).reshape(NUM_COPIES, -1).mean(0))
    assert np.abs(each).max() < 0.8
    # And though there are moves into the wall.
    assert (result.num_nonfinite.sum() > 100) == (name == "two latents")


@pytest.mark.slow
def test_log_weights_of_enumerated_observations_are_too_low(enumerated):
    _, exact, result = enumerated
    errors = result.log_p - np.tile(exact, NUM_COPIES)
    assert z_score(errors, 0) < -4
    # By what the chains' weights vary by, to second order.
    sizes = np.asarray(result.effective_sample_size, float)
    spread = (1 / sizes - 1 / 4) / 2
    assert 0.5 < -errors.mean() / spread.mean() < 3
