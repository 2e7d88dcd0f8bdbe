"""Bounds of log p(x) from log-weights: rows are examples, columns chains; in double precision.

W = (w_1 + ... + w_K) / K of K forward chains has E[W] = p(x), so E[log W] <= log p(x). Let a chain
that was annealed in reverse, from an exact sample of the posterior, take the place of one of them.
Then E[1 / W] = 1 / p(x), so E[log W] >= log p(x) (Brekelmans et al., 2022); and so has the harmonic
mean of such W, over reverse chains and over whose place they take, which is never above the mean of
their logarithms. W varies far less than the weight of a reverse chain, so a few of these will do;
and both bounds share all forward chains but one, so that their difference has a small error.
"""

import numpy as np
from jaxtyping import Float


def lower_bounds(up: Float[np.ndarray, "examples chains"]) -> Float[np.ndarray, " examples"]:
    """Return the log of each example's mean weight."""
    # A weight that is not a number makes its example's mean one, without a warning.
    with np.errstate(invalid="ignore"):
        return np.logaddexp.reduce(up.astype(np.float64), axis=1) - np.log(up.shape[1])


def upper_bounds(
    up: Float[np.ndarray, "examples chains"], down: Float[np.ndarray, "examples reverse"]
) -> Float[np.ndarray, " examples"]:
    """Return minus the log of the mean of 1 / W, W with one reverse chain instead of a forward one.

    Reverse chains need not be independent.
    """
    up, down = up.astype(np.float64), down.astype(np.float64)
    with np.errstate(invalid="ignore"):
        totals = np.logaddexp(_without_each(up)[:, :, None], down[:, None, :])
    return -lower_bounds(-totals.reshape(len(up), -1)) - np.log(up.shape[1])


def _without_each(logs: np.ndarray) -> np.ndarray:
    """Return the log of the sum over all columns but one, for each of them.

    Of what is before and after it: a difference to the whole sum would cancel.
    """
    nothing = np.full((len(logs), 1), -np.inf)
    before, after = (np.logaddexp.accumulate(a, axis=1)[:, :-1] for a in (logs, logs[:, ::-1]))
    return np.logaddexp(np.hstack([nothing, before]), np.hstack([nothing, after])[:, ::-1])
