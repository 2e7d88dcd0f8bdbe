"""How plans are made and carried out, with runs that are scripted instead of computed."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle import log_likelihood, schedules
from aisle.evaluation import examples, pilot, planning, plans, rounds, task
from aisle.evaluation.planning import Plan
from aisle.evaluation.work import Outcome
from aisle.models import DiagonalNormal, LinearGaussian
from evaluating import chosen, kernel

MODEL = LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.zeros(()))
XS = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
PILOT_XS = XS[:2] + 3
NUM_CHAINS, NUM_REVERSE = 4, 2


def encoder(x):
    return DiagonalNormal(jnp.zeros(1), jnp.ones(1))


class Script:
    """Stands in for the runs: what they would find, by T, and what they were asked for.

    Log-weights vary by `spread`, forwards and in reverse as Crooks' relation says; those of
    certificates by `certified`, and those of given examples by `given`, if there is one. So many
    `seconds` pass in a walk, and `num_done` of its examples are done, those at `places`.
    """

    def __init__(self, monkeypatch):
        self.spread = lambda T: 40 / T
        self.certified = self.given = None
        self.seconds = lambda job, T: 1e-9 * T
        self.num_done = lambda job, T: len(job.indices)
        self.places = slice
        self.ratio = np.sqrt
        self.jobs, self.keys, self.pilots, self.deadlines = [], [], [], []
        monkeypatch.setattr(task, "walk", self.walk)
        monkeypatch.setattr(pilot, "tune", self.tune)
        monkeypatch.setattr(task, "simulate", self.simulate)

    def walk(self, job, folder, *, memory, deadline, show_progress):
        self.jobs.append(job)
        self.keys.append(job.key)
        if job.function is examples.importance:
            number = len(job.indices)
            halves = np.zeros((number, 2, 1))
            numbers = {"bound": np.zeros(number), "elbo": np.zeros(number), "half_means": halves}
            return Outcome(job.indices, numbers, 0.0)
        self.deadlines.append(deadline)
        T, chains = len(job.context[2].step_sizes), job.context[3]
        indices = job.indices[self.places(self.num_done(job, T))]
        is_certificate = job.function is examples.both_ways and chains == NUM_CHAINS
        own = self.given if job.function is examples.forward else is_certificate and self.certified
        spread = (own or self.spread)(T)
        numbers = self.weights(spread, indices, chains)
        if job.function is examples.forward:
            numbers = {"log_weight": numbers["up"], "mean_acceptance": np.full(T - 1, 0.5)}
        # Those of temperatures to be placed: steep at first.
        numbers["mean_log_ratio"] = self.ratio(job.context[2].betas[:-1])
        numbers["num_nonfinite"] = np.zeros(len(indices), int)
        return Outcome(indices, numbers, self.seconds(job, T))

    def weights(self, spread, indices, chains):
        random = np.random.default_rng(3)
        noise = random.standard_normal((10_000, chains + math.isqrt(chains - 1) + 1))[indices]
        up, down = np.split(np.sqrt(spread) * noise - 20, [chains], axis=1)
        return {"up": np.float32(up - spread / 2), "down": np.float32(down + spread / 2)}

    def tune(self, key, model, proposal, xs, kernel, num_temperatures):
        self.keys.append(key)
        self.pilots.append(np.asarray(xs))
        return jnp.ones(num_temperatures)

    def simulate(self, key, model, number, contexts):
        assert contexts is None
        self.keys.append(key)
        return jnp.full((number, 3), 7.0)

    def certificates(self):
        """The walks of certificates: their T, and the numbers of their examples."""
        both = [job for job in self.jobs if job.function is examples.both_ways]
        own = [job for job in both if job.context[3] == NUM_CHAINS]
        return [(len(job.context[2].step_sizes), job.indices) for job in own]


@pytest.fixture
def script(monkeypatch):
    return Script(monkeypatch)


def evaluate(**changes):
    settings = {"num_chains": NUM_CHAINS, "num_temperatures": 4, "num_simulated": 30, "refit": 0}
    return log_likelihood(MODEL, encoder, XS, **chosen(**settings | changes))


def temperatures(result):
    return [round_.num_temperatures for round_ in result.rounds]


def cost(T, given, simulated):
    """Gradients of chains of one leapfrog step, those back with a tenth of T moves more."""
    back = NUM_REVERSE * (T + -(-T // 10))
    return given * NUM_CHAINS * T + simulated * (NUM_CHAINS * T + back)


# Tuning on 50 temperatures before and after these are placed, and short runs of 25 for that, and of
# 25 and 100 after it, of 32 examples and 9 + 3 chains.
PILOTS = 2 * 20 * 64 * 51 + sum(32 * (9 * T + 3 * (T + -(-T // 10))) for T in (25, 25, 100))


def test_without_a_tolerance_there_is_one_round(script):
    result = evaluate()
    assert temperatures(result) == [4]
    assert (result.is_tolerance_reached, result.is_complete, result.plan) == (None, True, None)
    assert len(script.jobs) == 2
    assert result.decoder_gradients == 20 * 64 * 5 + cost(4, 5, 30)


def test_a_plan_goes_to_the_tolerance_at_once(script):
    said = []
    result = evaluate(tolerance=0.1, report=said.append)
    plan, round_ = said
    assert (plan, [round_]) == (result.plan, result.rounds)
    assert result.is_tolerance_reached is True
    gap = result.gap
    assert gap.mean + 2 * gap.standard_error < 0.1
    assert (gap.num_examples, result.num_temperatures) == (plan.num_simulated, plan[0])
    # Not by going further than needed.
    assert 0.07 < plan.gap < 0.081
    assert result.betas.shape == (plan[0] + 1,)
    # Pilots are paid for in the first round.
    assert plan.gradients == cost(plan[0], 5, plan.num_simulated)
    assert result.decoder_gradients == PILOTS + plan.gradients


def test_the_change_is_from_half_of_the_chains_to_all(script):
    """Of K normal log-weights the bias falls as 1/K: what more chains would add."""
    log_weights = script.weights(1.0, np.arange(5000), NUM_CHAINS)["up"]
    log_p = rounds.lower_bounds(log_weights)
    found = rounds._change(log_weights, log_p)
    few = rounds.lower_bounds(log_weights[:, :2]).mean()
    assert found == pytest.approx(log_p.mean() - few, abs=0.02)
    assert found > 0.1
    assert rounds._change(log_weights[:, :1], log_p) is None
    # A gap that is small on simulated examples is not enough.
    script.given = lambda T: 1.0
    result = evaluate(tolerance=0.05)
    assert result.gap.mean < 0.05 < result.rounds[-1].change
    assert result.is_tolerance_reached is False
    assert temperatures(result)[1] >= 2 * temperatures(result)[0]
    # As far as temperatures go, at the end.
    script.given, script.spread = (lambda T: 9.0), (lambda T: 900 / T)
    assert evaluate(tolerance=0.05).is_tolerance_reached is False


def test_a_certificate_that_is_worse_than_foretold_is_planned_for_again(script):
    script.certified = lambda T: 120 / T
    result = evaluate(tolerance=0.1)
    first, second = temperatures(result)[:2]
    assert first < second < 8 * first
    assert result.is_tolerance_reached is True
    # It has draws of its own, as its T depends on those of the first.
    assert [T for T, _ in script.certificates()] == temperatures(result)
    assert result.rounds[1].decoder_gradients == cost(second, 5, result.gap.num_examples)


def test_noise_of_the_gap_is_met_by_more_examples_and_not_by_temperatures(script, monkeypatch):
    """A schedule of its own fixes T; what was computed of fewer examples counts."""
    script.spread = lambda T: 0.2
    own = kernel(schedule=np.linspace(0, 1, 9))
    monkeypatch.setattr(planning, "_AIM", 0.99)
    few = [Plan(8, 3, False, False, 0.0, 0, 0.0)]
    monkeypatch.setattr(plans.Planner, "first", lambda self: few[0])
    result = evaluate(tolerance=0.1, num_temperatures=8, kernel=own, num_simulated=3)
    walks = script.certificates()
    assert {T for T, _ in walks} == {8} and len(walks) > 1
    every = np.concatenate([indices for _, indices in walks])
    np.testing.assert_array_equal(every, np.arange(result.gap.num_examples))
    assert result.is_tolerance_reached is True
    # All of them are paid for, and counted once; the given examples, too.
    assert sum(job.function is examples.forward for job in script.jobs) == 1
    paid = result.rounds[1].decoder_gradients
    assert paid == cost(8, 0, len(walks[1][1]))


def test_rounds_share_no_draws_and_no_examples_of_the_pilot(script):
    """Nor do the pilots, the certificate, the estimate and importance sampling."""
    script.certified = lambda T: 120 / T
    evaluate(tolerance=0.1, importance_samples=4)
    first, script.keys = script.keys, []
    evaluate(tolerance=0.1, importance_samples=4, seed=1)
    keys = first + script.keys
    # Tuning twice, three short runs, two rounds and importance sampling.
    assert len(keys) == 2 * (2 * 2 + 3 + 2 * 2 + 1)
    # Nor with an example, whose key is folded from that of its walk.
    keys += [jax.random.fold_in(job.key, i) for job in script.jobs[:3] for i in job.indices[:9]]
    found = [jax.random.key_data(key).tobytes() for key in keys]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(("given", "wanted"), [(None, np.full((64, 3), 7.0)), (PILOT_XS, PILOT_XS)])
def test_the_pilot_has_other_examples(script, given, wanted):
    evaluate(pilot_x=given)
    (found,) = script.pilots
    np.testing.assert_array_equal(found, np.resize(wanted, (64, 3)))
    # And the estimate has those that were asked for.
    np.testing.assert_array_equal(script.jobs[-1].xs, XS)


def test_all_runs_have_the_frozen_kernel(script, monkeypatch):
    own = kernel(1, 0.5, 0.25, schedule=schedules.linear, target_accept=0.7)

    def tune(key, model, proposal, xs, kernel, num_temperatures):
        assert (kernel, num_temperatures) == (own, 50)
        return jnp.linspace(1.0, 2.0, 50)

    monkeypatch.setattr(pilot, "tune", tune)
    result = evaluate(tolerance=0.3, kernel=own)
    assert len(script.jobs) == 4
    for job in script.jobs:
        ladder, T = job.context[2], len(job.context[2].step_sizes)
        np.testing.assert_allclose(ladder.betas, np.linspace(0, 1, T + 1), rtol=1e-6, atol=1e-7)
        # By the inverse temperature, between those that were tuned.
        logs = np.interp(ladder.betas[1:], np.linspace(0, 1, 51)[1:], np.log(np.linspace(1, 2, 50)))
        np.testing.assert_allclose(ladder.step_sizes, np.exp(logs), rtol=1e-5)
        assert (ladder.transition, ladder.last_move) == (own.transition, False)
    np.testing.assert_array_equal(result.step_sizes, script.jobs[-1].context[2].step_sizes)


def test_temperatures_are_placed_by_a_pilot_of_their_own(script):
    """By short runs on the usual schedule; all others have the new one, and steps tuned to it."""
    result = evaluate(tolerance=0.1)
    first, *others = script.jobs
    np.testing.assert_allclose(first.context[2].betas, schedules.sigmoid(25), rtol=1e-6)
    known = schedules.sigmoid(25)
    wanted = schedules.placed(known, np.sqrt(known[:-1]))
    assert len(script.pilots) == 2
    for job in others:
        betas = job.context[2].betas
        np.testing.assert_allclose(betas, wanted(len(betas) - 1), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(result.betas, others[-1].context[2].betas)
    # They are dense where the ratio is steep.
    assert result.betas[len(result.betas) // 2] < 0.4
    # A schedule of the user's own stays, and so does the usual one if the ratios are no numbers.
    script.jobs.clear()
    evaluate(tolerance=0.1, kernel=kernel(schedule=schedules.linear))
    assert all(np.ptp(np.diff(job.context[2].betas)) < 1e-6 for job in script.jobs)
    script.ratio = lambda betas: np.where(betas < 0.5, betas, np.nan)
    usual = evaluate(tolerance=0.1)
    np.testing.assert_allclose(usual.betas, schedules.sigmoid(usual.num_temperatures), rtol=1e-6)


def slow():
    """A millisecond for each gradient, and two seconds to compile a program."""
    seen = set()

    def seconds(job, T):
        is_new = (job.function, T, job.context[3]) not in seen
        seen.add((job.function, T, job.context[3]))
        return 2.0 * is_new + 1e-3 * job.gradients * len(job.indices)

    return seconds


@pytest.mark.parametrize("schedule", [schedules.sigmoid, schedules.linear], ids=["placed", "own"])
def test_the_time_is_told_from_that_of_compiling(script, schedule):
    script.seconds = slow()
    plan = evaluate(tolerance=0.1, kernel=kernel(schedule=schedule)).plan
    assert plan.seconds == pytest.approx(4 + 1e-3 * plan.gradients, rel=1e-9)


def test_the_time_is_planned_for(script):
    script.seconds = slow()
    plain = evaluate(tolerance=0.1)
    limit = plain.plan.seconds / 8
    script.seconds = slow()
    result = evaluate(tolerance=0.1, max_seconds=limit)
    assert result.plan.seconds < limit
    assert (result.is_tolerance_reached, result.is_complete) == (False, True)
    assert 0.1 < result.plan.gap < 0.8
    # Another round would not end in time.
    assert len(result.rounds) == 1
    assert len(set(script.deadlines[5:])) == 1


def test_without_a_limit_there_is_no_deadline(script):
    evaluate(tolerance=0.3)
    assert set(script.deadlines) == {None}


def test_rounds_end_some_time(script):
    """Where no number of temperatures helps."""
    script.certified = lambda T: 30.0
    result = evaluate(tolerance=0.1)
    assert len(result.rounds) == rounds._MOST_ROUNDS
    assert result.is_tolerance_reached is False


@pytest.mark.parametrize("function", [examples.forward, examples.both_ways])
def test_a_later_round_that_is_not_whole_is_dropped(script, function):
    script.certified = lambda T: 120 / T
    calls = []

    def num_done(job, T):
        calls.append(job.function is function and job.context[3] == NUM_CHAINS)
        return 2 if sum(calls) == 2 and calls[-1] else len(job.indices)

    script.num_done = num_done
    said = []
    result = evaluate(tolerance=0.1, max_seconds=1000.0, report=said.append)
    assert len(result.rounds) == 1
    # Two plans and a round.
    assert [type(each) for each in said] == [Plan, rounds.Round, Plan]
    assert (result.is_tolerance_reached, result.is_complete) == (False, True)
    assert len(result.log_p) == 5


@pytest.mark.parametrize(
    ("function", "num_examples", "num_simulated"),
    [(examples.forward, 2, 30), (examples.both_ways, 5, 2)],
)
def test_a_first_round_that_is_not_whole_is_reported_as_such(
    script, function, num_examples, num_simulated
):
    script.num_done = lambda job, T: 2 if job.function is function else 99
    result = evaluate(max_seconds=1000.0)
    assert (result.is_tolerance_reached, result.is_complete) == (None, False)
    assert result.estimate.num_examples == len(result.log_p) == len(result.indices) == num_examples
    assert result.bdmc.gap.num_examples == num_simulated
    assert result.decoder_gradients == 20 * 64 * 5 + cost(4, num_examples, num_simulated)


@pytest.mark.parametrize("broken", ["certified", "spread"])
def test_what_is_not_a_number_is_not_waited_for(script, broken):
    """No number of temperatures would bring it below the tolerance."""
    setattr(script, broken, lambda T: math.nan)
    result = evaluate(tolerance=1e-3)
    assert len(result.rounds) == 1
    assert result.is_tolerance_reached is False


class Weighted(eqx.Module):
    """An encoder with something to fit."""

    loc: jax.Array

    def __call__(self, x):
        return DiagonalNormal(self.loc, jnp.ones(1))


@pytest.mark.parametrize(
    ("after_refit", "after_care", "refit", "wanted"),
    [
        (4, 4, None, (True, False)),
        (4000, 4000, None, (False, False)),
        (4000, 4, None, (False, True)),
        (3000, 4, None, (True, True)),
        (4, 4, 0, (False, False)),
    ],
    ids=["refit", "neither", "care", "both", "not wanted"],
)
def test_another_start_is_tried_where_it_may_pay(
    script, monkeypatch, after_refit, after_care, refit, wanted
):
    """Spreads fall from 4000 / T to others after a refit, and to others by smaller steps."""
    updates, care = [], []

    def fit(key, model, proposal, num_updates, *_, **__):
        updates.append(num_updates)
        return Weighted(jnp.ones(1)), 7.0

    def walk(job, *args, **options):
        _, proposal, ladder, _ = job.context
        is_careful = ladder.transition.num_leapfrog == 2
        care.append(is_careful)
        power = after_refit if float(proposal.loc[0]) else 4000
        power = after_care if is_careful else power
        script.spread = lambda T: power / T
        return script.walk(job, *args, **options)

    monkeypatch.setattr(task, "walk", walk)
    monkeypatch.setattr(task.refitting, "refit", fit)
    changes = chosen(NUM_CHAINS, 4, refit=refit, num_simulated=30, tolerance=0.1)
    result = log_likelihood(MODEL, Weighted(jnp.zeros(1)), np.tile(XS, (40, 1)), **changes)
    assert (result.plan.is_refitted, result.plan.is_careful) == wanted
    assert updates == ([] if refit == 0 else [6000])
    # Smaller steps are tried where a refit has not made the plan short.
    assert any(care) == (refit is None and after_refit > 4)
    # Chains of the round are those of what was chosen, and what was tried is paid for.
    assert (bool(script.jobs[-1].context[1].loc[0]), care[-1]) == wanted
    assert result.settings["refit"] == 6000 * wanted[0]
    assert result.settings["target_accept"] == (0.97 if wanted[1] else 0.8)
    assert result.num_leapfrog == 1 + wanted[1]
    assert (result.rounds[0].seconds >= 7) == bool(updates)
    if not any(care):
        paid = 6000 * 256 * len(updates) + PILOTS * (1 + len(updates)) + result.plan.gradients
        assert result.rounds[0].decoder_gradients == paid


def test_an_easy_model_is_not_refitted(script, monkeypatch):
    monkeypatch.setattr(task.refitting, "refit", pytest.fail)
    changes = chosen(NUM_CHAINS, 4, refit=None, num_simulated=30, tolerance=0.1)
    assert not log_likelihood(MODEL, Weighted(jnp.zeros(1)), XS, **changes).plan.is_refitted


def test_importance_sampling_is_of_the_examples_that_were_annealed(script):
    script.places = lambda number: [1, 3]
    evaluate(importance_samples=4, indices=np.array([30, 10, 50, 20, 40]), num_simulated=4)
    job = script.jobs[-1]
    assert job.function is examples.importance
    assert job.context[2] == 4
    assert job.indices.tolist() == [10, 20]
    np.testing.assert_array_equal(job.xs, XS[[1, 3]])
