"""Forecasts of the gap and the plans that follow, on spreads that are known."""

import itertools
import math

import numpy as np
import pytest

from aisle.evaluation import planning
from aisle.evaluation.bounds import lower_bounds, upper_bounds
from aisle.evaluation.examples import num_reverse
from aisle.evaluation.planning import Costs, Forecast, choose, forecast, spreads_of


def weights(spreads, num_chains, num_back, seed=0):
    """Log-weights of both directions, as normal as Crooks' relation lets them be."""
    random, spreads = np.random.default_rng(seed), np.asarray(spreads)[:, None]
    up, down = (random.standard_normal((len(spreads), n)) for n in (num_chains, num_back))
    return np.sqrt(spreads) * up - spreads / 2 - 50, np.sqrt(spreads) * down + spreads / 2 - 50


COSTS = Costs(
    of_given=lambda number: 16 * number,
    of_simulated=lambda number: 20 * number,
    num_given=1000,
    num_chains=16,
    seconds_per_gradient=1e-5,
    seconds_to_compile=1.0,
)
# Spreads of 200 examples at T = 100, some ten times as large as others.
KNOWN = Forecast(np.geomspace(0.3, 3.0, 200), 100, 1.0)
ALL = planning.ladder_of_temperatures()


def test_spreads_are_found_in_both_ways():
    true = np.full(4000, 0.25)
    assert spreads_of(*weights(true, 9, 3)).mean() == pytest.approx(0.25, rel=0.05)
    # Chains that agree among themselves, but not with those of the other direction.
    up, down = weights(np.full(5, 0.01), 9, 3)
    assert np.all(spreads_of(up, down + 7) > 6.5)
    assert spreads_of(np.full((1, 9), np.nan), down[:1])[0] == spreads_of(up[:1], down[:1] + 1e9)[0]


@pytest.mark.parametrize("power", [1.0, 0.7])
def test_the_power_of_the_temperatures_is_found(power):
    long = np.geomspace(0.1, 2.0, 32)
    found = forecast((25, long * 4**power), (100, long))
    assert found.power == pytest.approx(power)
    assert found.num_temperatures == 100
    # Between a half and one, whatever noise says.
    assert forecast((25, long), (100, long)).power == 0.5
    assert forecast((25, 100 * long), (100, long)).power == 1.0


@pytest.mark.parametrize("number", [50, 400])
def test_the_gap_at_another_number_of_temperatures_is_foretold(number):
    up, down = weights(np.tile(KNOWN.spreads * 100 / number, 40), 16, num_reverse(16), seed=1)
    gaps = upper_bounds(up, down) - lower_bounds(up)
    mean, variance = KNOWN.gap(number, 16)
    assert mean == pytest.approx(gaps.mean(), rel=0.1)
    assert math.sqrt(variance) == pytest.approx(gaps.std(), rel=0.15)


def test_the_cheapest_plan_that_does_is_chosen():
    plan = choose(KNOWN, COSTS, 0.1, fewest_examples=10, temperatures=ALL)
    assert plan.gap <= 0.0801
    assert plan.gradients == 16_000 * plan.num_temperatures + (
        20 * plan.num_temperatures * plan.num_simulated
    )
    assert plan.seconds == pytest.approx(plan.gradients * 1e-5 + 2)
    for number in ALL:
        mean, variance = KNOWN.gap(number, 16)
        if mean < 0.08:
            needed = max(10, math.ceil(4 * variance / (0.08 - mean) ** 2))
            if needed < 20_000:
                assert plan.gradients <= COSTS.gradients(number, needed)


def test_a_noisy_gap_gets_examples_and_a_large_one_temperatures():
    few = choose(KNOWN, COSTS._replace(num_given=10**6), 0.1, fewest_examples=10, temperatures=ALL)
    many = choose(KNOWN, COSTS._replace(num_given=10), 0.1, fewest_examples=10, temperatures=ALL)
    # Where real examples are many, temperatures are dear and simulated examples are cheap.
    assert few.num_temperatures < many.num_temperatures
    assert few.num_simulated > many.num_simulated
    tight = choose(KNOWN, COSTS, 0.01, fewest_examples=10, temperatures=ALL)
    assert tight.num_temperatures > 5 * few.num_temperatures


def test_the_time_is_planned_for():
    plain = choose(KNOWN, COSTS, 0.01, fewest_examples=50, temperatures=ALL)
    options = {"fewest_examples": 50, "temperatures": ALL}
    half = choose(KNOWN, COSTS, 0.01, **options, seconds=plain.seconds / 2)
    assert half.seconds <= plain.seconds / 2
    assert 0.01 < half.gap < 0.04
    # More than enough changes nothing, and too little is used as well as it can be.
    assert choose(KNOWN, COSTS, 0.01, **options, seconds=2 * plain.seconds) == plain
    assert choose(KNOWN, COSTS, 0.01, **options, seconds=0.1).num_temperatures == ALL[0]


def test_choices_of_temperatures():
    assert (ALL[0], ALL[-1] <= 20_000) == (10, True)
    assert max(b / a for a, b in itertools.pairwise(ALL)) < 1.2
    assert planning.ladder_of_temperatures(400, 8.0)[0] == 400
    assert 2800 < planning.ladder_of_temperatures(400, 8.0)[-1] <= 3200


def test_a_plan_says_what_to_expect():
    plan = choose(KNOWN, COSTS, 0.1, fewest_examples=10, temperatures=[200])
    assert str(plan).startswith("planned: T=200, 19 simulated examples; gap below 0.080")
    assert "from a refitted encoder" in str(plan._replace(is_refitted=True))
