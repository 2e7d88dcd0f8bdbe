"""Chains with a kernel: annealed, tuned, and left to walk at the posterior.

A `Kernel` is a ladder of the library's with a number of chains; a `Preset` is the part of it that
does not depend on how many temperatures there are.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

import aisle
from aisle.annealing import (
    HMC,
    Annealed,
    Ladder,
    anneal as anneal_along,
    normalised_weights,
    schedules,
    tuning,
)
from aisle.annealing.hmc import HMCState
from aisle.annealing.kernel import has_scale
from aisle.annealing.path import path_from
from aisle.annealing.schedules import Betas
from aisle.compilation import compiler_options
from aisle.evaluation import examples, pilot, posterior
from aisle.evaluation.work import Job, preferred_examples, walk
from aisle.models import DiagonalNormal
from aisle.models.joint import log_joint
from aisle.types import Distribution, Latent, LogDensity, Model, PRNGKey, Proposal

__all__ = [
    "EVALUATION",
    "FIRST_STEP",
    "TRAINING",
    "Annealed",
    "Betas",
    "DiagonalNormal",
    "Kernel",
    "Preset",
    "anneal",
    "anneal_examples",
    "betas_of",
    "compiler_options",
    "draw_implicit",
    "first_kernel",
    "gradients_per_chain",
    "log_joint",
    "mean_log_ratios",
    "normalised_weights",
    "preset_for",
    "schedules",
    "tune_between",
    "tune_for_density",
    "tune_steps",
    "walk_gradients",
    "walk_on",
]


class Kernel(eqx.Module):
    """Everything that the chains of an example need beside where they start and where they go.

    Attributes:
        betas: T + 1 inverse temperatures.
        step_sizes: T of them.
        num_samples: K, chains of an example.
        num_leapfrog: L.
        precondition: power of the proposal's scale that preconditions HMC; 0 for none.
        refresh: share of new noise in the momentum at each transition.
        last_move: whether to move at beta = 1.
    """

    betas: Float[Array, " points"] = eqx.field(converter=jnp.asarray)
    step_sizes: Float[Array, " temperatures"] = eqx.field(converter=jnp.asarray)
    num_samples: int = eqx.field(static=True, default=1)
    num_leapfrog: int = eqx.field(static=True, default=5)
    precondition: float = eqx.field(static=True, default=0.0)
    refresh: float = eqx.field(static=True, default=1.0)
    last_move: bool = eqx.field(static=True, default=True)

    @property
    def hmc(self) -> HMC:
        """The transition."""
        return HMC(self.num_leapfrog, self.refresh, self.precondition)

    @property
    def ladder(self) -> Ladder:
        """What a chain walks along."""
        return Ladder(self.betas, self.step_sizes, self.hmc, self.last_move)


class Preset(NamedTuple):
    """The part of a kernel that does not depend on the number of temperatures."""

    num_leapfrog: int
    schedule: str
    precondition: float
    momentum_refresh: float
    target_accept: float

    @property
    def library_kernel(self) -> aisle.Kernel:
        """The same as an object of the library."""
        hmc = HMC(self.num_leapfrog, self.momentum_refresh, self.precondition)
        return aisle.Kernel(getattr(schedules, self.schedule), hmc, self.target_accept)

    def kernel(self, betas: Betas, step_size: float, num_samples: int) -> Kernel:
        """Return the kernel of a schedule, with the same step size everywhere for a start."""
        sizes = jnp.full(len(betas) - 1, step_size)
        own = (self.num_leapfrog, self.precondition, self.momentum_refresh)
        return Kernel(jnp.asarray(betas), sizes, num_samples, *own)


def _preset(kernel: aisle.Kernel) -> Preset:
    hmc, schedule = kernel.transition, kernel.schedule
    assert isinstance(hmc, HMC) and callable(schedule)
    own = (hmc.precondition, hmc.refresh, kernel.target_accept)
    return Preset(hmc.num_leapfrog, schedule.__name__, *own)


# The library's kernels: of short runs inside an update, and of long ones whose weights count.
TRAINING = {
    "tuned": _preset(aisle.Kernel.tuned()),
    "paper": _preset(aisle.Kernel.paper()),
}
EVALUATION = {
    "tuned": _preset(aisle.Kernel.tuned(is_long=True)),
    "paper": _preset(aisle.Kernel.paper(is_long=True)),
}

# Where the search for step sizes starts, in units of the preconditioner.
FIRST_STEP = pilot.FIRST_STEP

# Chains of each round of a pilot on one density.
_PILOT_CHAINS = 50


def anneal(key: PRNGKey, q: Distribution, density: LogDensity, kernel: Kernel) -> Annealed:
    """Anneal one chain from q to the posterior."""
    return anneal_along(key, q, density, kernel.ladder)


def gradients_per_chain(kernel: Kernel) -> int:
    """Count the gradients of log p(x, z) that a chain costs."""
    return kernel.ladder.num_gradients


def betas_of(schedule: str, num_temperatures: int) -> Betas:
    """Return the inverse temperatures of a schedule by its name in the library."""
    return getattr(schedules, schedule)(num_temperatures)


def first_kernel(preset: Preset, betas: Betas, num_samples: int) -> Kernel:
    """Return a kernel before its step sizes are tuned."""
    return preset.kernel(betas, FIRST_STEP, num_samples)


def preset_for(presets: Mapping[str, Preset], name: str, proposal: Proposal, x: PyTree) -> Preset:
    """Return a preset, without preconditioning where the proposal has no scale.

    `x` is one observation.
    """
    preset = presets[name]
    return preset if has_scale(proposal, x) else preset._replace(precondition=0.0)


def tune_steps(
    key: PRNGKey, model: Model, proposal: Proposal, xs: PyTree, kernel: Kernel, target: float
) -> Kernel:
    """Return the kernel with a step size for each of its transitions, tuned on examples."""
    sizes = pilot.tune_exactly(key, model, proposal, xs, kernel.ladder, jnp.asarray(target))
    return dataclasses.replace(kernel, step_sizes=sizes)


def tune_between(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    xs: PyTree,
    kernel: Kernel,
    preset: Preset,
) -> Kernel:
    """Return a kernel of many temperatures with step sizes from a pilot that has fewer."""
    number = len(kernel.step_sizes)
    sizes = pilot.tune(key, model, proposal, xs, preset.library_kernel, number)
    return dataclasses.replace(kernel, step_sizes=sizes)


@eqx.filter_jit
def mean_log_ratios(
    key: PRNGKey, model: Model, proposal: Proposal, xs: Array, kernel: Kernel
) -> Float[Array, " temperatures"]:
    """Return the mean of log p - log q at each temperature, of as many chains as tuning takes."""

    def one_round(key: PRNGKey) -> Array:
        return jnp.mean(jax.vmap(chain)(jax.random.split(key, len(xs)), xs), axis=0)

    def chain(key: PRNGKey, x: Array) -> Array:
        return anneal(key, proposal(x), log_joint(model, x), kernel).info.log_ratio

    return jnp.mean(jax.lax.map(one_round, jax.random.split(key, pilot.NUM_ROUNDS)), axis=0)


def anneal_examples(
    name: str,
    networks: tuple[Model, Proposal],
    kernel: Kernel,
    key: PRNGKey,
    xs: PyTree,
    indices: np.ndarray,
    *,
    show_progress: bool,
) -> dict[str, np.ndarray]:
    """Anneal the kernel's chains on each example.

    Returns:
        log_weight of each example and chain, num_nonfinite of each example, and mean_acceptance of
        each transition.
    """
    cost, chains = gradients_per_chain(kernel), kernel.num_samples
    context, preferred = (*networks, kernel.ladder, chains), preferred_examples(chains, cost)
    job = Job(name, examples.forward, context, key, xs, indices, chains * cost, preferred)
    return walk(job, show_progress=show_progress).numbers


def walk_on(
    num_stops: int,
    num_moves: int,
    key: PRNGKey,
    z: Latent,
    q: Distribution,
    density: LogDensity,
    kernel: Kernel,
) -> Latent:
    """Move a chain at the posterior; return z and where it stops after each `num_moves` moves."""
    path, key_momentum = path_from(q, density), jax.random.fold_in(key, 0)
    hmc, size = kernel.hmc, kernel.step_sizes[-1]

    def move(state: HMCState, number: Array) -> tuple[HMCState, None]:
        key_move = jax.random.fold_in(key, number)
        return hmc.step(key_move, state, path, jnp.ones_like(size), size)[0], None

    def stop(state: HMCState, numbers: Array) -> tuple[HMCState, Latent]:
        state, _ = jax.lax.scan(move, state, numbers)
        return state, state.z

    numbers = 1 + jnp.arange((num_stops - 1) * num_moves).reshape(num_stops - 1, num_moves)
    _, later = jax.lax.scan(stop, hmc.init(key_momentum, z, path), numbers)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), z, later)


def walk_gradients(num_stops: int, num_moves: int, kernel: Kernel) -> int:
    """Count the gradients of log p(x, z) that a chain's walk at the posterior costs."""
    return 1 + (num_stops - 1) * num_moves * kernel.num_leapfrog


def draw_implicit(
    method: Literal["is", "ais"],
    keys: Key[Array, " draws"],
    q: Distribution,
    density: LogDensity,
    kernel: Kernel,
) -> Latent:
    """Draw one latent of q_IS or q_AIS for each key."""
    ladder = None if method == "is" else kernel.ladder
    return posterior.draw_many(keys, q, density, ladder, kernel.num_samples)


@eqx.filter_jit
def tune_for_density(key: PRNGKey, q: Distribution, density: LogDensity, kernel: Kernel) -> Kernel:
    """Return the kernel with step sizes tuned on chains from q to one density."""

    def acceptance(key: PRNGKey, sizes: tuning.StepSizes) -> tuning.StepSizes:
        trial = dataclasses.replace(kernel, step_sizes=sizes)
        keys = jax.random.split(key, _PILOT_CHAINS)
        runs = jax.vmap(lambda k: anneal(k, q, density, trial).info.acceptance)(keys)
        return jnp.mean(runs, axis=0)

    return dataclasses.replace(kernel, step_sizes=tuning.pilot(key, acceptance, kernel.step_sizes))
