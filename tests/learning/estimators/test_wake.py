import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from aisle.annealing import normalised_weights, schedules
from aisle.annealing.kernel import run_forward
from aisle.errors import InputError
from aisle.learning.estimators import Losses, named
from estimating import CHAINS, FULL, assert_close, assert_same, jit, kernel, pick, problem


@pytest.mark.parametrize("name", CHAINS)
def test_phi_learns_from_the_ends_of_the_chains_if_asked(name):
    model, proposal, xs = problem("linear-gaussian")
    plan, key = kernel(**FULL), jax.random.key(8)

    @functools.partial(jit, static_argnums=0)
    def gradients(objective):
        def estimate(parts):
            return named(name, objective).estimate(key, *parts, xs[0], plan)[0]

        return jax.vmap(jax.vjp(estimate, (model, proposal))[1])(Losses(*jnp.eye(2)))[0]

    @jit
    def by_hand():
        stages = eqx.tree_at(lambda k: k.betas, plan, schedules.immediate(3))
        used = stages if name == "mh-hmc" else plan
        keys = jax.random.split(jax.random.split(key)[0], plan.num_samples)

        def joint(z):
            return model.log_prior(z) + model.log_likelihood(xs[0], z)

        ends = jax.vmap(lambda k: run_forward(k, proposal(xs[0]), joint, used))(keys)
        equal = jnp.full(plan.num_samples, 1 / plan.num_samples)
        weights = equal if name == "mh-hmc" else normalised_weights(ends.log_weight)
        return jax.grad(lambda q: -jnp.sum(weights * jax.vmap(q(xs[0]).log_prob)(ends.z)))(proposal)

    elbo, wake, both = map(gradients, ("elbo", "wake", "elbo+wake"))
    assert_same([elbo[0], elbo[0]], [wake[0], both[0]])  # theta's gradients, and zeros
    assert_close(pick(wake[1], 1), by_hand(), 1e-4)
    assert_close(both[1], jax.tree.map(jnp.add, elbo[1], wake[1]), 1e-4)


def test_phi_objectives_have_their_rules():
    with pytest.raises(InputError, match="'sleep': choose from elbo, elbo"):
        named("ais", "sleep")
    with pytest.raises(InputError, match="vae has no chains"):
        named("vae", "wake")
    plan = kernel(**FULL)
    spent = [named("ais", objective).num_gradients(plan) for objective in ("elbo", "wake")]
    assert spent[0] - spent[1] == 1
