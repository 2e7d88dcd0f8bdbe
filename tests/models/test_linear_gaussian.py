import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.evaluation import problems
from aisle.models import PriorProposal
from aisle.types import Distribution, Model, Proposal
from measures import z_score


@pytest.fixture(scope="module")
def problem():
    return problems.linear_gaussian()


@pytest.mark.slow
def test_bayes_rule_holds_at_any_latent(problem):
    model, x, _ = problem
    for z in (jnp.zeros(3), jnp.array([1.0, -2.0, 0.5])):
        joint = model.log_prior(z) + model.log_likelihood(x, z)
        evidence = joint - model.posterior(x).log_prob(z)
        np.testing.assert_allclose(evidence, model.log_marginal(x), rtol=1e-5)


def test_simulated_observations_have_the_marginal_covariance(problem):
    model = problem.model

    def simulate(key):
        key_z, key_x = jax.random.split(key)
        return model.sample_observation(key_x, model.sample_prior(key_z))

    xs = jax.jit(jax.vmap(simulate))(jax.random.split(jax.random.key(0), 50_000)) - model.bias[None]
    covariance = model.weight @ model.weight.T + jnp.exp(2 * model.log_sigma) * jnp.eye(4)
    for i in range(4):
        for j in range(i + 1):
            assert abs(z_score(xs[:, i] * xs[:, j], float(covariance[i, j]))) < 4


def test_mean_field_posterior_minimises_the_divergence(problem):
    model, x, _ = problem
    q, exact = model.mean_field_posterior(x), model.posterior(x)

    def divergence(loc, log_scale):
        precision = exact.precision_matrix
        shift = loc - exact.loc
        trace = jnp.sum(jnp.diagonal(precision) * jnp.exp(2 * log_scale))
        return (trace + shift @ precision @ shift) / 2 - jnp.sum(log_scale)

    for gradient in jax.grad(divergence, argnums=(0, 1))(q.loc, jnp.log(q.scale)):
        np.testing.assert_allclose(gradient, 0, atol=1e-5)


def test_protocols(problem):
    model, x, _ = problem
    proposal = PriorProposal(model)
    assert isinstance(model, Model)
    assert isinstance(proposal, Proposal)
    assert isinstance(proposal(x), Distribution)
    z = proposal(x).sample(jax.random.key(0))
    assert proposal(x).log_prob(z) == model.log_prior(z)
