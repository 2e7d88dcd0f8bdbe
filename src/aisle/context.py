"""What belongs to an example and is not modelled: conditions, exposures, what is missing."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle.errors import InputError
from aisle.types import Model, Observation, Proposal


class Context(NamedTuple):
    """The context that aisle's own models take; a model of your own may take any pytree.

    Pass it for all examples, along the first axis of each array; a model is given that of one.

    Example:
        >>> x = np.array([[1.0, np.nan], [2.0, 3.0]])
        >>> context = aisle.Context(is_observed=~np.isnan(x))
        >>> model = aisle.LinearGaussian(jnp.ones((2, 1)), jnp.zeros(2), jnp.array(0.0))
        >>> one = model.given(jax.tree.map(lambda a: a[0], context))
        >>> round(float(one.log_marginal(jnp.array([1.0, jnp.nan]))), 2)  # log N(1; 0, 2)
        -1.52

    Attributes:
        is_observed: which entries of x count, booleans like x; None for all.
        condition: a vector that the model is conditional on.
        exposure: a positive number that the means of counts are multiplied by.
    """

    is_observed: Any = None
    condition: Any = None
    exposure: Any = None


class InContext(NamedTuple):
    """Examples with their context; where there is none, examples go about without this."""

    x: PyTree
    context: PyTree


def in_context(x: PyTree, context: PyTree | None) -> PyTree | InContext:
    """Return examples with their context, if there is one."""
    return x if context is None else InContext(x, context)


def parts_of(example: PyTree | InContext) -> tuple[PyTree, PyTree | None]:
    """Return x and its context, or None."""
    return example if isinstance(example, InContext) else (example, None)


def given(part: Any, context: PyTree | None) -> Any:
    """Return a model, or a proposal, of one example in its context, if it has one."""
    if context is None:
        return part
    if not hasattr(part, "given"):
        raise InputError(
            f"a {type(part).__name__} has no given(context), but the examples have a context: add "
            "that method, which returns it for one example, or leave the context out"
        )
    return part.given(context)


def bind(
    model: Model, proposal: Proposal, example: Observation | InContext
) -> tuple[Model, Proposal, Observation]:
    """Return model and proposal as they are for one example, and its x.

    This is the one place where context is bound: from here on, everybody sees a model, a proposal
    and an x.
    """
    x, context = parts_of(example)
    return given(model, context), given(proposal, context), x


def masked(x: PyTree, context: PyTree | None) -> Context:
    """Return the context in which NaN is missing."""
    is_observed = jax.tree.map(_is_number, x)
    if context is None:
        return Context(is_observed)
    if not isinstance(context, Context):
        raise InputError(
            f"is a {type(context).__name__} and x has missing values: give an aisle.Context, or "
            "say in your own which values are observed, and fill them in x",
            argument="context",
        )
    if context.is_observed is not None:
        is_observed = jax.tree.map(lambda a, b: a & b, is_observed, context.is_observed)
    return context._replace(is_observed=is_observed)


def has_nan(x: PyTree) -> bool:
    """Say whether examples have NaN, which stands for a missing value."""
    return not all(bool(np.all(_is_number(np.asarray(leaf)))) for leaf in jax.tree.leaves(x))


def _is_number(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, bool)
    is_float = jnp.issubdtype(values.dtype, jnp.floating)
    return ~jnp.isnan(values) if is_float else jnp.ones(values.shape, bool)
