"""Optimisers whose learning rate spans a phase of training; any of Optax's will do as well."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from aisle.errors import InputError, check, check_positive, check_real
from aisle.learning import rates
from aisle.objects import Chosen

Schedule = Callable[[float, int, int], optax.Schedule]

# Vectors beside Muon's matrices learn by Adam, at this share of the matrices' rate.
_MUON_ADAM_SHARE = 0.05
# Muon's average of gradients, its polynomial a + b s^2 + c s^4 of singular values s, and how often
# that is applied.
_MUON_DECAY, _MUON_POLYNOMIAL, _MUON_STEPS = 0.95, (3.4445, -4.7750, 2.0315), 3


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
    """Base: a learning rate and how it changes.

    Attributes:
        learning_rate: the first one.
        schedule: a function such as those in `aisle.rates`.
        weight_decay: each update multiplies matrices by 1 - rate x this, as in AdamW.
    """

    learning_rate: float = 1e-3
    schedule: Schedule = rates.cosine
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        check_real("weight_decay", self.weight_decay)
        is_kept = 0 <= self.weight_decay < math.inf
        check(is_kept, "weight_decay", self.weight_decay, "finite, and 0 or more")
        if not callable(self.schedule):
            raise InputError(
                f"is {self.schedule!r}: give a function, such as aisle.rates.cosine",
                argument="schedule",
            )

    def _decay(self) -> list[optax.GradientTransformation]:
        # None for a decay of 0: optimisers' states on disk have no place for it.
        if not self.weight_decay:
            return []
        return [optax.add_decayed_weights(self.weight_decay, _matrices)]


@dataclass(frozen=True, repr=False)
class Adam(_Rated):
    """Adam, with the epsilon of the IWAE study.

    Example:
        >>> aisle.Adam(1e-3, aisle.rates.iwae_study)
        aisle.Adam(learning_rate=0.001, schedule=aisle.rates.iwae_study, weight_decay=0.0)
    """

    is_shared_out: ClassVar[bool] = False

    def build(self, num_updates: int, updates_per_epoch: int) -> optax.GradientTransformation:
        """Return the transformation for a phase of `num_updates`."""
        curve = self.schedule(self.learning_rate, num_updates, updates_per_epoch)
        return optax.chain(
            optax.scale_by_adam(eps=1e-4), *self._decay(), optax.scale_by_learning_rate(curve)
        )


# Chains make a noisier gradient of theta, and Muon did better at a lower rate.
RATE_WITH_CHAINS = 0.0075


@dataclass(frozen=True, repr=False)
class Muon(_Rated):
    """Muon, which orthogonalises the updates of matrices and leaves the rest to Adam.

    Example:
        >>> aisle.Muon()
        aisle.Muon(learning_rate=0.02, schedule=aisle.rates.cosine, weight_decay=0.0)
    """

    learning_rate: float = 0.02
    is_shared_out: ClassVar[bool] = True

    def build(self, num_updates: int, updates_per_epoch: int) -> optax.GradientTransformation:
        """Return the transformation for a phase of `num_updates`."""
        curve = self.schedule(self.learning_rate, num_updates, updates_per_epoch)
        matrices = optax.chain(
            optax.trace(_MUON_DECAY, nesterov=True),
            optax.stateless_with_tree_map(lambda matrix, _: orthogonalised(jnp.asarray(matrix))),
            *self._decay(),
            optax.scale_by_learning_rate(curve),
        )
        rest = optax.adam(lambda count: _MUON_ADAM_SHARE * curve(count), nesterov=True)
        return optax.partition({"matrix": matrices, "rest": rest}, _labels)


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


def orthogonalised(matrix: jax.Array) -> jax.Array:
    """Return a matrix of the same singular vectors whose singular values are about 1.

    Equinox's order (outputs, inputs) is assumed for the scale. Optax's Muon multiplies by the whole
    matrix in each of its five steps. Here the polynomial acts on the Gram matrix of the smaller
    side, three steps follow a tighter first scale, and one product ends it, for a part of the
    arithmetic: `python -m benchmarks.run optimisers` measures what an update costs.
    """
    rows, columns = matrix.shape
    wide = matrix if rows <= columns else matrix.T
    # Squares of gradients may be too small, or too large, for single precision.
    wide /= jnp.maximum(jnp.max(jnp.abs(wide)), jnp.finfo(wide.dtype).tiny)
    gram = wide @ wide.T
    # At least the square of the largest singular value, and less than the trace.
    size = jnp.maximum(jnp.linalg.norm(gram), jnp.finfo(gram.dtype).tiny)
    gram, (a, b, c), identity = gram / size, _MUON_POLYNOMIAL, jnp.eye(len(gram), dtype=gram.dtype)
    factor = identity
    for step in range(_MUON_STEPS):
        now = a * identity + b * gram + c * (gram @ gram)
        factor = now @ factor if step else now
        if step < _MUON_STEPS - 1:
            gram = now @ gram @ now
    found = factor @ wide * jax.lax.rsqrt(size)
    scale = max(1.0, rows / columns) ** 0.5
    return scale * (found if rows <= columns else found.T)


def _matrices(params: PyTree) -> PyTree:
    return jax.tree.map(lambda a: jnp.ndim(a) == 2, params)


def _labels(params: PyTree) -> PyTree:
    return jax.tree.map(lambda is_one: "matrix" if is_one else "rest", _matrices(params))
