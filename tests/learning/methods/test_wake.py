import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from aisle.annealing import anneal, normalised_weights
from aisle.learning import Losses
from estimating import CHAINS, METHODS, assert_close, assert_same, jit, pick, problem, state_of


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_phi_learns_from_the_ends_of_the_chains_if_asked(name):
    model, proposal, xs = problem("linear-gaussian")
    method, key = METHODS[name], jax.random.key(8)
    sizes = state_of(method)

    @functools.partial(jit, static_argnums=0)
    def gradients(objective):
        def estimate(parts):
            own = replace(method, phi_objective=objective)
            return own.estimate(key, *parts, xs[0], sizes)[0]

        return jax.vmap(jax.vjp(estimate, (model, proposal))[1])(Losses(*jnp.eye(2)))[0]

    @jit
    def by_hand():
        keys = jax.random.split(jax.random.split(key)[0], method.num_samples)

        def joint(z):
            return model.log_prior(z) + model.log_likelihood(xs[0], z)

        ladder = method.ladder(sizes)
        ends = jax.vmap(lambda k: anneal(k, proposal(xs[0]), joint, ladder))(keys)
        equal = jnp.full(method.num_samples, 1 / method.num_samples)
        weights = equal if name == "mh-hmc" else normalised_weights(ends.log_weight)
        return jax.grad(lambda q: -jnp.sum(weights * jax.vmap(q(xs[0]).log_prob)(ends.z)))(proposal)

    elbo, wake, both = map(gradients, ("elbo", "wake", "elbo+wake"))
    assert_same([elbo[0], elbo[0]], [wake[0], both[0]])  # theta's gradients, and zeros
    assert_close(pick(wake[1], 1), by_hand(), 1e-4)
    assert_close(both[1], jax.tree.map(jnp.add, elbo[1], wake[1]), 1e-4)


def test_only_the_elbo_costs_a_gradient():
    spent = [
        replace(METHODS["ais"], phi_objective=objective).num_gradients
        for objective in ("elbo", "elbo+wake", "wake")
    ]
    assert [number - spent[2] for number in spent] == [1, 1, 0]
