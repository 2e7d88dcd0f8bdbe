"""What is computed of one example: forward chains, both directions, or plain importance sampling.

Each function takes `(context, key, x)` and returns figures for `aisle.evaluation.work`.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from aisle.annealing import Kernel, log_mean_exp
from aisle.annealing.ais import Annealed
from aisle.annealing.importance import importance_log_weights
from aisle.annealing.kernel import run_forward, run_reverse
from aisle.evaluation.work import Figures, map_chains
from aisle.models.joint import log_joint
from aisle.types import Latent, Model, Observation, PRNGKey, Proposal

# Draws of q whose mean tells which latents an encoder uses, in two halves.
_DRAWS_OF_HALF = 32

Context = tuple[Model, Proposal, Kernel]


def forward(context: Context, key: PRNGKey, x: Observation) -> Figures:
    """Anneal the chains of one observation from q to the posterior."""
    model, proposal, kernel = context
    q, density = proposal(x), log_joint(model, x)
    return _chains(lambda key: run_forward(key, q, density, kernel), key, kernel)


def both_ways(context: Context, key: PRNGKey, x: None) -> Figures:
    """Simulate (z, x) from the model; anneal from q to the posterior and from z back to q."""
    del x
    model, proposal, kernel = context
    key_z, key_x, key_forward, key_reverse = jax.random.split(key, 4)
    z = model.sample_prior(key_z)
    x = model.sample_observation(key_x, z)
    q, density = proposal(x), log_joint(model, x)
    up = _chains(lambda key: run_forward(key, q, density, kernel), key_forward, kernel)
    # All of them start at the same z. E[1/w] = 1/p(x) holds for each, so the mean of 1/w is
    # unbiased all the same.
    down = _chains(lambda key: run_reverse(key, z, q, density, kernel), key_reverse, kernel)
    nonfinite = up["num_nonfinite"] + down["num_nonfinite"]
    return {"up": up["log_weight"], "down": down["log_weight"], "num_nonfinite": nonfinite}


def importance(context: tuple[Model, Proposal, int], key: PRNGKey, x: Observation) -> Figures:
    """Bound log p(x) by importance sampling, and average two halves of draws of q."""
    model, proposal, num_samples = context
    q = proposal(x)
    key_weights, key_draws = jax.random.split(key)
    log_weights = importance_log_weights(key_weights, q, log_joint(model, x), num_samples)
    halves = jax.random.split(key_draws, (2, _DRAWS_OF_HALF))
    draws = jax.vmap(jax.vmap(lambda key: _flat(q.sample(key))))(halves)
    return {
        "bound": log_mean_exp(log_weights),
        "elbo": jnp.mean(log_weights),
        "half_means": jnp.mean(draws, axis=1),
    }


def _chains(run, key: PRNGKey, kernel: Kernel) -> Figures:
    def chain(key: PRNGKey) -> Figures:
        end: Annealed = run(key)
        return {
            "log_weight": end.log_weight,
            "mean_acceptance": end.info.acceptance,
            "num_nonfinite": jnp.sum(end.info.is_nonfinite),
        }

    figures = map_chains(chain, key, kernel.num_samples)
    return {
        "log_weight": figures["log_weight"],
        "mean_acceptance": jnp.mean(figures["mean_acceptance"], axis=0),
        "num_nonfinite": jnp.sum(figures["num_nonfinite"]),
    }


def _flat(z: Latent) -> jax.Array:
    return ravel_pytree(z)[0]
