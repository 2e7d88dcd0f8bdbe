"""What a run of training consists of: one phase after another, each with its own optimiser."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aisle.errors import InputError, check, check_positive, check_real
from aisle.learning.methods import AIS, VAE
from aisle.learning.optimizers import RATE_WITH_CHAINS, Muon, as_optimizer
from aisle.learning.protocol import Method, check_method
from aisle.objects import Chosen


@dataclass(frozen=True, repr=False)
class Phase(Chosen):
    """A stretch of training by one method.

    Example:
        >>> aisle.Phase(aisle.VAE(), aisle.Muon(0.02), share=0.5)  # doctest: +NORMALIZE_WHITESPACE
        aisle.Phase(method=aisle.VAE(num_samples=1), optimizer=aisle.Muon(learning_rate=0.02,
            schedule=aisle.rates.cosine, weight_decay=0.0), share=0.5)

    Attributes:
        method: see `aisle.Method`.
        optimizer: `aisle.Adam`, `aisle.Muon`, or any Optax transformation.
        share: of all updates, in proportion to the shares of the other phases.
    """

    method: Method
    optimizer: Any = Muon()
    share: float | int = 1.0

    def __post_init__(self) -> None:
        check_method(self.method)
        as_optimizer(self.optimizer)
        check_positive("share", self.share)


@dataclass(frozen=True, repr=False)
class Recipe(Chosen):
    """Phases that are trained one after another, as one run.

    The default is what was best in the same time on MNIST: a VAE, which is cheap and early on as
    good, then one chain of annealing for each example.

    Example:
        >>> recipe = aisle.Recipe()
        >>> [type(phase.method).__name__ for phase in recipe.phases]
        ['VAE', 'AIS']

    Attributes:
        phases: at least one.
        average: decay of a running average of the weights, which is then what is used; 0 for none.
    """

    phases: Sequence[Phase] = (
        Phase(VAE(), Muon(), 0.5),
        Phase(AIS(num_samples=1, num_temperatures=11), Muon(RATE_WITH_CHAINS), 0.5),
    )
    average: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "phases", tuple(self.phases))
        if not self.phases or not all(isinstance(p, Phase) for p in self.phases):
            raise InputError(f"is {self.phases!r}: give aisle.Phase objects", argument="phases")
        check_real("average", self.average)
        check(0 <= self.average < 1, "average", self.average, "at least 0 and below 1")

    def ends(self, num_updates: int) -> list[int]:
        """Return the update at which each phase ends."""
        whole = sum(phase.share for phase in self.phases)
        done = itertools.accumulate(phase.share for phase in self.phases)
        return [round(num_updates * part / whole) for part in done]


def as_recipe(method: Method | Recipe, optimizer: Any) -> Recipe:
    """Return the recipe that a method and an optimiser make."""
    if not isinstance(method, Recipe):
        check_method(method)
        usual = Muon(RATE_WITH_CHAINS) if hasattr(method, "kernel") else Muon()
        return Recipe((Phase(method, usual if optimizer is None else optimizer),))
    if optimizer is not None:
        raise InputError(
            "is given, but each phase of a recipe has its own: give it to aisle.Phase",
            argument="optimizer",
        )
    return method
