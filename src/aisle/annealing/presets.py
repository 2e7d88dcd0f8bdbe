"""Named kernels: what a run of chains is made of where its caller does not say.

`paper` is what Ding & Freedman (2020) describe: no preconditioning, fresh momentum at each
transition. `tuned` is what was tightest for the same number of gradients on trained models
(`aisle kernels`): the encoder's scale as preconditioner, short trajectories, and momentum that is
partly kept. In training it also stays at the posterior for the second half of its moves: its
weights are less tight for it, but its samples are better ones to learn from (`aisle gradients`,
`aisle reproduce recipes`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from aisle.annealing.kernel import Kernel
from aisle.annealing.schedules import Betas
from aisle.errors import InputError
from aisle.types import Proposal


class Preset(NamedTuple):
    """The part of a kernel that does not depend on the budget; see `aisle.annealing.Kernel`."""

    num_leapfrog: int
    schedule: str
    precondition: float
    momentum_refresh: float
    jitter: float
    target_accept: float

    def kernel(self, betas: Betas, step_size: float, num_samples: int) -> Kernel:
        """Return the kernel of a schedule, with the same step size everywhere for a start."""
        return Kernel(
            betas,
            jnp.full(len(betas) - 1, step_size),
            num_samples,
            self.num_leapfrog,
            self.precondition,
            self.momentum_refresh,
            self.jitter,
        )


# Short runs, inside an update: a handful of temperatures.
TRAINING = {
    "tuned": Preset(2, "ramp", 0.75, 0.6, 0.0, 0.8),
    "paper": Preset(5, "linear", 0.0, 1.0, 0.0, 0.6),
}
# Long runs, whose weights are reported: hundreds of temperatures and more.
EVALUATION = {
    "tuned": Preset(4, "sigmoid", 0.75, 0.6, 0.0, 0.8),
    "paper": Preset(10, "sigmoid", 0.0, 1.0, 0.0, 0.65),
}


def complete(
    presets: Mapping[str, Preset], name: str, given: Mapping[str, Any], *, has_scale: bool
) -> dict[str, Any]:
    """Return the preset's fields that are in `given`, filled in where those are None.

    A proposal without a scale has nothing to precondition with: its default is 0.
    """
    if name not in presets:
        raise InputError(f"kernel is {name!r}: choose from {', '.join(presets)}")
    usual = presets[name]._asdict()
    if not has_scale:
        usual["precondition"] = 0.0
    return {
        field: usual[field] if given[field] is None else given[field]
        for field in usual
        if field in given
    }


def has_scale(proposal: Proposal, x: PyTree) -> bool:
    """Say whether the distributions of a proposal have a `scale`; `x` is one observation."""
    found = []

    def probe(x: PyTree) -> jax.Array:
        found.append(hasattr(proposal(x), "scale"))
        return jnp.zeros(())

    jax.eval_shape(probe, x)
    return found[0]
