"""What is computed of one example: forward chains, both directions, or plain importance sampling.

Each function takes `(shared, key, example)` and returns numbers for `aisle.evaluation.work`.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from aisle.annealing import Annealed, Ladder, anneal, anneal_reverse, log_mean_exp
from aisle.annealing.importance import importance_log_weights
from aisle.context import InContext, bind
from aisle.evaluation.work import Numbers, map_chains
from aisle.models.joint import log_joint
from aisle.types import Model, Observation, PRNGKey, Proposal

# Draws of q whose mean tells which latents an encoder uses, in two halves.
_DRAWS_OF_HALF = 32

# What all examples share: model, proposal, ladder and number of chains.
Shared = tuple[Model, Proposal, Ladder, int]


def forward(shared: Shared, key: PRNGKey, example: Observation | InContext) -> Numbers:
    """Anneal the chains of one observation from q to the posterior."""
    model, proposal, ladder, num_chains = shared
    model, proposal, x = bind(model, proposal, example)
    q, density = proposal(x), log_joint(model, x)
    return _chains(lambda key: anneal(key, q, density, ladder), key, num_chains)


def both_ways(shared: Shared, key: PRNGKey, example: InContext | None) -> Numbers:
    """Simulate (z, x) from the model; anneal from q to the posterior and from z back to q.

    Of a given example its context alone counts, in which x is simulated.
    """
    model, proposal, ladder, num_chains = shared
    model, proposal, _ = bind(model, proposal, example)
    key_z, key_x, key_forward, key_reverse = jax.random.split(key, 4)
    z = model.sample_prior(key_z)
    x = model.sample_observation(key_x, z)
    q, density = proposal(x), log_joint(model, x)
    up = _chains(lambda key: anneal(key, q, density, ladder), key_forward, num_chains)
    # All of them come from the same z, which the moves at the posterior make them forget.
    long = ladder.lengthened(num_more_moves(len(ladder.step_sizes)))
    number = num_reverse(num_chains)
    down = _chains(lambda key: anneal_reverse(key, z, q, density, long), key_reverse, number)
    return {
        "up": up["log_weight"],
        "down": down["log_weight"],
        "num_nonfinite": up["num_nonfinite"] + down["num_nonfinite"],
        "mean_log_ratio": up["mean_log_ratio"],
    }


def num_reverse(num_chains: int) -> int:
    """Return how many chains go back for so many that go forward.

    The upper bound is as tight with one; with more, its error over examples is smaller.
    """
    return math.isqrt(num_chains - 1) + 1


def num_more_moves(num_temperatures: int) -> int:
    """Return how many moves at beta = 1 a reverse chain begins with: a tenth of T."""
    return -(-num_temperatures // 10)


def num_gradients(num_temperatures: int, per_move: int, num_chains: int) -> int:
    """Count the gradients of log p(x, z) that `forward` spends on an example."""
    return num_chains * (1 + (num_temperatures - 1) * per_move)


def num_gradients_both_ways(num_temperatures: int, per_move: int, num_chains: int) -> int:
    """Count the gradients of log p(x, z) that `both_ways` spends on an example."""
    there = num_gradients(num_temperatures, per_move, num_chains)
    longer = num_temperatures + num_more_moves(num_temperatures)
    return there + num_gradients(longer, per_move, num_reverse(num_chains))


def importance(
    shared: tuple[Model, Proposal, int], key: PRNGKey, example: Observation | InContext
) -> Numbers:
    """Bound log p(x) by importance sampling, and average two halves of draws of q."""
    model, proposal, num_samples = shared
    model, proposal, x = bind(model, proposal, example)
    q = proposal(x)
    key_weights, key_draws = jax.random.split(key)
    log_weights = importance_log_weights(key_weights, q, log_joint(model, x), num_samples)
    halves = jax.random.split(key_draws, (2, _DRAWS_OF_HALF))
    draws = jax.vmap(jax.vmap(lambda key: ravel_pytree(q.sample(key))[0]))(halves)
    return {
        "bound": log_mean_exp(log_weights),
        "elbo": jnp.mean(log_weights),
        "half_means": jnp.mean(draws, axis=1),
    }


def _chains(run: Callable[[PRNGKey], Annealed], key: PRNGKey, num_chains: int) -> Numbers:
    def chain(key: PRNGKey) -> Numbers:
        end = run(key)
        return {
            "log_weight": end.log_weight,
            "mean_acceptance": end.info.acceptance,
            "mean_log_ratio": end.info.log_ratio,
            "num_nonfinite": jnp.sum(end.info.is_nonfinite),
        }

    found = map_chains(chain, key, num_chains)
    return {
        "log_weight": found["log_weight"],
        "mean_acceptance": jnp.mean(found["mean_acceptance"], axis=0),
        "mean_log_ratio": jnp.mean(found["mean_log_ratio"], axis=0),
        "num_nonfinite": jnp.sum(found["num_nonfinite"]),
    }
