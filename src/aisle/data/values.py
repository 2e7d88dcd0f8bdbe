"""Check that the values of a data set are what a model of them expects."""

from typing import Any

import numpy as np

from aisle.data.split import Split
from aisle.errors import InputError

BINARIZE = ("dynamic", "static", "none")


def check_values(split: Split, binarize: str, source: str) -> None:
    """Refuse values that a model cannot learn from, in one pass over the data.

    Args:
        split: the examples.
        binarize: "dynamic" or "static" if a pixel is the probability of a 1, "none" if the model
            takes the values as they are.
        source: what to call the data in a message, such as the name of the file.
    """
    if binarize not in BINARIZE:
        raise InputError(f"binarize is {binarize!r}: choose from {', '.join(BINARIZE)}")
    if split.dtype == np.uint8:
        _check_bytes(split, source)
    else:
        _check_floats(split, source, as_probabilities=binarize != "none")


def check_bits(split: Split, source: str) -> None:
    """Refuse what is neither 0 nor 1: of other values a Bernoulli model has no log-likelihood."""
    one = 255 if split.dtype == np.uint8 else 1
    for block in split.chunks():
        others = block[(block != 0) & (block != one)]
        if others.size:
            raise InputError(
                f"{source} has the value {others[0] / one:g}, but a Bernoulli likelihood is of 0 "
                "and 1: draw bits from values in [0, 1], in training by binarize = dynamic, or "
                "take likelihood = gaussian for real ones"
            )


def feature_ranges(split: Split) -> np.ndarray:
    """Return how far the values of each feature range, as a model sees them."""
    low, high = np.full(split.num_features, np.inf), np.full(split.num_features, -np.inf)
    for block in split.chunks():
        low, high = np.minimum(low, block.min(0)), np.maximum(high, block.max(0))
    return (high - low) / (255 if split.dtype == np.uint8 else 1)


def is_finite(values: np.ndarray) -> np.ndarray:
    """Say which values are finite in single precision, which models compute in."""
    return np.abs(values) <= np.finfo(np.float32).max


def check_unmasked(array: Any, source: str) -> None:
    """Refuse an array with masked values, which NumPy would otherwise just uncover."""
    number = np.ma.count_masked(array) if isinstance(array, np.ma.MaskedArray) else 0
    if number:
        raise InputError(
            f"{source} have {number} masked values, and a mask would be lost: put it beside the "
            "values, as a part of each example, and let the model's log_likelihood heed it"
        )


def _check_bytes(split: Split, source: str) -> None:
    # Binary pictures saved as 0 and 1 would silently be read as 0 and 1/255: all but black.
    largest = 0
    for block in split.chunks():
        largest = max(largest, int(block.max()))
        if largest > 1:
            return
    if largest == 1:
        raise InputError(
            f"{source} holds only 0 and 1 as uint8, but uint8 is read as value / 255: "
            "save it as x.astype(bool), or as 255 * x"
        )


def _check_floats(split: Split, source: str, *, as_probabilities: bool) -> None:
    low, high, start, are_whole = np.inf, -np.inf, 0, True
    for block in split.chunks():
        _check_finite(block, start, split, source)
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        are_whole = are_whole and bool(np.all(block == np.floor(block)))
        start += len(block)
    if as_probabilities and (low < 0 or high > 1):
        fix = "rescale them, or use `--binarize none --likelihood gaussian` for real values"
        if are_whole and low >= 0:
            fix = "if these are counts, give a model of counts to aisle.fit; see docs/own-model.md"
        raise InputError(
            f"{source} has values from {low:g} to {high:g}: binarising needs values in [0, 1]; "
            f"{fix}"
        )


def _check_finite(block: np.ndarray, start: int, split: Split, source: str) -> None:
    finite = is_finite(block)
    if finite.all():
        return
    index, column = (int(i) for i in np.argwhere(~finite)[0])
    # The row of the user's array, which is not the row of the split where some are held out.
    row = start + index if split.rows is None else int(split.rows[start + index])
    raise InputError(
        f"{source} has the value {block[index, column]} in row {row}: every value must be a finite "
        "number in single precision; remove or repair such rows"
    )
