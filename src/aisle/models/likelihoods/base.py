"""What every family of likelihoods has in common, and the units of a table's columns."""

import abc
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from aisle.errors import InputError
from aisle.types import PRNGKey, Scalar

_Self = TypeVar("_Self", bound="Likelihood")

# Of one example: x as it is stored, real numbers for each feature, and what a decoder gives.
Values = Shaped[Array, " features"]
Features = Float[Array, " features"]
Outputs = Float[Array, " outputs"]


class Likelihood(eqx.Module):
    """What a decoder's output says about one example: p(x|z), with independent features.

    Subclass it for a family of your own. An output is a vector of `num_outputs` numbers: the first
    parameter of each feature, then the second one of each, and so on. Zero must have a finite
    log-density and gradient even where it is outside the support, so that a missing entry can be
    set to zero and its term left out. Arrays of floats are trained, but for those in `Units`.

    Example:
        >>> counts = np.random.default_rng(0).poisson(4.0, (100, 3))
        >>> likelihood, output = aisle.Poisson.fitted(counts)
        >>> isinstance(likelihood, aisle.Likelihood), likelihood.num_outputs, output.shape
        (True, 3, (3,))
    """

    num_features: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def num_outputs(self) -> int:
        """How many numbers of the decoder it takes."""

    @property
    @abc.abstractmethod
    def support(self) -> str:
        """Which values can be observed, in words."""

    @classmethod
    @abc.abstractmethod
    def fitted(cls: type[_Self], x: ArrayLike) -> tuple[_Self, np.ndarray]:
        """Return the family and the output for which each feature has the law of its column.

        A decoder whose output bias is that output, and whose weights add nothing to it, is the
        independent model of the training data.

        Args:
            x: training examples along the first axis; NaN is missing.
        """

    @abc.abstractmethod
    def log_probs(self, x: Values, output: Outputs) -> Features:
        """Return the log-density of each feature, in the units of x."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey, output: Outputs) -> Features:
        """Draw x, as floats."""

    @abc.abstractmethod
    def mean(self, output: Outputs) -> Features:
        """Return E[x|z]."""

    @abc.abstractmethod
    def is_supported(self, values: np.ndarray) -> np.ndarray:
        """Say which values can be observed at all; features are along the last axes."""

    @abc.abstractmethod
    def standardise(self, x: Values) -> Float[Array, " inputs"]:
        """Return what an encoder should see: numbers of order one, and 0 for NaN.

        Of arrays it may use those in `Units` only.
        """

    def log_prob(self, x: Values, output: Outputs, **given: Any) -> Scalar:
        """Return log p(x|z), the sum of `log_probs`, which takes what else is `given`."""
        return jnp.sum(self.log_probs(x, output, **given))


class Units(eqx.Module):
    """Location and scale of each column: constants, which no gradient reaches.

    They are arrays of floats like all weights, so that files of weights hold them. An optimiser
    that changes weights without a gradient, by weight decay, needs
    `freeze=lambda model, proposal: (model.likelihood.units, proposal.likelihood.units)`.
    """

    location: Features
    scale: Features

    @classmethod
    def of(cls, location: np.ndarray, scale: np.ndarray) -> "Units":
        """Return the units of columns; the scale of a column of one value is 1."""
        return cls(jnp.asarray(location, float), jnp.asarray(np.where(scale > 0, scale, 1), float))

    @classmethod
    def fitted(cls, columns: np.ndarray) -> "Units":
        """Return mean and standard deviation of columns."""
        return cls.of(np.nanmean(columns, axis=0), np.nanstd(columns, axis=0))

    @property
    def log_scale(self) -> Features:
        """What a density in these units is divided by, as a logarithm."""
        return jax.lax.stop_gradient(jnp.log(self.scale))

    def inwards(self, x: Features) -> Features:
        """Return x in these units."""
        location, scale = jax.lax.stop_gradient((self.location, self.scale))
        return (x - location) / scale

    def outwards(self, x: Features) -> Features:
        """Return what was in these units in those of the data."""
        location, scale = jax.lax.stop_gradient((self.location, self.scale))
        return location + scale * x


def constants_of(likelihood: _Self) -> _Self:
    """Return a copy that holds its units alone: what `standardise` needs.

    An encoder has it. Arrays that are also in the model would be trained twice.
    """

    def is_units(node: object) -> bool:
        return isinstance(node, Units)

    def kept(node: object) -> Units | None:
        return jax.tree.map(jnp.copy, node) if isinstance(node, Units) else None

    return jax.tree.map(kept, likelihood, is_leaf=is_units)


def columns_of(x: ArrayLike) -> np.ndarray:
    """Return training examples as a table of real numbers, NaN where one is missing."""
    values = np.asarray(x, np.float64)
    if values.ndim < 2 or not values.size:
        raise InputError(
            f"has the shape {values.shape}: give examples along the first axis and their features "
            "along the others",
            argument="x",
        )
    values = values.reshape(len(values), -1)
    is_empty = np.isnan(values).all(axis=0)
    if is_empty.any():
        raise InputError(
            f"has no value in column {np.argmax(is_empty)}: all are missing; drop the column",
            argument="x",
        )
    return values


def check_fits(likelihood: Likelihood, columns: np.ndarray) -> None:
    """Refuse training data that a family cannot have made."""
    is_wrong = ~(likelihood.is_supported(columns) | np.isnan(columns))
    if is_wrong.any():
        raise InputError(
            f"has the value {columns[is_wrong][0]:g} in column "
            f"{np.argmax(is_wrong.any(axis=0))}, but a {type(likelihood).__name__} likelihood is "
            f"of {likelihood.support}",
            argument="x",
        )


def supported_columns(family: Any, x: ArrayLike) -> np.ndarray:
    """Return training examples as `columns_of`, for a family that is made of its number alone."""
    columns = columns_of(x)
    check_fits(family(columns.shape[1]), columns)
    return columns


def log_of_each(value: ArrayLike | float, num_features: int) -> Features:
    """Return the logarithm of a parameter of each feature, of which one may be given for all."""
    return jnp.log(jnp.broadcast_to(jnp.asarray(value, float), (num_features,)))


def floats(x: Values, like: Array | None = None) -> Features:
    """Return x as real numbers of the type of an output, or of JAX's own."""
    return x.astype(jnp.result_type(float) if like is None else like.dtype)


def without_missing(x: Values, values: Features) -> Features:
    """Return `values`, but 0 where x is NaN."""
    return jnp.where(jnp.isnan(floats(x)), 0, values)


def reordered(blocks: Sequence[Shaped[Array, " _"]], places: Sequence[np.ndarray]) -> Values:
    """Return the blocks as one vector, each number at its place."""
    values = jnp.concatenate(list(blocks)) if len(blocks) > 1 else blocks[0]
    order = np.concatenate(places)
    if np.array_equal(order, np.arange(len(order))):
        return values
    return values[np.argsort(order)]
