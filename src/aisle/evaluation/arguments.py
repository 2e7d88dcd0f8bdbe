"""What can be evaluated, and what is refused with its reason."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from aisle.data import Split, check_unmasked, check_values
from aisle.data.values import is_finite
from aisle.errors import InputError, check_rules, check_seed, check_whole
from aisle.files import json_text

# Those that reach every temperature: `immediate` does not anneal.
_SCHEDULES = ("sigmoid", "linear", "geometric")

_WHOLE = (
    *("num_chains", "num_temperatures", "num_leapfrog", "refit", "bdmc_examples"),
    *("importance_samples", "memory_mb", "seed"),
)


def check_observations(x: PyTree, indices: np.ndarray | None) -> np.ndarray:
    """Refuse observations that cannot be evaluated; return their numbers."""
    shapes = [np.shape(a) for a in jax.tree.leaves(x)]
    if not shapes or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
        raise InputError(
            f"the observations have the shapes {shapes}: give arrays with examples along the "
            "first axis, as many in each"
        )
    if not shapes[0][0]:
        raise InputError("there are no observations: give at least 1 example")
    for leaf in jax.tree.leaves(x):
        check_unmasked(leaf, "the observations")
        values = np.asarray(leaf)
        if values.dtype == np.uint8:
            check_values(Split(values), "none", "x")
        wrong = where_not_finite(values)
        if len(wrong):
            row = int(wrong[0][0])
            raise InputError(
                f"example {row} has a value that is not finite: every value must be a finite "
                "number; remove or repair such examples"
            )
    numbers = np.arange(shapes[0][0]) if indices is None else np.asarray(indices)
    if numbers.shape != shapes[0][:1] or len(np.unique(numbers)) != len(numbers):
        raise InputError(
            f"{len(np.unique(numbers))} different indices for {shapes[0][0]} examples: give each "
            "example a number of its own"
        )
    # The draws derive from 32 bits of a number.
    if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= 2**31:
        raise InputError(
            f"indices has values of type {numbers.dtype} from {numbers.min()} to {numbers.max()}: "
            f"give whole numbers from 0 to {2**31 - 1}"
        )
    return numbers


def where_not_finite(values: np.ndarray) -> np.ndarray:
    """Return the places of values that a model would take for infinite, or for no numbers."""
    if not np.issubdtype(values.dtype, np.inexact):
        return np.empty((0, values.ndim), int)
    return np.argwhere(~is_finite(values))


def check_arguments(given: Mapping[str, Any]) -> None:
    """Refuse numbers that make no sense, each with its rule; comparisons with NaN fail too."""
    check_whole(given, _WHOLE)
    tolerance, budget = given["tolerance"], given["max_seconds"]
    rules = {
        "num_chains": (given["num_chains"] >= 1, "at least 1"),
        "num_temperatures": (given["num_temperatures"] >= 2, "at least 2"),
        "num_leapfrog": (given["num_leapfrog"] >= 1, "at least 1"),
        "schedule": (given["schedule"] in _SCHEDULES, f"one of {', '.join(_SCHEDULES)}"),
        "precondition": (0 <= given["precondition"] < math.inf, "finite, and 0 or more"),
        "momentum_refresh": (0 < given["momentum_refresh"] <= 1, "above 0 and at most 1"),
        "target_accept": (0 < given["target_accept"] < 1, "between 0 and 1"),
        "refit": (given["refit"] >= 0, "0 or more"),
        "bdmc_examples": (given["bdmc_examples"] >= 0, "0 or more"),
        "tolerance": (tolerance is None or 0 < tolerance < math.inf, "finite and positive"),
        "max_seconds": (budget is None or 0 < budget < math.inf, "finite and positive"),
        "importance_samples": (given["importance_samples"] >= 0, "0 or more"),
        "memory_mb": (given["memory_mb"] >= 1, "at least 1"),
    }
    check_rules(given, rules)
    check_seed(given["seed"])
    try:
        json_text({"about": given["about"]})
    except (TypeError, ValueError) as error:
        raise InputError(f"about cannot be written as JSON ({error}): give plain values") from None
    if tolerance is not None and given["bdmc_examples"] < 2:
        raise InputError(
            f"bdmc_examples is {given['bdmc_examples']}, but a tolerance is judged by "
            "bidirectional Monte Carlo: give at least 2"
        )
