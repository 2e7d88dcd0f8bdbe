"""Bounds of log p(x), exactly: all outcomes of chains whose weights have three values."""

import itertools

import numpy as np
import pytest

from aisle.evaluation.bounds import lower_bounds, upper_bounds

# Values of a weight, and with what probability a forward chain has them.
WEIGHTS, CHANCES = np.array([0.1, 1.0, 6.0]), np.array([0.5, 0.4, 0.1])
P = float(WEIGHTS @ CHANCES)
# Crooks' relation: what the chances of a reverse chain are.
REVERSE = CHANCES * WEIGHTS / P


def outcomes(num_forward, num_reverse, *, stuck=False):
    """Return weights of chains both ways, all outcomes, with the probability of each.

    Reverse chains are independent, or `stuck`: all of them what the first one is.
    """
    rows = np.array(list(itertools.product(range(3), repeat=num_forward + num_reverse)))
    up, down = rows[:, :num_forward], rows[:, num_forward:]
    if stuck:
        is_kept = np.all(down == down[:, :1], axis=1)
        up, down = up[is_kept], down[is_kept]
    chance = CHANCES[up].prod(1) * REVERSE[down[:, :1] if stuck else down].prod(1)
    assert chance.sum() == pytest.approx(1)
    return WEIGHTS[up], WEIGHTS[down], chance


CASES = [(1, 1), (1, 3), (3, 1), (4, 2)]


@pytest.mark.parametrize("stuck", [False, True], ids=["independent", "correlated"])
@pytest.mark.parametrize(("num_forward", "num_reverse"), CASES)
def test_both_bounds_hold_in_mean_exactly(num_forward, num_reverse, stuck):
    up, down, chance = outcomes(num_forward, num_reverse, stuck=stuck)
    lower, upper = lower_bounds(np.log(up)), upper_bounds(np.log(up), np.log(down))
    assert chance @ np.exp(lower) == pytest.approx(P)
    assert chance @ np.exp(-upper) == pytest.approx(1 / P)
    assert chance @ lower < np.log(P) < chance @ upper
    # Never above the mean of the logarithms of W, nor below their least.
    places = np.arange(num_forward)
    ways = [
        np.log(np.hstack([up[:, places != i], down[:, [j]]]).mean(1))
        for i, j in itertools.product(places, range(num_reverse))
    ]
    assert np.all(upper < np.mean(ways, axis=0) + 1e-9)
    assert np.all(upper > np.min(ways, axis=0) - 1e-9)


def test_one_reverse_chain_is_as_tight_as_all_of_them_are_without_forward_ones():
    """By the old bound, the harmonic mean of reverse weights alone."""
    up, down, chance = outcomes(4, 1)
    found = chance @ upper_bounds(np.log(up), np.log(down)) - np.log(P)
    alone, many, chance = outcomes(1, 4)
    old = chance @ upper_bounds(np.log(alone), np.log(many)) - np.log(P)
    _, stuck, chance = outcomes(1, 4, stuck=True)
    oldest = chance @ -lower_bounds(-np.log(stuck)) - np.log(P)
    assert 0 < found < old < oldest


def test_of_one_forward_chain_nothing_is_left_but_the_harmonic_mean():
    up, down, _ = outcomes(1, 3)
    np.testing.assert_allclose(
        upper_bounds(np.log(up), np.log(down)), -np.log((1 / down).mean(1)), atol=1e-12
    )


def test_weights_of_zero_and_far_apart_and_what_is_not_a_number():
    up = np.array([[-np.inf, -np.inf, -np.inf], [-1000.0, 0.0, 1000.0], [0.0, np.nan, 0.0]])
    upper = upper_bounds(up, np.array([[2.0], [0.0], [0.0]]))
    # Of the second, the largest is left out once: 1 / W is e^-1000 twice, and 3 / (1 + 1) once.
    np.testing.assert_allclose(upper, [2 - np.log(3), np.log(2), np.nan])
    np.testing.assert_array_equal(lower_bounds(up)[[0, 2]], [-np.inf, np.nan])


def test_numbers_of_single_precision_are_averaged_in_double():
    up = np.full((1, 2), -1e5, np.float32) + np.float32(0.25)
    assert lower_bounds(up).dtype == upper_bounds(up, up).dtype == np.float64
    np.testing.assert_array_equal(upper_bounds(up, up), lower_bounds(up))
