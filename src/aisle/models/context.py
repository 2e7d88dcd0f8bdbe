"""Which contexts a model of networks takes, and how they enter."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from aisle.context import Context
from aisle.errors import InputError, check_count, check_positive
from aisle.models.likelihoods import Columns, Counts, Likelihood


@dataclass(frozen=True)
class Takes:
    """Which parts of an `aisle.Context` a model takes.

    Attributes:
        num_conditions: numbers of the condition, 0 for none.
        has_missing: whether entries of x may be missing.
        has_exposure: whether examples have exposures.
        typical_exposure: the encoder sees the logarithm of an exposure over it.
    """

    num_conditions: int = 0
    has_missing: bool = False
    has_exposure: bool = False
    typical_exposure: float = 1.0

    def __post_init__(self) -> None:
        check_count("num_conditions", self.num_conditions, 0)
        check_positive("typical_exposure", self.typical_exposure)

    def check_likelihood(self, likelihood: Likelihood) -> None:
        """Refuse a likelihood that has no use for an exposure."""
        if self.has_exposure and not isinstance(likelihood, Counts | Columns):
            raise InputError(
                f"is True, but a {type(likelihood).__name__} likelihood has no exposure: take a "
                "family of counts, or leave it out",
                argument="has_exposure",
            )

    def checked(self, context: object) -> Context:
        """Return the context of one example, after refusing one that does not fit."""
        if not isinstance(context, Context):
            raise InputError(
                f"is a {type(context).__name__}: this model takes an aisle.Context",
                argument="context",
            )
        shape = None if context.condition is None else jnp.shape(context.condition)
        wanted = (self.num_conditions,) if self.num_conditions else None
        if shape != wanted:
            raise InputError(
                f"has {_described(shape)}, but the model {_described(wanted)}: give as many "
                "numbers for each example as num_conditions of mlp_model says",
                argument="context",
            )
        if (context.exposure is not None) != self.has_exposure:
            raise InputError(
                f"has {'no' if context.exposure is None else 'an'} exposure: give one if and only "
                "if the model was built with has_exposure=True",
                argument="context",
            )
        if context.is_observed is not None and not self.has_missing:
            raise InputError(
                "has is_observed, but the model was built without: has_missing=True of mlp_model "
                "makes one with missing values",
                argument="context",
            )
        return context

    def needed(self, context: Context | None) -> Context:
        """Return the context, or an empty one where none is needed."""
        if context is None and (self.num_conditions or self.has_exposure):
            raise InputError(
                "is not given, but the model takes conditions or exposures: give an aisle.Context "
                "with a row for each example",
                argument="context",
            )
        return Context() if context is None else context

    def num_inputs(self, num_features: int) -> int:
        """Return how many numbers an encoder sees beside those of x and of the condition."""
        return num_features * self.has_missing + self.has_exposure

    def inputs(
        self, context: Context | None, num_features: int, dtype: jnp.dtype
    ) -> list[Float[Array, " _"]]:
        """Return what an encoder sees beside those: what is observed, the log exposure."""
        context = self.needed(context)
        found = []
        if self.has_missing:
            is_observed = context.is_observed
            every = jnp.ones(num_features, bool) if is_observed is None else is_observed
            found.append(jnp.ravel(every).astype(dtype))
        if self.has_exposure:
            relative = jnp.asarray(context.exposure).astype(dtype) / self.typical_exposure
            found.append(jnp.log(relative)[None])
        return found


def _described(shape: tuple[int, ...] | None) -> str:
    return "no condition" if shape is None else f"a condition of shape {shape}"
