"""Imputations against the conditional law of what is missing, which is known exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.context import Context
from aisle.errors import InputError
from contexts import BIAS, MODEL, SHIFT, SIGMA, WEIGHT, Encoder
from measures import z_score

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")

X = np.array(
    [[1.0, np.nan, 0.5, np.nan], [np.nan, np.nan, np.nan, np.nan], [0.3, -1.0, 2.0, 0.1]],
    np.float32,
)
CONDITIONS = np.float32([[0.7], [-1.0], [0.2]])
CONTEXT = Context(~np.isnan(X), CONDITIONS)
NUM_DRAWS = 4000


def conditional(i):
    """Return mean and covariance of what is missing of an example, given the rest."""
    mask = CONTEXT.is_observed[i]
    mean = BIAS + SHIFT @ CONDITIONS[i].astype(float)
    covariance = WEIGHT @ WEIGHT.T + SIGMA**2 * np.eye(4)
    gain = covariance[np.ix_(~mask, mask)] @ np.linalg.inv(covariance[np.ix_(mask, mask)])
    centre = mean[~mask] + gain @ (X[i, mask].astype(float) - mean[mask])
    return centre, covariance[np.ix_(~mask, ~mask)] - gain @ covariance[np.ix_(mask, ~mask)]


@pytest.fixture(scope="module")
def draws(quick_compilation, one_device):
    encoder = Encoder(MODEL, 1.3)
    return np.asarray(aisle.impute(MODEL, encoder, X, CONTEXT, num_draws=NUM_DRAWS), float)


def test_observed_values_are_returned_as_they_are(draws):
    assert draws.shape == (3, NUM_DRAWS, 4)
    wanted = np.broadcast_to(X[:, None], draws.shape)
    is_observed = ~np.isnan(wanted)
    np.testing.assert_array_equal(draws[is_observed], wanted[is_observed])
    assert np.all(np.isfinite(draws))


@pytest.mark.parametrize("i", [0, 1])
def test_draws_have_the_conditional_mean_and_covariance(draws, i):
    mean, covariance = conditional(i)
    found = draws[i][:, ~CONTEXT.is_observed[i]] - mean
    for j in range(len(mean)):
        assert abs(z_score(found[:, j], 0)) < 4
        for k in range(j + 1):
            assert abs(z_score(found[:, j] * found[:, k], covariance[j, k])) < 4


@pytest.mark.slow
def test_means_are_the_conditional_means():
    encoder = Encoder(MODEL, 1.3)
    options = {"num_draws": NUM_DRAWS, "average": True}
    found = np.asarray(aisle.impute(MODEL, encoder, X, CONTEXT, **options))
    assert found.shape == X.shape
    for i in (0, 1):
        mask = CONTEXT.is_observed[i]
        mean, covariance = conditional(i)
        errors = (found[i, ~mask] - mean) / np.sqrt(np.diagonal(covariance) / NUM_DRAWS)
        assert np.all(np.abs(errors) < 4)
    np.testing.assert_array_equal(found[2], X[2])


def linear_network():
    """Return a model of `mlp_model` without hidden layers: a linear-Gaussian one, too."""
    likelihood = aisle.Gaussian(4)
    likelihood = eqx.tree_at(lambda g: g.log_scale, likelihood, jnp.full(4, np.log(SIGMA)))
    model, proposal = aisle.mlp_model(
        jax.random.key(0), likelihood, BIAS, num_latents=2, hidden=(), has_missing=True
    )
    weight = jnp.asarray(WEIGHT, jnp.float32)
    return eqx.tree_at(lambda m: m.decoder.layers[0].weight, model, weight), proposal


@pytest.mark.slow
def test_a_network_takes_nan_and_its_means_are_less_noisy_than_draws():
    model, proposal = linear_network()
    x = X - CONDITIONS @ SHIFT.T.astype(np.float32)
    sampler = aisle.Sampler(8, 20, aisle.Kernel.tuned())
    options = {"num_draws": NUM_DRAWS, "average": True, "sampler": sampler}
    found = np.asarray(aisle.impute(model, proposal, x, **options), float)
    mask = CONTEXT.is_observed[0]
    mean, _ = conditional(0)
    wanted = mean - (SHIFT @ CONDITIONS[0].astype(float))[~mask]
    # Of W z, without the noise of x.
    precision = np.eye(2) + WEIGHT[mask].T @ WEIGHT[mask] / SIGMA**2
    variance = np.diagonal(WEIGHT[~mask] @ np.linalg.inv(precision) @ WEIGHT[~mask].T)
    assert np.all(np.abs(found[0, ~mask] - wanted) < 4 * np.sqrt(variance / NUM_DRAWS))


@pytest.mark.slow
def test_draws_depend_on_the_seed_alone():
    encoder = Encoder(MODEL, 1.3)
    first, again, other = (
        np.asarray(aisle.impute(MODEL, encoder, X, CONTEXT, num_draws=3, seed=s)) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.all((first != other)[np.isnan(np.broadcast_to(X[:, None], first.shape))])


@pytest.mark.slow
def test_without_anything_missing_examples_are_repeated():
    plain = aisle.LinearGaussian(MODEL.weight, MODEL.bias, MODEL.log_sigma)
    found = np.asarray(aisle.impute(plain, None, X[2:], num_draws=2))
    np.testing.assert_array_equal(found, X[[2, 2]][None])


class Labelled(aisle.LinearGaussian):
    """A model that takes contexts of its own."""

    def given(self, context):
        return self


def test_a_context_that_says_nothing_of_missing_values_is_refused():
    plain, labelled = (
        kind(MODEL.weight, MODEL.bias, MODEL.log_sigma) for kind in (aisle.LinearGaussian, Labelled)
    )
    with pytest.raises(InputError, match=r"^context is a dict, which does not say what is miss"):
        aisle.impute(labelled, None, X[2:], {"label": np.zeros(1)})
    with pytest.raises(InputError, match=r"^num_draws is 0"):
        aisle.impute(plain, None, X[2:], num_draws=0)
