"""Bits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from aisle.errors import InputError
from aisle.models.likelihoods.base import (
    Features,
    Likelihood,
    Values,
    floats,
    supported_columns,
    without_missing,
)
from aisle.types import PRNGKey


class Bernoulli(Likelihood):
    """Independent bits, from logits; values 0 and 1, of any type.

    Example:
        >>> aisle.Bernoulli(2).mean(jnp.zeros(2)).tolist()
        [0.5, 0.5]
    """

    num_features: int = eqx.field(static=True)

    @classmethod
    def fitted(cls, x: ArrayLike) -> tuple["Bernoulli", np.ndarray]:
        """Fit the mean of each column, clipped to 0.001..0.999; see `Likelihood.fitted`."""
        columns = supported_columns(cls, x)
        return cls(columns.shape[1]), cls.initial_output(np.nanmean(columns, axis=0))

    @property
    def num_outputs(self) -> int:
        """A logit for each feature."""
        return self.num_features

    @property
    def support(self) -> str:
        """Which values can be observed, in words."""
        return "0 and 1; bits are drawn from values in [0, 1] by binarize='dynamic'"

    def log_probs(self, x: Values, output: Features) -> Features:
        """Return the log-probability of each feature."""
        return _log_bernoulli(x.astype(output.dtype), output)

    def sample(self, key: PRNGKey, output: Features) -> Features:
        """Draw bits, as 0.0 and 1.0."""
        return jax.random.bernoulli(key, self.mean(output)).astype(output.dtype)

    def mean(self, output: Features) -> Features:
        """Return E[x|z]."""
        return jax.nn.sigmoid(output)

    @staticmethod
    def is_supported(  # pyright: ignore[reportIncompatibleMethodOverride]
        values: np.ndarray,
    ) -> np.ndarray:
        """Say which values can be observed at all."""
        return (values == 0) | (values == 1)

    def standardise(self, x: Values) -> Features:
        """Return the bits as they are."""
        return without_missing(x, floats(x))

    @staticmethod
    def initial_output(mean: np.ndarray) -> np.ndarray:
        """Return the output whose mean is the training mean, clipped to 0.001..0.999."""
        if not np.all((mean >= 0) & (mean <= 1)):
            wrong = mean[~((mean >= 0) & (mean <= 1))][0]
            raise InputError(
                f"has the value {wrong:g}: the mean of bits is from 0 to 1; take "
                "likelihood=aisle.Gaussian for real values",
                argument="mean",
            )
        clipped = np.clip(mean, 0.001, 0.999)
        return np.log(clipped / (1 - clipped))


@jax.custom_jvp
def _log_bernoulli(x: Features, logits: Features) -> Features:
    # softplus without log1p, which is slow: the sum over features cannot hold what that would add.
    return x * logits - jnp.maximum(logits, 0) - jnp.log(1 + jnp.exp(-jnp.abs(logits)))


# The derivative in its closed form, x - sigmoid(logits): a leapfrog step that needs no value of
# log p is then spared the logarithm, which automatic differentiation of softplus would keep.
_log_bernoulli.defjvps(
    lambda dx, _, _x, logits: dx * logits,
    lambda dlogits, _, x, logits: dlogits * (x - jax.nn.sigmoid(logits)),
)
