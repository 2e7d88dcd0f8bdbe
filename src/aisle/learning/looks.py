"""What is looked at between updates: held-out examples, callbacks, early stopping."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle.annealing.tiles import map_tiles
from aisle.context import InContext, bind
from aisle.data import Split, as_split, spread
from aisle.errors import InputError, check_count
from aisle.learning.methods import importance_bound
from aisle.learning.protocol import Method
from aisle.learning.updates import TrainState
from aisle.objects import Chosen
from aisle.statistics import Mean, summarise
from aisle.types import Model, Observation, PRNGKey, Proposal, Scalar

# Held-out examples of a bound, samples of each where the method has no bound of its own, and
# the share of the gradients of training that bounds may cost where nobody says how often.
NUM_EXAMPLES, _NUM_SAMPLES, _LARGEST_SHARE = 512, 64, 0.1
# Examples whose samples are alive at once.
_TILE = 64


@dataclass(frozen=True, repr=False)
class Validation(Chosen):
    """Examples to validate on, and what follows from that.

    Example:
        >>> aisle.Validation(np.zeros((10, 4)), keep="last").keep
        'last'

    Attributes:
        x: held-out examples, as those to train on.
        every: epochs between two bounds; by default as often as costs a tenth of training.
        keep: "best" to use the weights of the highest bound of the last phase, those that it starts
            from included, "last" to use the last ones.
        context: of the held-out examples, where those to train on have one.
    """

    x: Any
    every: int | None = None
    keep: str = "best"
    context: Any = None

    def __post_init__(self) -> None:
        if self.every is not None:
            check_count("every", self.every)
        if self.keep not in ("best", "last"):
            raise InputError(f"is {self.keep!r}: choose from best, last", argument="keep")


class Look(NamedTuple):
    """What a callback is given, after each epoch or, where epochs are short, some of them.

    Attributes:
        update: updates made so far.
        epoch: the same in passes over the data.
        phase: number of the phase, from 0.
        is_last_phase: whether no other phase follows.
        bound: mean bound of the training examples since the last look.
        held_out: bound on held-out examples, or None if it was not measured this time.
        num_since_best: bounds on held-out examples since the best one of this phase.
        model: with its weights at this time.
        proposal: likewise.
    """

    update: int
    epoch: float
    phase: int
    is_last_phase: bool
    bound: float
    held_out: Mean | None
    num_since_best: int
    model: Any
    proposal: Any


@runtime_checkable
class Callback(Protocol):
    """Called after each epoch; training ends if it returns True."""

    def __call__(self, metrics: Look, state: TrainState) -> bool | None:
        """Look at the training; copy what is to be kept of `state`, whose memory is used again."""
        ...


@dataclass(frozen=True, repr=False)
class EarlyStopping(Chosen):
    """End training when the bound on held-out examples has not risen for some time.

    It acts in the last phase only: a recipe goes through the phases before at their full length.

    Example:
        >>> aisle.EarlyStopping(patience=20)
        aisle.EarlyStopping(patience=20)

    Attributes:
        patience: bounds on held-out examples to wait for a higher one.
    """

    patience: int = 10

    def __post_init__(self) -> None:
        check_count("patience", self.patience)

    def __call__(self, metrics: Look, state: TrainState | None) -> bool:
        """Say whether to end."""
        del state
        return metrics.is_last_phase and metrics.num_since_best >= self.patience


class Bounder:
    """Bounds log p of held-out examples, by the bound that belongs to a method."""

    def __init__(self, x: Any, key: PRNGKey):
        """Choose examples evenly; the draws are the same at each look, so that looks compare."""
        self.split: Split = as_split(x, "the held-out data")
        chosen = spread(len(self.split), NUM_EXAMPLES)
        self._xs = self.split.with_context(self.split.observe(chosen), chosen)
        self._key = key
        self._numbers = jnp.asarray(self.split.numbers(chosen), jnp.int32)

    def __call__(self, method: Method, weights: tuple[Model, Proposal], state: PyTree) -> Mean:
        """Return the mean bound with its standard error."""
        found = _bounds(method, weights, state, self._key, self._numbers, self._xs)
        return summarise(np.asarray(found, float))

    def interval(self, method: Method, gradients_per_epoch: int) -> int:
        """Return the epochs between two bounds that keep their cost small."""
        each = getattr(method, "bound_gradients", _NUM_SAMPLES)
        cost = len(self._numbers) * each
        return max(1, math.ceil(cost / (_LARGEST_SHARE * gradients_per_epoch)))


@eqx.filter_jit
def _bounds(
    method: Method,
    weights: tuple[Model, Proposal],
    state: PyTree,
    key: PRNGKey,
    numbers: jax.Array,
    xs: PyTree,
) -> jax.Array:
    bound: Callable[..., Scalar] = getattr(method, "bound", _importance)

    def one(item: tuple[jax.Array, Observation | InContext]) -> Scalar:
        number, example = item
        return bound(jax.random.fold_in(key, number), *bind(*weights, example), state)

    return map_tiles(one, (numbers, xs), _TILE)


def _importance(
    key: PRNGKey, model: Model, proposal: Proposal, x: Observation, state: PyTree
) -> Scalar:
    del state
    return importance_bound(key, model, proposal, x, _NUM_SAMPLES)
