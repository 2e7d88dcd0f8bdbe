"""The choice of a kernel: which schedule, which transition, which acceptance.

`paper` is what Ding & Freedman (2020) describe: no preconditioning, fresh momentum at each
transition. `tuned` is what was tightest for the same number of gradients on trained models
(`results/kernels`): the encoder's scale as preconditioner, short trajectories, and momentum that
is partly kept. In training it also stays at the posterior for the second half of its moves: its
weights are less tight for it, but its samples are better ones to learn from (`results/gradients`,
`results/tables/recipes.md`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle.annealing import schedules
from aisle.annealing.ais import Ladder
from aisle.annealing.hmc import HMC
from aisle.annealing.schedules import Betas
from aisle.annealing.transition import Transition
from aisle.annealing.tuning import StepSizes
from aisle.errors import InputError, check, check_real
from aisle.objects import Chosen
from aisle.types import Proposal

Schedule = Callable[[int], Betas] | Sequence[Any] | jax.Array | np.ndarray


@dataclass(frozen=True, repr=False)
class Kernel(Chosen):
    """What annealing is made of, whatever the number of temperatures.

    Example:
        >>> aisle.Kernel.paper()  # doctest: +NORMALIZE_WHITESPACE
        aisle.Kernel(schedule=aisle.schedules.linear,
            transition=aisle.HMC(num_leapfrog=5, refresh=1.0, precondition=0.0), target_accept=0.6)
        >>> kernel = aisle.Kernel.tuned(schedule=[0.0, 0.1, 0.4, 1.0])
        >>> kernel.betas(3).shape
        (4,)

    Attributes:
        schedule: a function from T to T + 1 inverse temperatures, such as those in
            `aisle.schedules`, or the inverse temperatures themselves.
        transition: what moves a chain at one temperature; see `aisle.Transition`.
        target_accept: acceptance that the step size of each temperature is adapted towards.
    """

    schedule: Schedule = schedules.ramp
    transition: Transition = HMC(num_leapfrog=2, refresh=0.6, precondition=0.75)
    target_accept: float = 0.8

    def __post_init__(self) -> None:
        if not callable(self.schedule):
            betas = np.asarray(self.schedule, np.float64)
            schedules.explicit(betas)
            # A tuple, so that kernels can be compared and hashed.
            object.__setattr__(self, "schedule", tuple(betas.tolist()))
        if isinstance(self.transition, type) or not isinstance(self.transition, Transition):
            raise InputError(
                f"is a {type(self.transition).__name__}: give an object with init, step and "
                "step_reversed, such as aisle.HMC()",
                argument="transition",
            )
        check_real("target_accept", self.target_accept)
        check(0 < self.target_accept < 1, "target_accept", self.target_accept, "between 0 and 1")

    @classmethod
    def tuned(cls, *, is_long: bool = False, **changes: object) -> "Kernel":
        """Return what was best on trained models; `is_long` for runs whose weights are reported."""
        hmc = HMC(num_leapfrog=4 if is_long else 2, refresh=0.6, precondition=0.75)
        usual = cls(schedules.sigmoid if is_long else schedules.ramp, hmc, 0.8)
        return dataclasses.replace(usual, **changes)

    @classmethod
    def paper(cls, *, is_long: bool = False, **changes: object) -> "Kernel":
        """Return the paper's kernel; `is_long` for that of the literature on evaluation."""
        usual = cls(schedules.linear, HMC(num_leapfrog=5), 0.6)
        if is_long:
            usual = cls(schedules.sigmoid, HMC(num_leapfrog=10), 0.65)
        return dataclasses.replace(usual, **changes)

    def betas(self, num_temperatures: int) -> Betas:
        """Return the T + 1 inverse temperatures."""
        if callable(self.schedule):
            # At once, also while a program is being compiled: they are constants of it.
            with jax.ensure_compile_time_eval():
                return schedules.explicit(self.schedule(num_temperatures))
        betas = schedules.explicit(np.asarray(self.schedule))
        if len(betas) != num_temperatures + 1:
            raise InputError(
                f"is {num_temperatures} but the schedule has {len(betas)} inverse temperatures: "
                "give one more than temperatures, or a function of their number",
                argument="num_temperatures",
            )
        return betas

    def ladder(
        self,
        num_temperatures: int,
        step_sizes: StepSizes | None = None,
        *,
        last_move: bool = True,
    ) -> Ladder:
        """Return the ladder of T temperatures; by default with the first step sizes."""
        if step_sizes is None:
            step_sizes = self.first_step_sizes(num_temperatures)
        return Ladder(self.betas(num_temperatures), step_sizes, self.transition, last_move)

    def first_step_sizes(self, num_temperatures: int) -> StepSizes:
        """Return step sizes to start tuning from."""
        return jnp.full(num_temperatures, self.transition.first_step_size, jnp.float32)

    def suited_to(self, proposal: Proposal, x: PyTree) -> "Kernel":
        """Return the kernel for a proposal; one without a `scale` has nothing to precondition by.

        Args:
            proposal: an encoder.
            x: one observation, or its shape.
        """
        hmc = self.transition
        if not isinstance(hmc, HMC) or not hmc.precondition or has_scale(proposal, x):
            return self
        return dataclasses.replace(self, transition=dataclasses.replace(hmc, precondition=0.0))


def has_scale(proposal: Proposal, x: PyTree) -> bool:
    """Say whether the distributions of a proposal have a `scale`; `x` is one observation."""
    found = []

    def probe(x: PyTree) -> jax.Array:
        found.append(hasattr(proposal(x), "scale"))
        return jnp.zeros(())

    jax.eval_shape(probe, x)
    return found[0]
