"""Step sizes by temperature, towards a target acceptance.

Both rules run BETWEEN annealing runs. A run whose own acceptances steer its step sizes has kernels
that depend on the chain, which voids E[w] = p(x) and with it the bound.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aisle.types import PRNGKey, Scalar

StepSizes = Float[Array, " temperatures"]

# Limits of a step size that a pilot finds.
_SMALLEST, _LARGEST = 1e-4, 10.0


def nudge(
    step_sizes: StepSizes,
    acceptance: Float[Array, " temperatures"],
    *,
    target: float = 0.6,
    factor: float = 1.002,
    smallest: float = 0.001,
    largest: float = 0.3,
) -> StepSizes:
    """Take each step size one small factor towards the target: the rule of the paper's scripts.

    Meant for training, after every update. The default bounds are the paper's, for an identity
    preconditioner.
    """
    direction = jnp.where(acceptance > target, factor, 2 - factor)
    return jnp.clip(step_sizes * direction, smallest, largest)


def pilot(
    key: PRNGKey,
    acceptance: Callable[[PRNGKey, StepSizes], Float[Array, " temperatures"]],
    step_sizes: StepSizes,
    *,
    target: float | Scalar = 0.65,
    num_rounds: int = 30,
    smallest: float = _SMALLEST,
    largest: float = _LARGEST,
) -> StepSizes:
    """Tune on pilot runs, to be frozen for an evaluation with a new key.

    Stochastic approximation on log eps: each round moves it by a gain times the excess of
    acceptance. The gain of a temperature shrinks each time that its excess changes sign (Kesten,
    1958), so a start that is wrong by a factor of a thousand is left behind at full speed, and the
    cliff of acceptance at the integrator's stability limit is not jumped across for ever. The
    answer averages the last half of the rounds.

    Args:
        key: of the pilot runs; the reported run must have another one.
        acceptance: runs pilot chains and returns their mean acceptance by temperature.
        step_sizes: where to start.
        target: acceptance to reach.
        num_rounds: pilot runs to make.
        smallest: lower limit of a step size.
        largest: upper limit of a step size.
    """

    def round_(state: Search, index: Int[Array, ""]) -> tuple[Search, StepSizes]:
        excess = acceptance(jax.random.fold_in(key, index), jnp.exp(state.log_size)) - target
        state = state.moved(excess, smallest, largest)
        return state, state.log_size

    start = Search(jnp.log(step_sizes), jnp.zeros_like(step_sizes), jnp.zeros_like(step_sizes))
    _, trace = jax.lax.scan(round_, start, jnp.arange(num_rounds))
    return jnp.exp(jnp.mean(trace[num_rounds // 2 :], axis=0))


def interpolated(
    betas: Float[Array | np.ndarray, " points"],
    known_betas: Float[Array | np.ndarray, " known_points"],
    known_sizes: Float[Array, " known"],
) -> StepSizes:
    """Return step sizes for other inverse temperatures than they are known for.

    They vary smoothly with beta: log-linear between the known ones, constant before the first.
    """
    return jnp.exp(jnp.interp(betas[1:], known_betas[1:], jnp.log(known_sizes)))


class Search(NamedTuple):
    """Where a search for step sizes stands; its arrays are JAX's or NumPy's."""

    log_size: Any
    excess: Any
    num_flips: Any

    def moved(
        self, excess: Any, smallest: float = _SMALLEST, largest: float = _LARGEST
    ) -> "Search":
        """Return the search after a round with this excess of acceptance."""
        num_flips = self.num_flips + (excess * self.excess < 0)
        log_size = self.log_size + 3 * (1 + num_flips) ** -1.5 * excess
        return Search(log_size.clip(math.log(smallest), math.log(largest)), excess, num_flips)
