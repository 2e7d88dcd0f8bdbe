import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from aisle.evaluation import problems
from aisle.models import DiagonalNormal, PriorDistribution, PriorProposal
from aisle.types import Distribution
from measures import z_score

LOC, SCALE = np.array([-2.0, 0.0, 3.0], np.float32), np.array([0.1, 1.0, 4.0], np.float32)


@pytest.fixture
def normal():
    return DiagonalNormal(jnp.asarray(LOC), jnp.asarray(SCALE))


def test_diagonal_normal_equals_scipy(normal):
    for z in (LOC, LOC + 3 * SCALE, np.array([0.5, -1.0, 20.0], np.float32)):
        wanted = scipy.stats.norm.logpdf(z, LOC, SCALE).sum()
        np.testing.assert_allclose(normal.log_prob(jnp.asarray(z)), wanted, rtol=1e-6)


def test_diagonal_normal_draws_have_its_moments(normal):
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.jit(jax.vmap(normal.sample))(keys), np.float64)
    standard = (draws - LOC) / SCALE
    assert isinstance(normal, Distribution)
    for i in range(3):
        for moment, truth in ((1, 0), (2, 1), (3, 0), (4, 3)):
            assert abs(z_score(standard[:, i] ** moment, truth)) < 4
        assert abs(z_score(standard[:, i] * standard[:, i - 1], 0)) < 4


def test_diagonal_normal_draws_are_reparameterised(normal):
    """z = loc + scale n: its derivatives are 1 in loc and n = (z - loc) / scale in scale."""
    key = jax.random.key(3)
    draw, pull_back = jax.vjp(lambda q: q.sample(key), normal)
    (gradient,) = pull_back(jnp.ones(3))
    np.testing.assert_array_equal(gradient.loc, 1)
    np.testing.assert_allclose(gradient.scale, (draw - LOC) / SCALE, rtol=1e-4)


def test_the_prior_is_the_proposal_whatever_the_observation():
    model, x, _ = problems.linear_gaussian()
    proposal, key = PriorProposal(model), jax.random.key(0)
    for observation in (x, -x):
        q = proposal(observation)
        assert isinstance(q, PriorDistribution)
        z = q.sample(key)
        np.testing.assert_array_equal(z, model.sample_prior(key))
        np.testing.assert_array_equal(q.log_prob(z), model.log_prior(z))
