import collections

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import HMC, Kernel, schedules
from aisle.evaluation import pilot
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.models.use import simulate
from estimating import counting_model
from measures import z_score

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")

MODEL = LinearGaussian(
    jnp.array([[1.0, 0.2], [-0.5, 1.0], [2.0, 0.0]]), jnp.array([0.2, 0.0, -1.0]), jnp.log(0.4)
)
KEY = jax.random.key(5)


class Encoder(eqx.Module):
    """Twice as wide as the prior, so that the best step shrinks on the way to the posterior."""

    def __call__(self, x):
        return DiagonalNormal(jnp.zeros(2), jnp.full(2, 2.0))


def make_kernel(target=0.5, num_leapfrog=2, schedule=schedules.linear):
    return Kernel(schedule, HMC(num_leapfrog), target)


@pytest.fixture(scope="module")
def examples(quick_compilation, one_device):
    return simulate(jax.random.key(1), MODEL, 2000)


def tuned(examples, target):
    xs = examples[: pilot.NUM_EXAMPLES]
    return pilot.tune(KEY, MODEL, Encoder(), xs, make_kernel(target), 4)


@pytest.mark.slow
def test_step_sizes_follow_the_target_and_the_temperature(examples):
    sizes = {target: tuned(examples, target) for target in (0.5, 0.8)}
    assert np.all(sizes[0.8] < 0.95 * sizes[0.5])
    # The posterior is narrower than the encoder; the search starts at 0.3 for all temperatures.
    for found in sizes.values():
        assert np.all(np.diff(found) < 0)
        assert found[0] > 0.6


@pytest.mark.slow
def test_the_key_decides(examples):
    xs = examples[: pilot.NUM_EXAMPLES]
    arguments = (MODEL, Encoder(), xs, make_kernel(), 4)
    again, other = (pilot.tune(jax.random.key(k), *arguments) for k in (5, 6))
    np.testing.assert_array_equal(again, tuned(examples, 0.5))
    assert np.all(again != other)
    np.testing.assert_allclose(again, other, rtol=0.3)


@pytest.mark.parametrize("schedule", ["linear", "sigmoid", "geometric"])
@pytest.mark.parametrize("num_temperatures", [2, 50, 51, 1000])
def test_a_long_schedule_takes_its_steps_from_a_short_one(monkeypatch, schedule, num_temperatures):
    """Log-linear in beta between its points, and constant before the first."""
    short = []

    def decay(beta):
        return 0.7 * jnp.exp(-1.3 * beta)

    def stand_in(key, model, proposal, xs, ladder, target):
        short.append(ladder)
        assert target == 0.4
        return decay(ladder.betas[1:])

    monkeypatch.setattr(pilot, "tune_exactly", stand_in)
    kernel = make_kernel(0.4, schedule=getattr(schedules, schedule))
    found = pilot.tune(KEY, MODEL, Encoder(), None, kernel, num_temperatures)
    betas = np.maximum(kernel.betas(num_temperatures)[1:], short[0].betas[1])
    np.testing.assert_allclose(found, decay(betas), rtol=1e-5)
    assert len(short[0].step_sizes) == min(50, num_temperatures)
    assert (short[0].transition, short[0].last_move) == (HMC(2), True)
    np.testing.assert_array_equal(short[0].betas, kernel.betas(min(50, num_temperatures)))


def test_a_schedule_that_is_a_list_is_not_shortened():
    betas = np.linspace(0, 1, 81) ** 2
    ladder = pilot.short_ladder(make_kernel(schedule=tuple(betas.tolist())), 80)
    np.testing.assert_allclose(ladder.betas, betas, rtol=1e-6)


@pytest.mark.parametrize(
    ("num_temperatures", "num_leapfrog", "wanted"),
    [(4, 2, 20 * 64 * 9), (50, 3, 20 * 64 * 151), (700, 1, 20 * 64 * 51)],
)
def test_the_cost_is_counted(num_temperatures, num_leapfrog, wanted):
    kernel = make_kernel(num_leapfrog=num_leapfrog)
    assert pilot.num_gradients(kernel, num_temperatures, 64) == wanted


def test_the_cost_is_what_is_spent():
    counts = collections.Counter()
    number, kernel, xs = 2, make_kernel(), jnp.ones((2, 2))
    tuned = pilot.tune(KEY, counting_model(counts), Encoder(), xs, kernel, 4)
    jax.block_until_ready(tuned)
    assert counts["gradient"] == pilot.num_gradients(kernel, 4, number)


def test_few_examples_are_taken_more_than_once():
    xs = {"a": np.arange(10), "b": np.arange(20).reshape(10, 2)}
    found = pilot.repeated(xs)
    np.testing.assert_array_equal(found["a"], np.resize(np.arange(10), 64))
    np.testing.assert_array_equal(found["b"][:, 0], 2 * found["a"])


def test_simulated_examples_have_the_law_of_the_model(examples):
    centred = np.asarray(examples, float) - np.asarray(MODEL.bias)
    covariance = np.asarray(MODEL.weight @ MODEL.weight.T + 0.16 * jnp.eye(3))
    for i in range(3):
        assert abs(z_score(centred[:, i], 0)) < 4
        for j in range(i + 1):
            assert abs(z_score(centred[:, i] * centred[:, j], covariance[i, j])) < 4
    assert len(np.unique(centred[:, 0])) == 2000
