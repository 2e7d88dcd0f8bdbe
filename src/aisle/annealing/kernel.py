"""A sampler's parameters as one value, and the runs that it describes.

Training and evaluation pass this value around; `aisle.annealing.ais` takes its parts one by one.
"""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from aisle.annealing.ais import Annealed, anneal, anneal_reverse
from aisle.errors import InputError
from aisle.types import Distribution, Latent, LogDensity, PRNGKey


class Kernel(eqx.Module):
    """Everything that a run of chains needs beside where it starts and where it goes.

    Attributes:
        betas: T + 1 inverse temperatures; mh-hmc uses their number only.
        step_sizes: T step sizes of HMC, adapted between updates.
        num_samples: K.
        num_leapfrog: L.
        precondition: power of the proposal's scale that preconditions HMC; 0 for none.
        refresh: share of new noise in the momentum at each transition.
        jitter: relative half-width of the step size's random spread.
        last_move: whether to move at beta = 1.
    """

    betas: Float[Array, " points"]
    step_sizes: Float[Array, " temperatures"]
    num_samples: int = eqx.field(static=True, default=1)
    num_leapfrog: int = eqx.field(static=True, default=5)
    precondition: float = eqx.field(static=True, default=0.0)
    refresh: float = eqx.field(static=True, default=1.0)
    jitter: float = eqx.field(static=True, default=0.0)
    last_move: bool = eqx.field(static=True, default=True)


def run_forward(key: PRNGKey, q: Distribution, log_joint: LogDensity, kernel: Kernel) -> Annealed:
    """Anneal one chain from q to the joint."""
    return anneal(key, q, log_joint, *_plan(kernel), **_options(q, kernel))


def run_reverse(
    key: PRNGKey, z: Latent, q: Distribution, log_joint: LogDensity, kernel: Kernel
) -> Annealed:
    """Anneal one chain backwards, from an exact posterior sample to q."""
    return anneal_reverse(key, z, q, log_joint, *_plan(kernel), **_options(q, kernel))


def gradients_per_chain(kernel: Kernel) -> int:
    """Count the gradients of log p(x, z) that a chain costs; none if it never moves."""
    num_moves = len(kernel.step_sizes) - (not kernel.last_move)
    return 1 + num_moves * kernel.num_leapfrog if num_moves else 0


def _plan(kernel: Kernel) -> tuple[Array, Array, int]:
    return kernel.betas, kernel.step_sizes, kernel.num_leapfrog


def _options(q: Distribution, kernel: Kernel) -> dict[str, Any]:
    return {
        "scale": _scale(q, kernel.precondition),
        "refresh": kernel.refresh,
        "jitter": kernel.jitter,
        "last_move": kernel.last_move,
    }


def _scale(q: Distribution, power: float) -> Latent | None:
    if power == 0:
        return None
    if not hasattr(q, "scale"):
        raise InputError(
            f"precondition is {power:g} but {type(q).__name__} has no `scale`: add one, or use 0"
        )
    return jax.tree.map(lambda s: s**power, q.scale)  # pyright: ignore[reportAttributeAccessIssue]
