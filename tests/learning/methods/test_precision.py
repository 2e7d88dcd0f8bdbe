"""Chains on a rounded decoder."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.annealing import HMC, Kernel, anneal, schedules
from aisle.errors import InputError
from aisle.learning import AIS
from aisle.models.joint import log_joint
from aisle.models.networks import rounded
from estimating import jit, problem, state_of

KERNEL = Kernel(schedules.linear, HMC(2), target_accept=0.7)
METHOD = AIS(1, 3, KERNEL, precision="bfloat16")


def as_bfloat16(a):
    return np.asarray(jnp.asarray(a, jnp.bfloat16), np.float32)


def test_weights_and_inputs_are_rounded_and_nothing_else():
    model, _, xs = problem("one-layer")
    half, z = rounded(model), jnp.array([0.3, -1.7])
    assert half.decoder.layers[0].bias.dtype == jnp.float32
    hidden, output = np.asarray(z), np.zeros(0)
    for layer in model.decoder.layers:
        output = as_bfloat16(hidden) @ as_bfloat16(layer.weight).T + np.asarray(layer.bias)
        hidden = np.tanh(output)
    np.testing.assert_allclose(half.decoder(z), output, rtol=1e-5)
    exact, near = (one.log_likelihood(xs[0], z) for one in (model, half))
    assert 0 < abs(exact - near) < 0.1


def test_gradients_are_products_of_rounded_numbers():
    _, proposal, _ = problem("two-layer")
    upper = proposal.upper.network
    half, z = rounded(upper), jnp.linspace(-1, 1, 4)

    def first_unit(network, z):
        first = eqx.tree_at(lambda n: n.layers, network, network.layers[:1])
        return first(z)[0]

    by_weights, by_z = eqx.filter_grad(lambda both: first_unit(*both))((half, z))
    np.testing.assert_array_equal(by_z, as_bfloat16(upper.layers[0].weight)[0])
    found = as_bfloat16(by_weights.layers[0].weight)
    np.testing.assert_array_equal(found[0], as_bfloat16(z))
    assert not np.any(found[1:])


@pytest.mark.parametrize("name", ["one-layer", "two-layer"])
def test_chains_are_those_of_the_rounded_model_and_the_gradient_is_the_models_own(name):
    model, proposal, xs = problem(name)
    key, x, state = jax.random.key(3), xs[0], state_of(METHOD)

    def by_method(model):
        losses, metrics = METHOD.estimate(key, model, proposal, x, state)
        return losses.theta, metrics

    def by_hand(model):
        key_chain = jax.random.split(jax.random.split(key)[0], 1)[0]
        density = log_joint(rounded(model), x)
        end = anneal(key_chain, proposal(x), density, METHOD.ladder(state))
        return -log_joint(model, x)(jax.lax.stop_gradient(end.z)), end

    found, metrics = jit(jax.grad(by_method, has_aux=True))(model)
    expected, end = jit(jax.grad(by_hand, has_aux=True))(model)
    np.testing.assert_allclose(metrics.bound, end.log_weight, rtol=1e-6)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_model_without_layers_of_ours_is_refused():
    model, proposal, xs = problem("linear-gaussian")
    with pytest.raises(InputError, match=r"^precision is 'bfloat16' but the model, a LinearGaus"):
        METHOD.estimate(jax.random.key(0), model, proposal, xs[0], METHOD.init())
    # Before the phases that come first are trained.
    recipe = aisle.Recipe((aisle.Phase(aisle.VAE()), aisle.Phase(METHOD)))
    with pytest.raises(InputError, match=r"^precision is 'bfloat16' but the model"):
        aisle.fit(model, proposal, xs, method=recipe, num_updates=4)
