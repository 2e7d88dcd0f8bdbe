import numpy as np
import pytest

from aisle.annealing import schedules
from aisle.errors import InputError

# A new schedule joins here.
SCHEDULES = [getattr(schedules, n) for n in ("linear", "sigmoid", "geometric", "ramp", "immediate")]
SCHEDULES.append(schedules.Placed((0.0, 0.3, 1.0)))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: getattr(one, "__name__", "placed"))
@pytest.mark.parametrize("num_temperatures", [1, 2, 11, 10_000])
def test_every_schedule_runs_from_zero_to_one_without_falling(schedule, num_temperatures):
    betas = schedule(num_temperatures)
    assert isinstance(betas, np.ndarray)
    assert len(betas) == num_temperatures + 1
    assert betas[0] == 0
    assert betas[-1] == 1
    assert np.all(np.diff(betas) >= 0)


def test_linear():
    np.testing.assert_allclose(schedules.linear(4), [0, 0.25, 0.5, 0.75, 1])


def test_sigmoid_is_the_rescaled_logistic_curve():
    def logistic(a):
        return 1 / (1 + np.exp(-a))

    u = np.linspace(-1, 1, 8)
    wanted = (logistic(4 * u) - logistic(-4)) / (logistic(4) - logistic(-4))
    np.testing.assert_allclose(schedules.sigmoid(7), wanted, atol=1e-7)


def test_geometric_has_a_constant_factor():
    betas = schedules.geometric(5, first=0.01)
    assert betas[1] == pytest.approx(0.01)
    np.testing.assert_allclose(betas[2:] / betas[1:-1], 100**0.25, rtol=1e-5)


@pytest.mark.parametrize(
    ("number", "share", "betas"),
    [
        (4, 0.5, [0, 0.5, 1, 1, 1]),
        (5, 0.5, [0, 0.5, 1, 1, 1, 1]),
        (4, 0.75, [0, 1 / 3, 2 / 3, 1, 1]),
        (3, 0.1, [0, 1, 1, 1]),
        (1, 0.5, [0, 1]),
        (2, 1.0, [0, 0.5, 1]),
    ],
)
def test_a_ramp_rises_evenly_and_stays(number, share, betas):
    np.testing.assert_allclose(schedules.ramp(number, share), betas, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 1.1, float("nan")])
def test_a_ramp_needs_a_share_of_the_moves(share):
    with pytest.raises(InputError, match=f"share is {share}"):
        schedules.ramp(4, share)


def test_placed_temperatures_are_spaced_as_those_that_are_given():
    found = schedules.Placed((0.0, 0.2, 1.0))
    np.testing.assert_allclose(found(2), [0, 0.2, 1], rtol=1e-6)
    np.testing.assert_allclose(found(4), [0, 0.1, 0.2, 0.6, 1], rtol=1e-6)
    with pytest.raises(InputError, match="must start at 0"):
        schedules.Placed((0.5, 1.0))


def test_a_steady_rise_keeps_temperatures_even():
    betas = schedules.sigmoid(8)
    found = schedules.placed(betas, 3.0 + 40 * betas[:-1])(5)
    np.testing.assert_allclose(found, np.linspace(0, 1, 6), atol=1e-6)


def test_placed_steps_lose_the_same():
    # m'(beta) is 400 up to 0.5 and 100 from there on: the density of temperatures is as 2 to 1.
    betas = schedules.linear(200)
    rise = np.where(betas < 0.5, 400 * betas, 200 + 100 * (betas - 0.5))
    found = schedules.placed(betas, rise[:-1])(30)
    losses = np.diff(found) * np.diff(np.interp(found, betas, rise))
    np.testing.assert_allclose(losses, losses.mean(), rtol=0.06)


def test_noise_does_not_leave_a_stretch_without_temperatures():
    falling = np.array([0.0, 5, 10, 9, 8, 7, 6, 11, 16, 21])
    found = schedules.placed(schedules.linear(10), falling)(50)
    assert np.all(np.diff(found) > 0)
    assert np.max(np.diff(found)) < 0.2


def test_one_temperature_places_none():
    np.testing.assert_array_equal(
        schedules.placed(schedules.linear(1), np.zeros(1))(2), [0, 0.5, 1]
    )


def test_immediate():
    np.testing.assert_array_equal(schedules.immediate(3), [0, 1, 1, 1])


def test_explicit_keeps_the_list():
    np.testing.assert_allclose(schedules.explicit([0, 0.1, 0.1, 1]), [0, 0.1, 0.1, 1])


@pytest.mark.parametrize(
    ("betas", "words"),
    [
        ([0.1, 1], "from 0.1 to 1: it must start at 0"),
        ([0, 0.9], "from 0 to 0.9: it must start at 0, the proposal, and end at 1"),
        ([0, 0.6, 0.5, 1], "falls from 0.6 to 0.5 at index 2"),
        ([0, float("nan"), 1], r"betas\[1\] is nan"),
        ([0, float("inf"), 1], r"betas\[1\] is inf"),
        ([0], "at least two"),
        ([], "at least two"),
        ([[0, 1]], "at least two"),
    ],
)
def test_bad_lists_get_one_clear_line(betas, words):
    with pytest.raises(InputError, match=words) as error:
        schedules.explicit(betas)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: schedules.linear(0), "num_temperatures is 0"),
        (lambda: schedules.sigmoid(5, steepness=0.0), "steepness is 0"),
        (lambda: schedules.geometric(5, first=1.0), "first is 1"),
        (lambda: schedules.linear(2.5), "num_temperatures is 2.5: it must be a whole number"),
    ],
)
def test_bad_arguments_get_one_clear_line(as_users_have_it, call, words):
    with pytest.raises(InputError, match=words):
        call()
