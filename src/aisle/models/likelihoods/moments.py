"""First values for counts from the moments of training data."""

import numpy as np

# Beyond these a column says nothing about its dispersion; 1e4 is all but Poisson.
_THETAS = (0.01, 1e4)
# The least and the largest share of counts that are lost, as for bits.
_LOST = (0.001, 0.999)


def dispersed(columns: np.ndarray, exposures: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return theta of each column from E[(x - e m)^2] = e m + (e m)^2 / theta."""
    means = exposures * rates
    excess = np.nansum((columns - means) ** 2 - means, axis=0)
    return _ratio(np.nansum(means**2, axis=0), excess)


def zero_inflated(
    columns: np.ndarray, exposures: np.ndarray, rates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return share of losses and theta with the mean, the second moment and the zeros of x.

    Given the share that is lost, the mean and the second moment of the rest follow, and theta from
    them; the share is then found by halving an interval until the zeros are as many as observed.
    """
    zeros = np.nanmean(np.where(np.isnan(columns), np.nan, columns == 0), axis=0)
    first, second = (np.nansum(exposures**n, axis=0) for n in (1, 2))
    squares = np.nansum(columns**2, axis=0)
    grid = _quantiles(exposures)

    def theta_of(lost: np.ndarray) -> np.ndarray:
        rate = rates / (1 - lost)
        excess = squares / (1 - lost) - rate * first - rate**2 * second
        return _ratio(rate**2 * second, excess)

    def zeros_of(lost: np.ndarray) -> np.ndarray:
        theta, means = theta_of(lost), grid * rates / (1 - lost)
        return lost + (1 - lost) * np.mean((1 + means / theta) ** -theta, axis=0)

    low = np.full(len(rates), _LOST[0])
    high = np.clip(zeros, *_LOST)
    for _ in range(50):
        middle = (low + high) / 2
        is_few = zeros_of(middle) < zeros
        low, high = np.where(is_few, middle, low), np.where(is_few, high, middle)
    return high, theta_of(high)


def _ratio(squares: np.ndarray, excess: np.ndarray) -> np.ndarray:
    is_over = excess > squares / _THETAS[1]
    theta = np.maximum(squares / np.where(is_over, excess, 1), _THETAS[0])
    return np.where(is_over, theta, _THETAS[1])


def _quantiles(exposures: np.ndarray) -> np.ndarray:
    """Return some exposures that stand for all of a column's."""
    low, high = np.nanmin(exposures), np.nanmax(exposures)
    points = [1.0] if low == high else (np.arange(64) + 0.5) / 64
    return np.nanquantile(exposures, points, axis=0)
