"""What stands beside examples: their context, and how much they count."""

from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import PyTree

from aisle.context import Context
from aisle.data.split import Split
from aisle.errors import InputError


def checked_context(arrays: PyTree, context: PyTree | None) -> PyTree | None:
    """Return a context as arrays, after refusing one that is not of the examples."""
    number = len(jax.tree.leaves(arrays)[0])
    for leaf in jax.tree.leaves(context):
        values = np.asarray(leaf)
        if values.dtype.kind not in "buif" or values.shape[:1] != (number,):
            raise InputError(
                f"has an array of shape {values.shape} and type {values.dtype} for {number} "
                "examples: give numbers, with a row for each example",
                argument="context",
            )
        if not np.isfinite(values).all():
            raise InputError(
                f"has the value {values[~np.isfinite(values)][0]}: give finite numbers",
                argument="context",
            )
    context = jax.tree.map(np.asarray, context)
    if isinstance(context, Context):
        _check_own(arrays, context)
    return context


def _check_own(arrays: PyTree, context: Context) -> None:
    if context.is_observed is not None:
        shapes = jax.tree.map(np.shape, arrays)
        found = jax.tree.map(np.shape, context.is_observed)
        kinds = {a.dtype.name for a in jax.tree.leaves(context.is_observed)}
        if found != shapes or kinds != {"bool"}:
            raise InputError(
                f"has an is_observed of shape {found} and type {', '.join(sorted(kinds))}: give "
                f"booleans of the shape of x, {shapes}",
                argument="context",
            )
    if context.exposure is not None and not (
        context.exposure.ndim == 1 and np.all(context.exposure > 0)
    ):
        raise InputError(
            f"has an exposure of shape {context.exposure.shape}, from {context.exposure.min():g} "
            "on: give one positive number for each example",
            argument="context",
        )


def check_weights(split: Split) -> None:
    """Refuse weights that are not of the examples, or leave nothing to learn from."""
    if split.weights is None:
        return
    number = len(jax.tree.leaves(split.arrays)[0])
    weights = np.asarray(split.weights)
    is_number = weights.dtype.kind in "buif"
    if not is_number or weights.shape != (number,) or not np.isfinite(weights).all():
        raise InputError(
            f"have the shape {weights.shape} and type {weights.dtype} for {number} examples: give "
            "one finite number for each example",
            argument="weights",
        )
    own = weights[split.numbers(np.arange(len(split)))]
    if own.min() < 0 or not own.any():
        raise InputError(
            f"are from {own.min():g} to {own.max():g}: none may be negative, and not all zero",
            argument="weights",
        )


def leaves_with_masks(split: Split) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
    """Yield all stored values by blocks: first example, values, and which of them count.

    The last is None where a context does not say; NaN may then be missing.
    """
    context, start = split.context, 0
    is_observed = context.is_observed if isinstance(context, Context) else None
    for block in split.chunks():
        leaves = jax.tree.leaves(block)
        rows = split.numbers(np.arange(start, start + len(leaves[0])))
        masks = [mask[rows] for mask in jax.tree.leaves(is_observed)] or [None] * len(leaves)
        for leaf, mask in zip(leaves, masks, strict=True):
            yield start, leaf, mask
        start += len(leaves[0])
