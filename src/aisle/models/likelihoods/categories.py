"""Categories."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from aisle.errors import InputError, check_count
from aisle.models.likelihoods.base import (
    Features,
    Likelihood,
    Outputs,
    Values,
    check_fits,
    columns_of,
    floats,
    reordered,
)
from aisle.types import PRNGKey

# What a level that never occurred has at the least, as for bits.
_LEAST_SHARE = 0.001


class Categorical(Likelihood):
    """Independent categories, from logits; values are codes from 0 to the number of levels less 1.

    Features may differ in their levels. The output has the logits of all features with the fewest
    levels first: those of level 0, of level 1 and so on; then those of the next number of levels.

    Example:
        >>> letters = np.array([[0, 2], [1, 3], [1, 0], [0, 1]])
        >>> likelihood, output = aisle.Categorical.fitted(letters)
        >>> likelihood.num_levels, likelihood.num_outputs
        ((2, 4), 6)
        >>> shares = jnp.exp(likelihood.log_probs(jnp.array([1, 3]), jnp.asarray(output)))
        >>> [round(float(share), 3) for share in shares]
        [0.5, 0.25]
    """

    num_levels: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, num_levels: Sequence[int]):
        """Take the number of levels of each feature."""
        for number in num_levels:
            check_count("num_levels", number)
        self.num_levels = tuple(map(int, num_levels))

    @classmethod
    def fitted(
        cls, x: ArrayLike, *, num_levels: int | Sequence[int] | None = None
    ) -> tuple["Categorical", np.ndarray]:
        """Fit the shares of the levels in each column, at least 0.001; see `Likelihood.fitted`.

        Args:
            x: training examples along the first axis; NaN is missing.
            num_levels: of each feature, or of all; by default the highest code in a column and
                those below.
        """
        columns = columns_of(x)
        if num_levels is None:
            # Codes that are none are refused below, by the support.
            highest = np.nanmax(np.where(np.isfinite(columns), columns, 0), axis=0)
            levels = [max(int(code), 0) + 1 for code in highest]
        elif isinstance(num_levels, int):
            levels = [num_levels] * columns.shape[1]
        else:
            levels = num_levels
        if len(levels) != columns.shape[1]:
            raise InputError(
                f"has {len(levels)} numbers for {columns.shape[1]} columns: give one for each, or "
                "one number for all",
                argument="num_levels",
            )
        likelihood = cls(levels)
        check_fits(likelihood, columns)
        logits = [_log_shares(columns[:, f], n).T for n, f in likelihood.groups]
        return likelihood, np.concatenate([block.ravel() for block in logits])

    @property
    def num_features(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers x has."""
        return len(self.num_levels)

    @property
    def num_outputs(self) -> int:
        """A logit for each level of each feature."""
        return sum(self.num_levels)

    @property
    def support(self) -> str:
        """Which values can be observed, in words."""
        fewest, most = min(self.num_levels), max(self.num_levels)
        if fewest == most:
            return f"whole numbers from 0 to {most - 1}"
        return f"whole numbers from 0 to, by column, {fewest - 1} to {most - 1}"

    @property
    def groups(self) -> list[tuple[int, np.ndarray]]:
        """Each number of levels, with the features that have it."""
        levels = np.asarray(self.num_levels)
        return [(int(n), np.flatnonzero(levels == n)) for n in np.unique(levels)]

    def log_probs(self, x: Values, output: Outputs) -> Features:
        """Return the log-probability of each feature."""
        blocks = zip(self.groups, self._logits(output), strict=True)
        values = [_log_softmax_at(floats(x[f], output), logits) for (_, f), logits in blocks]
        return self._in_order(values)

    def sample(self, key: PRNGKey, output: Outputs) -> Features:
        """Draw codes, as floats."""
        blocks = self._logits(output)
        keys = jax.random.split(key, len(blocks))
        draws = [jax.random.categorical(k, b, axis=0) for k, b in zip(keys, blocks, strict=True)]
        return self._in_order([draw.astype(output.dtype) for draw in draws])

    def mean(self, output: Outputs) -> Features:
        """Return the mean of the codes, which says something where levels are ordered."""

        def one(logits: Float[Array, "levels group"]) -> Float[Array, " group"]:
            return jnp.arange(len(logits), dtype=logits.dtype) @ jax.nn.softmax(logits, axis=0)

        return self._in_order([one(logits) for logits in self._logits(output)])

    def is_supported(self, values: np.ndarray) -> np.ndarray:
        """Say which values can be observed at all; features are along the last axes."""
        rows = np.reshape(values, (-1, self.num_features))
        is_code = (rows >= 0) & (rows < np.asarray(self.num_levels)) & (rows == np.floor(rows))
        return is_code.reshape(np.shape(values))

    def standardise(self, x: Values) -> Float[Array, " inputs"]:
        """Return one-hot codes, in the order of the logits."""
        blocks = [_is_level(floats(x)[f], n) for n, f in self.groups]
        return jnp.concatenate([block.astype(floats(x).dtype).ravel() for block in blocks])

    def _logits(self, output: Outputs) -> list[Float[Array, "_ _"]]:
        ends = np.cumsum([n * len(features) for n, features in self.groups])
        blocks = jnp.split(output, ends[:-1])
        return [b.reshape(n, -1) for (n, _), b in zip(self.groups, blocks, strict=True)]

    def _in_order(self, blocks: list[Float[Array, " _"]]) -> Features:
        return reordered(blocks, [features for _, features in self.groups])


def _is_level(codes: Float[Array, " group"], num_levels: int) -> Shaped[Array, "levels group"]:
    return codes[None] == jnp.arange(num_levels, dtype=codes.dtype)[:, None]


def _log_softmax_at(
    codes: Float[Array, " group"], logits: Float[Array, "levels group"]
) -> Float[Array, " group"]:
    # Where instead of an index: the gradient of an index is a scatter, which is slow. NumPyro's
    # CategoricalLogits wants levels along the last axis, where their sum is slow too.
    shifted = logits - jax.lax.stop_gradient(jnp.max(logits, axis=0, keepdims=True))
    chosen = jnp.sum(jnp.where(_is_level(codes, len(logits)), shifted, 0), axis=0)
    return chosen - jnp.log(jnp.sum(jnp.exp(shifted), axis=0))


def _log_shares(columns: np.ndarray, num_levels: int) -> np.ndarray:
    counts = np.stack([np.sum(columns == level, axis=0) for level in range(num_levels)], axis=-1)
    shares = np.maximum(counts / counts.sum(axis=-1, keepdims=True), _LEAST_SHARE)
    return np.log(shares / shares.sum(axis=-1, keepdims=True))
