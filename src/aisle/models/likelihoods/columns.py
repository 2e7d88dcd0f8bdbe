"""Tables whose columns are of different kinds."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from aisle.errors import InputError
from aisle.models.likelihoods.base import (
    Features,
    Likelihood,
    Outputs,
    Values,
    columns_of,
    reordered,
)
from aisle.models.likelihoods.counts import Counts, Exposure
from aisle.types import PRNGKey

Fit = Callable[[np.ndarray], tuple[Likelihood, np.ndarray]]


class Columns(Likelihood):
    """Columns of different kinds, each kind with a likelihood of its own.

    x is one array with a number for each column; categories have their codes. The output has all
    that the first likelihood takes, then all of the second, and so on.

    Example:
        >>> random = np.random.default_rng(0)
        >>> bits, counts = random.integers(0, 2, (50, 2)), random.poisson(9.0, (50, 1))
        >>> x = np.concatenate([bits, counts, random.normal(size=(50, 1))], axis=1)
        >>> kinds = [(aisle.Bernoulli, [0, 1]), (aisle.Poisson, [2]), (aisle.Gaussian, [3])]
        >>> likelihood, output = aisle.Columns.fitted(x, kinds)
        >>> likelihood.num_outputs
        4
    """

    parts: tuple[Likelihood, ...]
    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __init__(self, parts: Sequence[tuple[Likelihood, Sequence[int]]]):
        """Take likelihoods, and which columns each of them is of."""
        self.parts = tuple(part for part, _ in parts)
        self.columns = tuple(tuple(map(int, columns)) for _, columns in parts)
        for part, columns in zip(self.parts, self.columns, strict=True):
            if part.num_features != len(columns):
                raise InputError(
                    f"has a {type(part).__name__} of {part.num_features} features for "
                    f"{len(columns)} columns: give as many columns as features",
                    argument="parts",
                )
        _check_once(self.columns, self.num_features)

    @classmethod
    def fitted(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, x: ArrayLike, parts: Sequence[tuple[type[Likelihood] | Fit, Sequence[int]]]
    ) -> tuple["Columns", np.ndarray]:
        """Fit each family to its columns; see `Likelihood.fitted`.

        Args:
            x: training examples along the first axis; NaN is missing.
            parts: families with the columns that they are of. In place of a family, a function
                like its `fitted`: `lambda x: aisle.Gaussian.fitted(x, scale="of z")`.
        """
        values = columns_of(x)
        _check_once([columns for _, columns in parts], values.shape[1])
        fitted = [_fit(kind, values, list(columns)) for kind, columns in parts]
        pairs = zip(fitted, parts, strict=True)
        likelihood = cls([(own, columns) for (own, _), (_, columns) in pairs])
        return likelihood, np.concatenate([output for _, output in fitted])

    @property
    def num_features(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many columns there are."""
        return sum(map(len, self.columns))

    @property
    def num_outputs(self) -> int:
        """The outputs of all parts."""
        return sum(part.num_outputs for part in self.parts)

    @property
    def support(self) -> str:
        """Which values can be observed, in words."""
        kinds = (f"{type(part).__name__}: {part.support}" for part in self.parts)
        return f"columns of different kinds ({'; '.join(kinds)})"

    def log_probs(self, x: Values, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return the log-density of each column; the exposure is for those of counts."""
        blocks = zip(self.parts, self._columns_of(x), self._outputs(output), strict=True)
        return self._in_order([p.log_probs(v, o, **_for(p, exposure)) for p, v, o in blocks])

    def sample(self, key: PRNGKey, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Draw x."""
        keys = jax.random.split(key, len(self.parts))
        blocks = zip(self.parts, keys, self._outputs(output), strict=True)
        return self._in_order([p.sample(k, o, **_for(p, exposure)) for p, k, o in blocks])

    def mean(self, output: Outputs, exposure: Exposure = 1.0) -> Features:
        """Return E[x|z]."""
        blocks = zip(self.parts, self._outputs(output), strict=True)
        return self._in_order([p.mean(o, **_for(p, exposure)) for p, o in blocks])

    def is_supported(self, values: np.ndarray) -> np.ndarray:
        """Say which values can be observed at all; columns are along the last axis."""
        is_in = np.zeros(np.shape(values), bool)
        for part, columns in zip(self.parts, self.columns, strict=True):
            is_in[..., columns] = part.is_supported(values[..., columns])
        return is_in

    def standardise(self, x: Values) -> Float[Array, " inputs"]:
        """Return what an encoder should see of each part, one after another."""
        blocks = zip(self.parts, self._columns_of(x), strict=True)
        return jnp.concatenate([part.standardise(values) for part, values in blocks])

    def _columns_of(self, x: Values) -> list[Shaped[Array, " _"]]:
        return [x[np.asarray(columns)] for columns in self.columns]

    def _outputs(self, output: Outputs) -> list[Float[Array, " _"]]:
        return jnp.split(output, np.cumsum([part.num_outputs for part in self.parts])[:-1])

    def _in_order(self, blocks: list[Float[Array, " _"]]) -> Features:
        return reordered(blocks, [np.asarray(columns) for columns in self.columns])


def _for(part: Likelihood, exposure: Exposure) -> dict[str, Any]:
    return {"exposure": exposure} if isinstance(part, Counts | Columns) else {}


def _fit(kind: Any, values: np.ndarray, columns: list[int]) -> tuple[Likelihood, np.ndarray]:
    fit = kind.fitted if hasattr(kind, "fitted") else kind
    try:
        return fit(values[:, columns])
    except InputError as error:
        # Its columns are numbered from zero.
        raise InputError(error.message, argument=f"x[:, {columns}]") from None


def _check_once(columns: Sequence[Sequence[int]], number: int) -> None:
    """Refuse parts that leave a column out, or have it twice."""
    given = sorted(column for part in columns for column in part)
    if not columns or given != list(range(number)):
        raise InputError(
            f"are of the columns {given}: name each of 0 to {number - 1} once", argument="parts"
        )
