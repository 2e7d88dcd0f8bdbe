"""Figures with their standard errors."""

from typing import NamedTuple

import numpy as np


class Mean(NamedTuple):
    """A mean over examples with its standard error."""

    mean: float
    standard_error: float
    num_examples: int


def summarise(values: np.ndarray) -> Mean:
    """Return the mean and its standard error, which is not a number for one value alone."""
    values = np.asarray(values, np.float64)
    # An example without a likelihood, log p(x) = -inf, makes the mean -inf and the error NaN.
    with np.errstate(invalid="ignore"):
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return Mean(float(values.mean()), float(error), len(values))
