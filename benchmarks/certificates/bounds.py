"""The gap by the upper bound of reverse chains alone, and by that which aisle reports."""

import argparse
from typing import Any

import jax

from aisle.annealing import anneal, anneal_reverse
from aisle.evaluation import examples
from aisle.evaluation.bounds import lower_bounds, upper_bounds
from aisle.models.joint import log_joint
from aisle.statistics import summarise
from benchmarks.certificates.shared import (
    KERNEL,
    NUM_CHAINS,
    Case,
    Study,
    each,
    networks,
    simulated,
    tuned,
)


def cases(options: argparse.Namespace) -> Study:
    """Yield cases of model and T."""
    values = {"model": options.models, "num_temperatures": options.temperatures}
    return each(both, options.num_examples, values)


def both(name: str, number: int, num_examples: int) -> Case:
    """Return the gap before and after, of as many simulated examples as the same gradients buy."""
    model, proposal = networks(name)
    ladder = tuned(name, proposal, KERNEL, number)
    shared = (model, proposal, ladder, NUM_CHAINS)
    old_cost = 2 * NUM_CHAINS * ladder.num_gradients
    per_move = KERNEL.transition.num_gradients
    new_cost = examples.num_gradients_both_ways(number, per_move, NUM_CHAINS)
    old = simulated(all_back, shared, num_examples)
    new = simulated(examples.both_ways, shared, round(num_examples * old_cost / new_cost))
    before = -lower_bounds(-old["down"]) - lower_bounds(old["up"])
    after = upper_bounds(new["up"], new["down"]) - lower_bounds(new["up"])
    return {
        "gradients": old_cost * num_examples,
        "before": summarise(before)._asdict(),
        "after": summarise(after)._asdict(),
    }


def all_back(shared: Any, key: Any, _: Any) -> dict[str, Any]:
    """Anneal all chains back from the exact sample itself."""
    model, proposal, ladder, num_chains = shared
    key_z, key_x, key_up, key_down = jax.random.split(key, 4)
    z = model.sample_prior(key_z)
    x = model.sample_observation(key_x, z)
    q, density = proposal(x), log_joint(model, x)
    ups, downs = (jax.random.split(k, num_chains) for k in (key_up, key_down))
    up = jax.vmap(lambda k: anneal(k, q, density, ladder).log_weight)(ups)
    down = jax.vmap(lambda k: anneal_reverse(k, z, q, density, ladder).log_weight)(downs)
    return {"up": up, "down": down}
