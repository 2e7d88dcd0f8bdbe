"""Checks of examples before anything is learned from them, and remarks on what looks odd."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from aisle.data.beside import check_weights, checked_context, leaves_with_masks
from aisle.data.split import Split
from aisle.errors import InputError

# How far values range in a feature that was standardised, with a wide margin.
_USUAL_RANGES = (0.05, 100.0)
# Rows that are enough to find columns of which exactly one is set.
_ROWS_OF_ONE_HOT = 1000


class Checked(Split):
    """Examples whose values were looked at: nobody needs to read them all again."""


def as_split(
    x: Any, source: str = "the data", context: PyTree | None = None, model: Any = None
) -> Checked:
    """Return examples as a split, after refusing what are none.

    Args:
        x: examples along the first axis, or a split.
        source: what to call them.
        context: of the examples, where x is not a split that has it.
        model: that they are for, if it is known: one that `has_missing` takes NaN.
    """
    if isinstance(x, Checked) and context is None:
        return x
    split = x if isinstance(x, Split) else Split(_arrays(x, source))
    if context is not None and split.context is not None:
        raise InputError(
            "is given, but the split has one of its own: give one of both", argument="context"
        )
    context = checked_context(split.arrays, split.context if context is None else context)
    split = dataclasses.replace(split, context=context)
    check_weights(split)
    has_missing = _check_values(split, source, model)
    return Checked(split.arrays, split.rows, split.view, context, has_missing, split.weights)


def check_support(likelihood: Any, split: Split, source: str) -> None:
    """Refuse values that a likelihood cannot have made, where it says which these are."""
    if not hasattr(likelihood, "is_supported") or split.view.binarize != "none":
        return
    for _, leaf, is_observed in leaves_with_masks(split):
        values = leaf / split.view.unit if split.view.is_grey else leaf
        is_wrong = ~likelihood.is_supported(values)
        if is_observed is not None:
            is_wrong &= is_observed
        if split.has_missing:
            is_wrong &= ~np.isnan(values)
        if is_wrong.any():
            raise InputError(
                f"{source} has the value {values[is_wrong][0]:g}, but a "
                f"{type(likelihood).__name__} likelihood is of {likelihood.support}"
            )


def remarks(likelihood: Any, split: Split) -> list[str]:
    """Return what a user should know before training a built-in likelihood on flat examples."""
    arrays = jax.tree.leaves(split.arrays)
    kind = type(likelihood).__name__
    if kind not in ("Bernoulli", "Gaussian") or len(arrays) != 1:
        return []
    if kind == "Bernoulli":
        return _of_one_hot(split)
    return _of_ranges(split, is_scaled=getattr(likelihood, "units", None) is not None)


def _of_ranges(split: Split, *, is_scaled: bool) -> list[str]:
    """Notice features that have one value alone, or that nobody has scaled or will scale."""
    low, high = np.inf, -np.inf
    for block in split.chunks():
        # What is missing, NaN, does not count.
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
    ranges = np.ravel(np.asarray(high, np.float64) - low) / split.view.unit
    constant = np.flatnonzero(ranges == 0)
    if len(constant):
        return [
            f"{len(constant)} of {len(ranges)} features have one value alone, the first of them "
            f"column {constant[0]}: its scale will shrink and log p(x) grow for as long as you "
            "train; drop such columns"
        ]
    if is_scaled:
        return []
    smallest, largest = int(np.argmin(ranges)), int(np.argmax(ranges))
    if ranges[smallest] < _USUAL_RANGES[0] or ranges[largest] > _USUAL_RANGES[1]:
        return [
            f"the values of column {smallest} range over {ranges[smallest]:.3g} and those of "
            f"column {largest} over {ranges[largest]:.3g}: networks train best on columns that "
            "range over about 1 to 10; standardise them"
        ]
    return []


def _of_one_hot(split: Split) -> list[str]:
    rows = split.take(np.arange(min(len(split), _ROWS_OF_ONE_HOT)))
    values = np.asarray(rows).reshape(len(rows), -1) / split.view.unit
    if len(rows) < 10 or not np.all((values == 0) | (values == 1)):
        return []
    groups = _one_hot_groups(values)
    if not groups:
        return []
    first, last = groups[0]
    return [
        f"exactly one of the columns {first} to {last} is 1 in each example, and so in "
        f"{len(groups)} group{'s' if len(groups) > 1 else ''} of columns: these look like "
        "categories, which a Bernoulli likelihood takes for independent bits, so log p(x) is too "
        "low and samples can be impossible"
    ]


def _one_hot_groups(values: np.ndarray) -> list[tuple[int, int]]:
    """Find stretches of neighbouring columns, each used, of which exactly one is 1 in every row."""
    groups, start, num_columns = [], 0, values.shape[1]
    is_used = np.asarray(values.any(axis=0))
    while start < num_columns:
        total, stop = np.zeros(len(values)), start
        while stop < num_columns and is_used[stop] and total.max() <= 1 and not total.all():
            total, stop = total + values[:, stop], stop + 1
        is_group = stop - start > 1 and bool(np.all(total == 1))
        if is_group:
            groups.append((start, stop - 1))
        start = stop if is_group else start + 1
    return groups


def _arrays(x: Any, source: str) -> PyTree:
    """Return a pytree of arrays with the same number of examples in each."""
    leaves = jax.tree.leaves(x)
    if not leaves:
        raise InputError(f"{source} hold no arrays: give examples along the first axis")
    for leaf in leaves:
        _check_leaf(leaf, x, source)
    arrays = jax.tree.map(np.asarray, x)
    shapes = [a.shape for a in jax.tree.leaves(arrays)]
    if any(not shape or shape[0] != shapes[0][0] for shape in shapes):
        raise InputError(
            f"{source} have the shapes {shapes}: give arrays with examples along the first axis, "
            "as many in each"
        )
    if not shapes[0][0]:
        raise InputError(f"{source} have no examples: give at least 1")
    if len(shapes) == 1 and (len(shapes[0]) < 2 or 0 in shapes[0]):
        raise InputError(
            f"{source} have the shape {shapes[0]}: give examples along the first axis, each with "
            "at least one value"
        )
    return arrays


def _check_leaf(leaf: Any, x: Any, source: str) -> None:
    """Refuse what is no array of numbers, or would lose something on the way to one."""
    is_sparse = hasattr(leaf, "toarray")
    if not (hasattr(leaf, "__array__") and hasattr(leaf, "shape")) or is_sparse:
        inside = " of numbers or other objects" if isinstance(x, list | tuple) else ""
        raise InputError(
            f"{source} are a {type(x).__name__}{inside}: give an array, as by np.asarray, or a "
            "pytree of arrays; a sparse matrix by its toarray()"
        )
    number = np.ma.count_masked(leaf) if isinstance(leaf, np.ma.MaskedArray) else 0
    if number:
        raise InputError(
            f"{source} have {number} masked values, and a mask would be lost: pass the mask as "
            "part of the data, by context=aisle.Context(is_observed=~x.mask) beside x.filled(0)"
        )
    array = np.asarray(leaf)
    if array.dtype.kind not in "buif":
        first = repr(array.ravel()[0]) if array.size else "none"
        raise InputError(
            f"{source} have values of type {array.dtype}, such as {first}: give numbers"
        )


def _check_values(split: Split, source: str, model: Any) -> bool:
    """Refuse values that models cannot compute with, in one pass; say whether any are missing."""
    is_probability, low, high = split.view.binarize != "none", np.inf, -np.inf
    has_missing = False
    for start, leaf, is_observed in leaves_with_masks(split):
        is_right = _is_finite(leaf)
        if is_observed is not None:
            is_right |= ~is_observed
        if not is_right.all():
            has_missing = True
            if split.has_missing or getattr(model, "has_missing", False):
                is_right |= np.isnan(leaf)
            _check_finite(leaf, is_right, start, split, source, model)
        if is_probability:
            low, high = min(low, float(np.nanmin(leaf))), max(high, float(np.nanmax(leaf)))
    if is_probability and (low < 0 or high > split.view.unit):
        fix = "rescale them, or use binarize='none' and likelihood='gaussian' for real values"
        if low >= 0 and high <= 255 and jax.tree.leaves(split.arrays)[0].dtype.kind in "iu":
            fix = "if these are grey values of 0 to 255, say so by --grey or View(is_grey=True)"
        raise InputError(
            f"{source} has values from {low:g} to {high:g}: drawing bits needs values in [0, 1]; "
            f"{fix}"
        )
    return has_missing


def _kind(leaf: np.ndarray) -> np.dtype:
    """Return the type that models compute in."""
    return jax.dtypes.canonicalize_dtype(leaf.dtype if leaf.dtype.kind in "iu" else float)


def _is_finite(leaf: np.ndarray) -> np.ndarray:
    """Say which values have a place in the precision that models compute in."""
    if leaf.dtype.kind == "b":
        return np.ones(leaf.shape, bool)
    is_whole = leaf.dtype.kind in "iu"
    limits = np.iinfo(_kind(leaf)) if is_whole else np.finfo(_kind(leaf))
    # Comparisons with NaN fail.
    return (limits.min <= leaf) & (leaf <= limits.max)


def _check_finite(
    leaf: np.ndarray, is_right: np.ndarray, start: int, split: Split, source: str, model: Any
) -> None:
    """Refuse the first value that is not right."""
    if is_right.all():
        return
    place = np.argwhere(~is_right)[0]
    value, row = leaf[tuple(place)], int(split.numbers(np.array([start + place[0]]))[0])
    fix = "remove or repair such rows"
    if model is not None and np.isnan(value):
        fix += (
            ", give an aisle.Context(is_observed=...) if the model takes one, or build it by "
            "aisle.mlp_model(..., has_missing=True)"
        )
    raise InputError(
        f"{source} has the value {value} in row {row}: every value must be a finite number of the "
        f"type {_kind(leaf).name}; {fix}"
    )
