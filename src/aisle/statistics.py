"""Numbers with their standard errors."""

from typing import NamedTuple

import numpy as np

# Standard errors that tell a difference from chance.
CLEAR = 2.0


class Mean(NamedTuple):
    """A mean over examples with its standard error; both are printed with two digits.

    Others are had as of a number: f"{mean:.3f}".
    """

    mean: float
    standard_error: float
    num_examples: int

    def __str__(self) -> str:
        return f"{self:.2f}"

    def __format__(self, spec: str) -> str:
        # In ASCII: where the output has no other characters, rich would fail, hours into the work.
        spec = spec or ".2f"
        return f"{self.mean:{spec}} +- {self.standard_error:{spec}}"


def summarise(values: np.ndarray) -> Mean:
    """Return the mean and its standard error, which is not a number for one value alone."""
    values = np.asarray(values, np.float64)
    # An example without a likelihood, log p(x) = -inf, makes the mean -inf and the error NaN.
    with np.errstate(invalid="ignore"):
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return Mean(float(values.mean()), float(error), len(values))


def is_ahead(gain: Mean, gap: Mean | None) -> bool:
    """Say whether a model is ahead of another, where lower bounds of both are compared.

    Args:
        gain: by how much its bound is higher, on the same examples.
        gap: by how much the other's bound may be too low; where that is not known, nothing is.
    """
    if gap is None:
        return False
    error = np.hypot(gain.standard_error, gap.standard_error)
    # Comparisons with NaN fail.
    return bool(gain.mean - np.maximum(gap.mean, 0.0) > CLEAR * error)


def double_sampled(wanted: np.ndarray, chosen: np.ndarray, cheap: np.ndarray) -> Mean:
    """Estimate the mean over all examples of a number that only some of them have.

    The mean of a cheap number, which all have, is corrected by the mean difference on the chosen
    ones. Nothing is fitted, so the estimate is unbiased if these are chosen without regard to the
    numbers; the closer the cheap one, the smaller the error.

    Args:
        wanted: the number of each chosen example.
        chosen: their places among all.
        cheap: the cheap number of each example.
    """
    wanted, number = np.asarray(wanted, np.float64), len(cheap)
    with np.errstate(invalid="ignore"):
        correction = summarise(wanted - cheap[chosen])
    # The error of all examples as a sample of the world, and that of the correction.
    unseen = 1 - len(wanted) / number
    spread = summarise(wanted).standard_error ** 2 * len(wanted) / number
    error = np.sqrt(spread + unseen * correction.standard_error**2)
    return Mean(float(np.mean(cheap)) + correction.mean, float(error), number)
