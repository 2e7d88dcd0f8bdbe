"""Noise on hidden units: none outside of training, mean 1 in it, and nothing of it is learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from applications.proteins import __main__ as proteins
from applications.proteins.decoder import Noisy, UnderNoise

X = jnp.array([0.0, 3.0, jnp.nan])
KEY = jax.random.key(0)


def built(noise, features=0):
    """Return a model and an encoder of three sites."""
    form = proteins.Form(2, (8, 8), 0.1, features, noise)
    return proteins._built(form, proteins.made_up(), 0)


def test_without_factors_it_is_the_network():
    z = jnp.array([0.3, -1.2])
    plain, noisy = built(0.0)[0].decoder, built(0.3)[0].decoder
    assert isinstance(noisy, Noisy)
    np.testing.assert_allclose(noisy(z), plain(z), rtol=1e-5, atol=1e-6)
    features = built(0.3, features=3)[0].decoder
    np.testing.assert_allclose(features(z), built(0.0, features=3)[0].decoder(z), atol=1e-5)


@pytest.mark.parametrize("method", [aisle.VAE(), aisle.AIS(num_samples=1, num_temperatures=3)])
def test_without_spread_it_is_the_method(method):
    networks, state = built(0.3), method.init()
    key, _ = jax.random.split(KEY)
    expected = method.estimate(key, *networks, X, state)
    found = UnderNoise(method, 0.0).estimate(KEY, *networks, X, state)
    np.testing.assert_array_equal(found[0].theta, expected[0].theta)
    # Validation is without noise whatever the spread.
    assert hasattr(UnderNoise(method, 0.5), "bound") == hasattr(method, "bound")


def test_the_noise_reaches_each_layer_and_is_not_learned():
    model, proposal = built(0.3)
    method = UnderNoise(aisle.VAE(), 0.5)

    def loss(model, key):
        return method.estimate(key, model, proposal, X, ())[0].theta

    values = [float(loss(model, key)) for key in jax.random.split(KEY, 4)]
    assert len(set(values)) == 4
    gradient = eqx.filter_grad(loss)(model, KEY)
    assert all((np.asarray(g) == 0).all() for g in gradient.decoder.factors)
    weights = [layer.weight for layer in gradient.decoder.network.layers]
    assert all(np.abs(np.asarray(w)).max() > 0 for w in weights)


def test_factors_have_mean_one_and_the_spread_that_was_asked_for():
    class Seen:
        num_gradients = 1

        def estimate(self, key, model, proposal, x, state):
            del key, proposal, x, state
            return jnp.concatenate(model.decoder.factors)

    method = UnderNoise(Seen(), 0.5)
    draw = jax.vmap(lambda key: method.estimate(key, built(0.3)[0], None, X, ()))
    factors = np.asarray(draw(jax.random.split(KEY, 4000)))
    assert factors.shape == (4000, 16)
    error = 0.5 / np.sqrt(factors.size)
    assert abs(factors.mean() - 1) < 4 * error
    assert abs(factors.std() - 0.5) < 4 * error
    # Independent between units and layers.
    assert np.abs(np.corrcoef(factors.T) - np.eye(16)).max() < 5 / np.sqrt(4000)
