"""Other starts and schedules at the same T, and how different examples are."""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import aisle
from aisle.evaluation import examples, refitting
from aisle.evaluation.bounds import lower_bounds, upper_bounds
from aisle.evaluation.planning import spreads_of
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

_REFITS = 6000
_CAREFUL = dataclasses.replace(
    KERNEL, transition=dataclasses.replace(KERNEL.transition, num_leapfrog=8), target_accept=0.97
)


def cases(options: argparse.Namespace) -> Study:
    """Return cases of model, what is tried, and T."""
    values = {"model": options.models, "what": options.what, "T": options.temperatures}
    return each(gap, options.num_examples, values)


def gap(name: str, what: str, number: int, num_examples: int) -> Case:
    """Return the gap on simulated examples, and what T for each example could save.

    With spreads s, the gap of many temperatures is as the mean of s / T. If T is chosen for each
    example, as the root of its s, the same gap takes (mean root of s)^2 / (mean s) of that:
    a limit, as s is taken for known.
    """
    model, proposal = networks(name)
    proposal, kernel = WHAT[what](name, model, proposal, number)
    ladder = tuned(name, proposal, kernel, number)
    run = simulated(examples.both_ways, (model, proposal, ladder, NUM_CHAINS), num_examples)
    found = upper_bounds(run["up"], run["down"]) - lower_bounds(run["up"])
    spreads = spreads_of(run["up"], run["down"])
    return {
        "gap": summarise(found)._asdict(),
        "worst": float(found.max()),
        "variance": float(spreads.mean()),
        "oracle": float(np.mean(np.sqrt(spreads)) ** 2 / np.mean(spreads)),
        "gradients_of_a_chain": ladder.num_gradients,
    }


Start = tuple[Any, aisle.Kernel]


def as_is(_name: str, _model: Any, proposal: Any, _number: int) -> Start:
    """Return the encoder and the default kernel."""
    return proposal, KERNEL


def placed(name: str, model: Any, proposal: Any, _number: int) -> Start:
    """Return the schedule that short runs place, as a plan does."""
    ladder = tuned(name, proposal, KERNEL, 25)
    run = simulated(examples.both_ways, (model, proposal, ladder, 9), 32, seed=3)
    schedule = aisle.schedules.placed(ladder.betas, run["mean_log_ratio"])
    return proposal, dataclasses.replace(KERNEL, schedule=schedule)


def careful(_name: str, _model: Any, proposal: Any, number: int) -> Start:
    """Return smaller steps, twice as many: at twice the gradients."""
    del number
    return proposal, _CAREFUL


def refitted(_name: str, model: Any, proposal: Any, _number: int) -> Start:
    """Return a refitted encoder."""
    found, _ = refitting.refit(jax.random.key(5), model, proposal, _REFITS, show_progress=False)
    return found, KERNEL


def wide(_name: str, _model: Any, proposal: Any, _number: int) -> Start:
    """Return the encoder with deviations that are larger by 30 %."""
    return _Wide(proposal, jnp.array(1.3)), KERNEL


def laplace(_name: str, model: Any, proposal: Any, _number: int) -> Start:
    """Return a Laplace approximation that is sought from the encoder's mean."""
    return _Laplace(proposal, model), KERNEL


class _Normal(eqx.Module):
    """Independent normals over any pytree."""

    loc: Any
    scale: Any

    def sample(self, key: Any) -> Any:
        loc, back = ravel_pytree(self.loc)
        return back(loc + ravel_pytree(self.scale)[0] * jax.random.normal(key, loc.shape))

    def log_prob(self, z: Any) -> Any:
        flat = (ravel_pytree(each)[0] for each in (z, self.loc, self.scale))
        return jnp.sum(jax.scipy.stats.norm.logpdf(*flat))


class _Wide(eqx.Module):
    inner: Any
    factor: jax.Array

    def __call__(self, x: Any) -> Any:
        q = self.inner(x)
        if hasattr(q, "first"):
            return eqx.tree_at(lambda q: q.first.scale, q, q.first.scale * self.factor)
        return _Normal(q.loc, q.scale * self.factor)


class _Laplace(eqx.Module):
    """A hundred steps uphill, scaled by the encoder, and the diagonal of the curvature there."""

    inner: Any
    model: Any

    def __call__(self, x: Any) -> _Normal:
        q, density = self.inner(x), log_joint(self.model, x)
        first, back = ravel_pytree(q.loc)
        rates = 0.05 * ravel_pytree(q.scale)[0] ** 2
        gradient = jax.grad(lambda flat: density(back(flat)))

        def step(state: tuple[Any, Any], _: Any) -> tuple[tuple[Any, Any], None]:
            flat, momentum = state
            momentum = 0.9 * momentum + gradient(flat)
            return (flat + rates * momentum, momentum), None

        (mode, _), _ = jax.lax.scan(step, (first, jnp.zeros_like(first)), length=100)

        def curvature(direction: Any) -> Any:
            return -direction @ jax.jvp(gradient, (mode,), (direction,))[1]

        curvatures = jax.vmap(curvature)(jnp.eye(len(mode)))
        return _Normal(back(mode), back(1 / jnp.sqrt(jnp.maximum(curvatures, 0.01))))


WHAT: dict[str, Callable[[str, Any, Any, int], Start]] = {
    "encoder": as_is,
    "schedule placed": placed,
    "refitted encoder": refitted,
    "small steps": careful,
    "wider encoder": wide,
    "Laplace": laplace,
}
