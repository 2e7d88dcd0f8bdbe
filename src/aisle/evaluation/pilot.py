"""Step sizes for an evaluation, tuned on a pilot and then frozen.

The pilot has keys of its own and, as far as the caller has them, examples of its own. Step sizes
vary smoothly with the inverse temperature, so a short schedule is enough to find them.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from aisle.annealing import Kernel, schedules, tuning
from aisle.annealing.kernel import gradients_per_chain, run_forward
from aisle.compilation import jit
from aisle.models.joint import log_joint
from aisle.types import Model, PRNGKey, Proposal

NUM_EXAMPLES = 64
NUM_ROUNDS = 20
MAX_TEMPERATURES = 50

# Where the search starts, in units of the preconditioner.
FIRST_STEP = 0.3


def short_kernel(kernel: Kernel, schedule: str) -> Kernel:
    """Return the kernel of the pilot runs: at most so many temperatures, and one chain each."""
    number = min(len(kernel.step_sizes), MAX_TEMPERATURES)
    return dataclasses.replace(
        kernel,
        betas=schedules.named(schedule, number),
        step_sizes=jnp.full(number, FIRST_STEP),
        num_samples=1,
        last_move=True,
    )


def tune(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    xs: PyTree,
    kernel: Kernel,
    schedule: str,
    target: float,
) -> Kernel:
    """Return the kernel with step sizes at which pilot chains reach the target acceptance."""
    short = short_kernel(kernel, schedule)
    sizes = tune_exactly(key, model, proposal, xs, short, jnp.asarray(target))
    # Log-linear in beta between the pilot's temperatures, constant before the first.
    between = jnp.interp(kernel.betas[1:], short.betas[1:], jnp.log(sizes))
    return dataclasses.replace(kernel, step_sizes=jnp.exp(between))


def num_gradients(kernel: Kernel, schedule: str, num_examples: int) -> int:
    """Count the gradients of log p(x, z) that `tune` spends."""
    return NUM_ROUNDS * num_examples * gradients_per_chain(short_kernel(kernel, schedule))


@jit
def simulate(key: PRNGKey, model: Model, number: int) -> PyTree:
    """Draw observations from the model: examples that no data set has."""

    def one(key: PRNGKey) -> Any:
        key_z, key_x = jax.random.split(key)
        return model.sample_observation(key_x, model.sample_prior(key_z))

    return jax.vmap(one)(jax.random.split(key, number))


@jit
def tune_exactly(
    key: PRNGKey, model: Model, proposal: Proposal, xs: PyTree, kernel: Kernel, target: Array
) -> tuning.StepSizes:
    """Return step sizes for the kernel's very transitions, however many and at whatever betas."""

    def acceptance(key: PRNGKey, sizes: tuning.StepSizes) -> Array:
        trial = dataclasses.replace(kernel, step_sizes=sizes)

        def chain(key: PRNGKey, x: Any) -> Array:
            run = run_forward(key, proposal(x), log_joint(model, x), trial)
            return run.info.acceptance

        number = len(jax.tree.leaves(xs)[0])
        return jnp.mean(jax.vmap(chain)(jax.random.split(key, number), xs), axis=0)

    return tuning.pilot(key, acceptance, kernel.step_sizes, target=target, num_rounds=NUM_ROUNDS)
