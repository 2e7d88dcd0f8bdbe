"""Step sizes for chains whose weights are reported, tuned on a pilot and then frozen.

The pilot has keys of its own and, as far as the caller has them, examples of its own. Step sizes
vary smoothly with the inverse temperature, so a short schedule is enough to find them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from aisle.annealing import Kernel, Ladder, anneal, tuning
from aisle.compilation import jit
from aisle.context import InContext, bind
from aisle.models.joint import log_joint
from aisle.types import Model, Observation, PRNGKey, Proposal

NUM_EXAMPLES = 64
NUM_ROUNDS = 20
MAX_TEMPERATURES = 50

# Where the search starts, in units of the preconditioner.
FIRST_STEP = 0.3


def tune(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    xs: PyTree,
    kernel: Kernel,
    num_temperatures: int,
) -> tuning.StepSizes:
    """Return step sizes at which pilot chains reach the kernel's target acceptance."""
    short = short_ladder(kernel, num_temperatures)
    sizes = tune_exactly(key, model, proposal, xs, short, jnp.asarray(kernel.target_accept))
    return tuning.interpolated(kernel.betas(num_temperatures), short.betas, sizes)


def short_ladder(kernel: Kernel, num_temperatures: int) -> Ladder:
    """Return the ladder of the pilot runs, of at most so many temperatures."""
    number = num_short(kernel, num_temperatures)
    return kernel.ladder(number, jnp.full(number, FIRST_STEP))


def num_short(kernel: Kernel, num_temperatures: int) -> int:
    """Return the temperatures of the pilot runs: a list of them cannot be shortened."""
    is_list = not callable(kernel.schedule)
    return num_temperatures if is_list else min(num_temperatures, MAX_TEMPERATURES)


def num_gradients(kernel: Kernel, num_temperatures: int, num_examples: int) -> int:
    """Count the gradients of log p(x, z) that `tune` spends."""
    return NUM_ROUNDS * num_examples * short_ladder(kernel, num_temperatures).num_gradients


def repeated(xs: PyTree) -> PyTree:
    """Return as many examples as the pilot takes, some of them more than once if need be."""
    available = len(jax.tree.leaves(xs)[0])
    chosen = np.resize(np.arange(available), NUM_EXAMPLES)
    return jax.tree.map(lambda a: jnp.asarray(a[chosen]), xs)


@jit
def tune_exactly(
    key: PRNGKey, model: Model, proposal: Proposal, xs: PyTree, ladder: Ladder, target: Array
) -> tuning.StepSizes:
    """Return step sizes for a ladder's very transitions, however many and at whatever betas."""

    def acceptance(key: PRNGKey, sizes: tuning.StepSizes) -> Array:
        trial = eqx.tree_at(lambda rungs: rungs.step_sizes, ladder, sizes)

        def chain(key: PRNGKey, example: Observation | InContext) -> Array:
            own, encoder, x = bind(model, proposal, example)
            return anneal(key, encoder(x), log_joint(own, x), trial).info.acceptance

        number = len(jax.tree.leaves(xs)[0])
        return jnp.mean(jax.vmap(chain)(jax.random.split(key, number), xs), axis=0)

    return tuning.pilot(key, acceptance, ladder.step_sizes, target=target, num_rounds=NUM_ROUNDS)
