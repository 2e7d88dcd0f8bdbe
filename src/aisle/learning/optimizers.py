"""Optimisers whose learning rate spans a phase of training; any of Optax's will do as well."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from aisle.errors import InputError, check_positive
from aisle.learning import rates
from aisle.objects import Chosen

Schedule = Callable[[float, int, int], optax.Schedule]

# Vectors beside Muon's matrices learn by Adam, at this share of the matrices' rate.
_MUON_ADAM_SHARE = 0.05


@runtime_checkable
class Optimizer(Protocol):
    """Makes an Optax transformation once the length of a phase is known."""

    # Whether each network is stepped on a device of its own and not on all of them, which pays for
    # itself if the optimiser multiplies matrices.
    is_shared_out: ClassVar[bool]

    def build(self, num_updates: int, updates_per_epoch: int) -> optax.GradientTransformation:
        """Return the transformation for a phase of `num_updates`."""
        ...


@dataclass(frozen=True, repr=False)
class _Rated(Chosen):
    """Base: a learning rate and how it changes."""

    learning_rate: float = 1e-3
    schedule: Schedule = rates.cosine

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        if not callable(self.schedule):
            raise InputError(
                f"is {self.schedule!r}: give a function, such as aisle.rates.cosine",
                argument="schedule",
            )


@dataclass(frozen=True, repr=False)
class Adam(_Rated):
    """Adam, with the epsilon of the IWAE study.

    Example:
        >>> aisle.Adam(1e-3, aisle.rates.iwae_study)
        aisle.Adam(learning_rate=0.001, schedule=aisle.rates.iwae_study)
    """

    is_shared_out: ClassVar[bool] = False

    def build(self, num_updates: int, updates_per_epoch: int) -> optax.GradientTransformation:
        """Return the transformation for a phase of `num_updates`."""
        return optax.adam(
            self.schedule(self.learning_rate, num_updates, updates_per_epoch), eps=1e-4
        )


@dataclass(frozen=True, repr=False)
class Muon(_Rated):
    """Muon, which orthogonalises the updates of matrices and leaves the rest to Adam.

    Example:
        >>> aisle.Muon()
        aisle.Muon(learning_rate=0.02, schedule=aisle.rates.cosine)
    """

    learning_rate: float = 0.02
    is_shared_out: ClassVar[bool] = True

    def build(self, num_updates: int, updates_per_epoch: int) -> optax.GradientTransformation:
        """Return the transformation for a phase of `num_updates`."""
        curve = self.schedule(self.learning_rate, num_updates, updates_per_epoch)
        return contrib.muon(
            curve,
            adam_learning_rate=lambda count: _MUON_ADAM_SHARE * curve(count),
            muon_weight_dimension_numbers=_matrices,
        )


@dataclass(frozen=True)
class Given:
    """A transformation of Optax's as it was given."""

    transformation: optax.GradientTransformation
    is_shared_out: ClassVar[bool] = False

    def build(self, num_updates: int, updates_per_epoch: int) -> optax.GradientTransformation:
        """Return the transformation, whatever the length of the phase."""
        del num_updates, updates_per_epoch
        return self.transformation


def as_optimizer(given: Any) -> Optimizer:
    """Return what was given as an optimiser, or refuse it."""
    if isinstance(given, optax.GradientTransformation):
        return Given(given)
    if isinstance(given, Optimizer):
        return given
    raise InputError(
        f"is {given!r}: give an Optax transformation such as optax.adam(1e-3), or aisle.Adam() or "
        "aisle.Muon()",
        argument="optimizer",
    )


def _matrices(params: optax.Params) -> optax.Params:
    """Mark matrices as (outputs, inputs), Equinox's order; the rest is left to Adam."""
    dimensions = contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=0)
    return jax.tree.map(lambda a: dimensions if jnp.ndim(a) == 2 else None, params)
