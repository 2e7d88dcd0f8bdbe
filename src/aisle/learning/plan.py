"""How to train, whatever the model and the data: a plan that checks itself."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import PyTree

from aisle.errors import InputError, check_count, check_seed
from aisle.learning.history import report
from aisle.learning.looks import Callback, EarlyStopping, Validation
from aisle.learning.recipe import Recipe

# Where nobody says how long: passes over the data, and the updates that are the least.
_USUAL_EPOCHS, _LEAST_UPDATES = 100, 5_000

Freeze = Callable[[Any, Any], PyTree]


@dataclass(frozen=True)
class Plan:
    """How to train, whatever the model and the data.

    Attributes:
        recipe: phases with their methods and optimisers.
        num_epochs: passes over the data.
        num_updates: the same in updates; give one of both, or neither.
        batch_size: examples of an update, at most as many as there are.
        seed: of the order of the data and of all draws.
        validation: held-out examples, or None.
        callbacks: called after each epoch.
        freeze: which parts of (model, proposal) are not trained, or None.
        ends: updates at which phases end, where a run has already fixed that.
    """

    recipe: Recipe
    num_epochs: int | None = None
    num_updates: int | None = None
    batch_size: int = 128
    seed: int = 0
    validation: Validation | None = None
    callbacks: tuple[Callback, ...] = ()
    freeze: Freeze | None = None
    ends: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.num_epochs is not None and self.num_updates is not None:
            raise InputError("give num_epochs or num_updates, and not both")
        for name in ("num_epochs", "num_updates"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("batch_size", self.batch_size)
        check_seed(self.seed)
        # Of Python's kind, as they are written down.
        for name in ("num_epochs", "num_updates", "batch_size", "seed"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else int(value))
        for callback in self.callbacks:
            if not callable(callback):
                raise InputError(
                    f"has {callback!r}: give functions of (metrics, state)", argument="callbacks"
                )
            if isinstance(callback, EarlyStopping) and self.validation is None:
                raise InputError(
                    f"has {callback!r} but nothing is held out: give held_out",
                    argument="callbacks",
                )

    def fitted_to(self, num_examples: int) -> "Plan":
        """Return the plan for so many examples: a batch that they fill, ends of all phases."""
        plan = self
        if self.batch_size > num_examples:
            report(
                f"batch_size is {self.batch_size} but there are {num_examples} examples: each "
                "batch has all of them"
            )
            plan = dataclasses.replace(plan, batch_size=num_examples)
        return dataclasses.replace(plan, ends=tuple(plan._ends(num_examples)))

    def _ends(self, num_examples: int) -> list[int]:
        length = self.length(num_examples)
        if self.ends is None:
            return self.recipe.ends(length)
        if self.num_epochs is None and self.num_updates is None:
            return list(self.ends)
        if length < self.ends[-1]:
            raise InputError(
                f"{length:,} updates are asked for but the run was planned for {self.ends[-1]:,}: "
                "a run can be extended, not cut"
            )
        return [*self.ends[:-1], length]

    def length(self, num_examples: int) -> int:
        """Return the updates of the whole training."""
        per_epoch = num_examples // min(self.batch_size, num_examples)
        if self.num_updates is not None:
            return self.num_updates
        if self.num_epochs is not None:
            return self.num_epochs * per_epoch
        usual = max(_USUAL_EPOCHS * per_epoch, _LEAST_UPDATES)
        return math.ceil(usual / per_epoch) * per_epoch
