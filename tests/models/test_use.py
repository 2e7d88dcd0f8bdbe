"""Many examples at once: samples, codes and reconstructions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.errors import InputError
from measures import z_score

X = np.float32(np.random.default_rng(0).random((3, 5)) < 0.5)


@pytest.fixture(scope="module")
def networks(compiled_quickly):
    return aisle.one_layer(jax.random.key(0), np.linspace(0.2, 0.8, 5), num_latents=2, num_hidden=4)


def test_samples_are_of_the_model_and_decided_by_the_seed():
    truth = aisle.LinearGaussian(jnp.array([[2.0], [-1.0]]), jnp.array([1.0, 0.0]), jnp.array(-1.0))
    x = np.asarray(aisle.sample(truth, 20_000), float)
    covariance = np.array([[4, -2], [-2, 1]]) + np.exp(-2) * np.eye(2)
    centred = x - np.array([1.0, 0.0])
    for i, j in ((0, 0), (0, 1), (1, 1)):
        assert abs(z_score(centred[:, i] * centred[:, j], covariance[i, j])) < 4
    np.testing.assert_array_equal(aisle.sample(truth, 20_000, seed=0), np.float32(x))
    assert np.all(np.asarray(aisle.sample(truth, 20_000, seed=1)) != np.float32(x))


def test_codes_are_the_means_of_the_encoder(networks):
    _, proposal = networks
    found = aisle.encode(proposal, X)
    wanted = np.stack([proposal(jnp.asarray(x)).loc for x in X])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


class Drawn(eqx.Module):
    """A proposal that does not know its mean."""

    def __call__(self, x):
        return Sampled(x)


class Sampled(eqx.Module):
    x: jax.Array

    def sample(self, key):
        return {"z": self.x[:2] + 0.1 * jax.random.normal(key, (2,))}

    def log_prob(self, z):
        return -50 * jnp.sum((z["z"] - self.x[:2]) ** 2)


def test_a_mean_that_is_not_known_is_that_of_draws():
    found = aisle.encode(Drawn(), X)["z"]
    np.testing.assert_allclose(found, X[:, :2], atol=0.03)
    assert np.all(found != X[:, :2])


def test_reconstructions_are_the_means_at_the_codes(networks):
    model, proposal = networks
    found = aisle.reconstruct(model, proposal, X)
    wanted = [model.mean_observation(proposal(jnp.asarray(x)).loc) for x in X]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_what_cannot_be_done_gets_one_clear_line(networks):
    model, proposal = networks
    with pytest.raises(InputError, match=r"^number is 0: it must be at least 1$"):
        aisle.sample(model, 0)
    with pytest.raises(InputError, match=r"^seed is -1: it must be at least 0$"):
        aisle.sample(model, 1, seed=-1)
    plain = aisle.LinearGaussian(jnp.ones((5, 2)), jnp.zeros(5), jnp.zeros(()))
    with pytest.raises(InputError, match=r"a LinearGaussian, has no mean_observation\(z\): add"):
        aisle.reconstruct(plain, proposal, X)
