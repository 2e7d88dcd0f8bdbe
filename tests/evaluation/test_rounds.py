"""How T is doubled and when it stops, with runs that are scripted instead of computed."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle import log_likelihood, schedules
from aisle.evaluation import examples, pilot, rounds
from aisle.evaluation.work import Outcome
from aisle.models import DiagonalNormal, LinearGaussian
from evaluating import chosen, kernel

MODEL = LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.zeros(()))
XS = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
PILOT_XS = XS[:2] + 3
NUM_CHAINS = 2


def encoder(x):
    return DiagonalNormal(jnp.zeros(1), jnp.ones(1))


class Script:
    """Stands in for the runs: what they would find, by T, and what they were asked for.

    The bounds are `gap` apart. So many `seconds` pass in a walk, and `num_done` of its examples
    are done, those at `places`.
    """

    def __init__(self, monkeypatch):
        self.gap = lambda T: 8 / T
        self.estimate = lambda T: -10 - 4 / T
        self.seconds = lambda T: 0.0
        self.num_done = lambda job, T: len(job.indices)
        self.places = slice
        self.jobs, self.keys, self.pilots, self.deadlines = [], [], [], []
        monkeypatch.setattr(rounds, "walk", self.walk)
        monkeypatch.setattr(pilot, "tune", self.tune)
        monkeypatch.setattr(rounds, "simulate", self.simulate)

    def walk(self, job, folder, *, memory, deadline, show_progress):
        self.jobs.append(job)
        self.keys.append(job.key)
        if job.function is examples.importance:
            number = len(job.indices)
            halves = np.zeros((number, 2, 1))
            numbers = {"bound": np.zeros(number), "elbo": np.zeros(number), "half_means": halves}
            return Outcome(job.indices, numbers, 0.0)
        self.deadlines.append(deadline)
        T = len(job.context[2].step_sizes)
        indices = job.indices[self.places(self.num_done(job, T))]
        # Chains that agree: their mean is each of them.
        ones = np.ones((len(indices), NUM_CHAINS), np.float32)
        if job.function is examples.both_ways:
            gap = self.gap(T)
            gap = np.resize(gap, (len(indices), 1)) if np.ndim(gap) else gap
            numbers = {"up": -20 * ones, "down": (gap - 20) * ones}
        else:
            numbers = {
                "log_weight": self.estimate(T) * ones,
                "mean_acceptance": np.full(T - 1, 0.5),
            }
        numbers["num_nonfinite"] = np.zeros(len(indices), int)
        return Outcome(indices, numbers, self.seconds(T))

    def tune(self, key, model, proposal, xs, kernel, num_temperatures):
        self.keys.append(key)
        self.pilots.append(np.asarray(xs))
        return jnp.ones(num_temperatures)

    def simulate(self, key, model, number, contexts):
        assert contexts is None
        self.keys.append(key)
        return jnp.full((number, 3), 7.0)


@pytest.fixture
def script(monkeypatch):
    return Script(monkeypatch)


def evaluate(**changes):
    settings = {"num_chains": NUM_CHAINS, "num_temperatures": 4, "num_simulated": 3}
    return log_likelihood(MODEL, encoder, XS, **chosen(**settings | changes))


def temperatures(result):
    return [round_.num_temperatures for round_ in result.rounds]


def test_without_a_tolerance_there_is_one_round(script):
    result = evaluate()
    assert temperatures(result) == [4]
    assert (result.is_tolerance_reached, result.is_complete) == (None, True)
    assert result.rounds[0].change is None
    assert len(script.jobs) == 2


def test_temperatures_double_until_the_gap_and_the_change_are_small(script):
    """The gap is 2, 1, 1/2, 1/4 and the change 1/2, 1/4, 1/8 from the second round on."""
    reported = []
    result = evaluate(tolerance=0.3, report=reported.append)
    assert temperatures(result) == [4, 8, 16, 32]
    assert reported == result.rounds
    assert result.is_tolerance_reached is True
    np.testing.assert_allclose([r.bdmc.gap.mean for r in result.rounds], [2, 1, 0.5, 0.25])
    changes = [r.change for r in result.rounds[1:]]
    np.testing.assert_allclose(changes, [0.5, 0.25, 0.125], rtol=1e-5)
    # What is reported is of the last round, with nothing of those before but their cost.
    np.testing.assert_allclose(result.log_p, -10.125)
    assert result.betas.shape == (33,)
    costs = [20 * 64 * (1 + min(T, 50)) + (5 + 6) * NUM_CHAINS * T for T in (4, 8, 16, 32)]
    assert [r.decoder_gradients for r in result.rounds] == costs
    assert result.decoder_gradients == sum(costs)


@pytest.mark.parametrize(
    ("gap", "estimate", "wanted"),
    [
        (lambda T: 8 / T, lambda T: -10.0, [4, 8, 16, 32]),
        (lambda T: 0.0, lambda T: -10 - 16 / T, [4, 8, 16, 32, 64]),
        (lambda T: 0.0, lambda T: -10 + 16 / T, [4, 8, 16, 32, 64]),
        (lambda T: 0.0, lambda T: -10.0, [4, 8]),
    ],
    ids=["gap", "rise", "fall", "at once"],
)
def test_both_must_be_small_and_a_change_needs_two_rounds(script, gap, estimate, wanted):
    script.gap, script.estimate = gap, estimate
    result = evaluate(tolerance=0.3)
    assert temperatures(result) == wanted
    assert result.is_tolerance_reached is True


def spread_gap(mean, error):
    """A gap of three kinds of examples; so large is its error with three of them."""
    return mean + error * np.array([[-1], [0], [1]]) * np.sqrt(3)


def test_a_gap_must_be_small_for_sure(script):
    """Its mean, 0.25, is below the tolerance from the start; its error is 0.4, 0.2, 0.1, 0.05."""
    script.gap = lambda T: spread_gap(0.25, 1.6 / T)
    script.estimate = lambda T: -10.0
    result = evaluate(tolerance=0.4)
    errors = [r.bdmc.gap.standard_error for r in result.rounds]
    np.testing.assert_allclose(errors, [0.4, 0.2, 0.1, 0.05], rtol=1e-5)
    np.testing.assert_allclose([r.bdmc.gap.mean for r in result.rounds], 0.25, rtol=1e-5)
    assert result.is_tolerance_reached is True


def test_noise_of_the_gap_is_met_by_more_examples_and_not_by_temperatures(script):
    """A gap of 0.02 +- 0.4 by 3 examples; by 12 its error is 0.17, and by 48 it is 0.08."""
    script.gap, script.estimate = lambda T: spread_gap(0.02, 0.4), lambda T: -10.0
    result = evaluate(tolerance=0.4)
    assert result.is_tolerance_reached is True
    # A second round, as a change needs two; both have as many examples as it takes.
    assert temperatures(result) == [4, 8]
    both_ways = [job for job in script.jobs if job.function is examples.both_ways]
    assert [len(job.indices) for job in both_ways] == [3, 12, 48] * 2
    assert [len(job.context[2].step_sizes) for job in both_ways] == [4] * 3 + [8] * 3
    # The same draws go on, so what was computed of fewer counts.
    assert len({jax.random.key_data(job.key).tobytes() for job in both_ways[:3]}) == 1
    gap = result.gap
    assert gap.num_examples == 48
    assert gap.mean + 2 * gap.standard_error < 0.4
    # All of them are paid for, and counted once.
    cost = 20 * 64 * 9 + (5 + 2 * 48) * NUM_CHAINS * 8
    assert result.rounds[-1].decoder_gradients == cost


def test_examples_are_not_added_for_a_gap_that_is_too_large_or_without_a_tolerance(script):
    script.gap = lambda T: spread_gap(8 / T, 0.4 / T)
    assert temperatures(evaluate(tolerance=0.4)) == [4, 8, 16, 32]
    counts = [len(job.indices) for job in script.jobs if job.function is examples.both_ways]
    assert counts == [3] * 4
    script.gap, script.jobs = (lambda T: spread_gap(0.02, 9.0)), []
    assert evaluate().gap.num_examples == 3


def test_examples_are_added_a_few_times_only_and_while_there_is_time(script):
    script.gap, script.estimate = lambda T: spread_gap(0.0, 1e3), lambda T: -10.0
    script.seconds = lambda T: 10.0 * T
    assert evaluate(tolerance=0.1, max_seconds=100.0).gap.num_examples == 3
    script.seconds = lambda T: 300.0 if T == 8 else 0.0
    result = evaluate(tolerance=0.1, max_seconds=100.0)
    assert [r.bdmc.gap.num_examples for r in result.rounds] == [3 * 4**3, 3]
    assert result.is_tolerance_reached is False


def test_rounds_share_no_draws_and_no_examples_of_the_pilot(script):
    """Nor do the pilot, the certificate, the estimate and importance sampling."""
    evaluate(tolerance=0.3, importance_samples=4)
    first, script.keys = script.keys, []
    evaluate(tolerance=0.3, importance_samples=4, seed=1)
    keys = first + script.keys
    assert len(keys) == 2 * (4 * 4 + 1)
    # Nor with an example, whose key is folded from that of its walk.
    keys += [jax.random.fold_in(job.key, i) for job in script.jobs for i in job.indices]
    found = [jax.random.key_data(key).tobytes() for key in keys]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(("given", "wanted"), [(None, np.full((64, 3), 7.0)), (PILOT_XS, PILOT_XS)])
def test_the_pilot_has_other_examples(script, given, wanted):
    evaluate(pilot_x=given)
    (found,) = script.pilots
    np.testing.assert_array_equal(found, np.resize(wanted, (64, 3)))
    # And the estimate has those that were asked for.
    np.testing.assert_array_equal(script.jobs[-1].xs, XS)


def test_both_runs_of_a_round_have_its_frozen_kernel(script, monkeypatch):
    own = kernel(1, 0.5, 0.25, schedule=schedules.linear, target_accept=0.7)

    def tune(key, model, proposal, xs, kernel, num_temperatures):
        assert kernel == own
        return jnp.full(num_temperatures, 1 / num_temperatures)

    monkeypatch.setattr(pilot, "tune", tune)
    result = evaluate(tolerance=0.3, kernel=own)
    for number, T in enumerate((4, 8, 16, 32)):
        for job in script.jobs[2 * number : 2 * number + 2]:
            _, _, ladder, num_chains = job.context
            np.testing.assert_allclose(ladder.step_sizes, 1 / T)
            np.testing.assert_allclose(ladder.betas, np.linspace(0, 1, T + 1), rtol=1e-6)
            assert num_chains == NUM_CHAINS
            assert (ladder.transition, ladder.last_move) == (own.transition, False)
    np.testing.assert_allclose(result.step_sizes, 1 / 32)


def test_a_round_that_would_end_too_late_is_not_begun(script):
    """A round takes 20, then 40 seconds, so the next one would take 80."""
    script.seconds = lambda T: 2.5 * T
    result = evaluate(tolerance=0.3, max_seconds=70.0)
    assert temperatures(result) == [4, 8]
    assert (result.is_tolerance_reached, result.is_complete) == (False, True)
    assert result.bdmc.gap.mean == 1
    assert result.seconds == pytest.approx(60, abs=1)
    # All walks have the same deadline.
    assert len(script.deadlines) == 4 and len(set(script.deadlines)) == 1


def test_without_a_limit_there_is_no_deadline(script):
    evaluate(tolerance=0.3)
    assert set(script.deadlines) == {None}


@pytest.mark.parametrize("function", [examples.forward, examples.both_ways])
def test_a_later_round_that_is_not_whole_is_dropped(script, function):
    script.num_done = lambda job, T: 2 if T == 16 and job.function is function else 9
    reported = []
    result = evaluate(tolerance=0.3, max_seconds=1000.0, report=reported.append)
    assert temperatures(result) == [4, 8]
    assert reported == result.rounds
    assert (result.is_tolerance_reached, result.is_complete) == (False, True)
    np.testing.assert_allclose(result.log_p, np.full(5, -10.5))


@pytest.mark.parametrize(
    ("function", "num_examples", "num_simulated"),
    [(examples.forward, 2, 3), (examples.both_ways, 5, 2)],
)
def test_a_first_round_that_is_not_whole_is_reported_as_such(
    script, function, num_examples, num_simulated
):
    script.num_done = lambda job, T: 2 if job.function is function else 9
    result = evaluate(tolerance=0.3, max_seconds=1000.0)
    assert temperatures(result) == [4]
    assert (result.is_tolerance_reached, result.is_complete) == (False, False)
    assert result.estimate.num_examples == len(result.log_p) == len(result.indices) == num_examples
    assert result.bdmc.gap.num_examples == num_simulated
    tuning, chain = 20 * 64 * 5, NUM_CHAINS * 4
    assert result.decoder_gradients == tuning + chain * (num_examples + 2 * num_simulated)


@pytest.mark.parametrize("broken", ["gap", "estimate"])
def test_what_is_not_a_number_is_not_waited_for(script, broken):
    """No number of temperatures would bring it below the tolerance."""
    setattr(script, broken, lambda T: math.nan if T == 8 else -10.0)
    result = evaluate(tolerance=1e-3)
    assert temperatures(result) == [4, 8]
    assert result.is_tolerance_reached is False


def test_importance_sampling_is_of_the_examples_that_were_annealed(script):
    script.places = lambda number: [1, 3]
    evaluate(importance_samples=4, indices=np.array([30, 10, 50, 20, 40]), num_simulated=4)
    job = script.jobs[-1]
    assert job.function is examples.importance
    assert job.context[2] == 4
    assert job.indices.tolist() == [10, 20]
    np.testing.assert_array_equal(job.xs, XS[[1, 3]])
