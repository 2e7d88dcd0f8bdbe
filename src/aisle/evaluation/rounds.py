"""The rounds of an evaluation: certify, estimate, and if a tolerance is not reached, plan again."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from aisle.annealing import effective_sample_size
from aisle.evaluation import examples
from aisle.evaluation.bounds import lower_bounds, upper_bounds
from aisle.evaluation.diagnostics import pareto_shapes
from aisle.evaluation.planning import Plan
from aisle.evaluation.plans import Planner
from aisle.evaluation.results import Bidirectional, Importance, LogLikelihood, Round
from aisle.evaluation.task import (
    IMPORTANCE,
    Spent,
    Task,
    anneal_given,
    anneal_simulated,
    tuned,
)
from aisle.evaluation.work import Job, Outcome, is_averaged, is_late
from aisle.statistics import CLEAR, summarise

# A latent is in use if its mean under q varies by more than this over the examples.
_ACTIVE = 0.01
_sizes = jax.jit(jax.vmap(effective_sample_size))

# Plans that are made, should the tolerance not be reached by the first.
_MOST_ROUNDS = 5

# Called with each plan when it is made, and with each round when it is complete.
Report = Callable[[Plan | Round], None]


@dataclasses.dataclass
class _Found:
    """What was computed at one number of temperatures; more examples may be added."""

    num_temperatures: int
    simulated: Outcome = dataclasses.field(default_factory=lambda: Outcome(np.arange(0), {}, 0.0))
    forward: Outcome | None = None


def run_rounds(task: Task, report: Report | None) -> LogLikelihood:
    """Make and carry out plans until the tolerance is reached; without one, do one round."""
    say = report or (lambda _: None)
    tolerance, wanted = task.certificate.tolerance, task.certificate.num_examples
    if tolerance is None:
        found = _Found(task.sampler.num_temperatures)
        result = _round(tuned(task), found, wanted, [])
        say(result.rounds[-1])
        return result
    planner = Planner(task)
    plan, found, result = planner.first(), None, None
    for _ in range(_MOST_ROUNDS):
        say(plan)
        if found is None or found.num_temperatures != plan.num_temperatures:
            found = _Found(plan.num_temperatures)
        before = [] if result is None else result.rounds
        latest = _round(planner.task, found, plan.num_simulated, before)
        # The first round is reported however far it comes; a later one only if it is complete.
        if result is not None and not latest.is_complete:
            break
        result = dataclasses.replace(latest, plan=plan, is_tolerance_reached=False)
        last = result.rounds[-1]
        say(last)
        limit = _limit(last)
        if not result.is_complete or not math.isfinite(limit):
            break
        if limit < tolerance:
            return dataclasses.replace(result, is_tolerance_reached=True)
        plan = planner.again(found.simulated, last)
        if is_late(task.deadline, plan.seconds):
            break
    assert result is not None
    return result


def _limit(round_: Round) -> float:
    """Return what gap and change are hardly above; a small gap of some rounds may be luck."""
    assert round_.bdmc is not None
    gap, change = round_.bdmc.gap, round_.change
    # What is not a number comes near no tolerance, by however many temperatures.
    if not math.isfinite(round_.estimate.mean):
        return math.nan
    return max(gap.mean + CLEAR * gap.standard_error, abs(change or 0.0))


def _round(task: Task, found: _Found, num_simulated: int, before: list[Round]) -> LogLikelihood:
    """Certify and estimate, with draws of this T's own, as far as that was not done before."""
    number, had = found.num_temperatures, len(found.simulated.indices)
    ladder = task.ladder(number)
    spent = Spent(0, 0.0) if before else task.spent
    if num_simulated > had:
        new, more = anneal_simulated(task, number, np.arange(had, num_simulated))
        found.simulated, spent = _joined(found.simulated, new), spent.plus(more)
    if found.forward is None:
        found.forward, more = anneal_given(task, number)
        spent = spent.plus(more)
    simulated, forward = found.simulated, found.forward
    log_weights = forward.numbers["log_weight"]
    log_p = lower_bounds(log_weights)
    round_ = Round(
        num_temperatures=number,
        estimate=summarise(log_p),
        bdmc=_bidirectional(simulated) if len(simulated.indices) else None,
        change=_change(log_weights, log_p),
        decoder_gradients=spent.gradients,
        seconds=spent.seconds,
    )
    done = (len(simulated.indices), len(forward.indices))
    return LogLikelihood(
        indices=forward.indices,
        log_p=log_p,
        effective_sample_size=np.asarray(_sizes(jnp.asarray(log_weights))),
        pareto_shape=pareto_shapes(log_weights),
        num_nonfinite=forward.numbers["num_nonfinite"],
        acceptance=forward.numbers["mean_acceptance"],
        betas=np.asarray(ladder.betas),
        step_sizes=np.asarray(ladder.step_sizes),
        rounds=[*before, round_],
        importance=None,
        is_tolerance_reached=None,
        is_complete=done == (num_simulated, len(task.indices)),
        settings=task.settings(),
    )


def _change(log_weights: np.ndarray, log_p: np.ndarray) -> float | None:
    """Return by how much all chains are above half of them: about as much as more would add.

    The bias falls as one over the number of chains. This looks at the given examples, where the gap
    looks at simulated ones.
    """
    half = log_weights.shape[1] // 2
    if not half:
        return None
    halves = [lower_bounds(log_weights[:, part]) for part in (slice(half), slice(-half, None))]
    with np.errstate(invalid="ignore"):
        return float(np.mean(log_p - np.mean(halves, axis=0)))


def _joined(one: Outcome, other: Outcome) -> Outcome:
    numbers = {
        name: np.concatenate([one.numbers[name], rows]) if one.numbers else rows
        for name, rows in other.numbers.items()
        if not is_averaged(name)
    }
    indices = np.concatenate([one.indices, other.indices])
    return Outcome(indices, numbers, one.seconds + other.seconds)


def _bidirectional(outcome: Outcome) -> Bidirectional:
    up, down = outcome.numbers["up"], outcome.numbers["down"]
    lower, upper = lower_bounds(up), upper_bounds(up, down)
    gap = upper - lower
    return Bidirectional(summarise(lower), summarise(upper), summarise(gap), float(gap.max()))


def bound_by_importance(task: Task, result: LogLikelihood) -> Importance:
    """Bound the same examples by importance sampling, and see which latents the encoder uses."""
    number = task.importance_samples
    context, key = (task.model, task.proposal, number), task.key(0, IMPORTANCE)
    # Of the examples that were annealed, should the time have been up before the last.
    done = np.isin(task.indices, result.indices)
    xs = jax.tree.map(lambda a: a[done], task.x)
    preferred = max(1, 4096 // number)
    job = Job(
        "importance sampling", examples.importance, context, key, xs, result.indices, 0, preferred
    )
    outcome = task.walk(job, f"importance{number}")
    numbers, annealed = outcome.numbers, result.log_p[np.isin(result.indices, outcome.indices)]
    first, second = numbers["half_means"].astype(np.float64).swapaxes(0, 1)
    # Both halves are noisy, but not with the same noise: it does not count as variation.
    variation = np.mean((first - first.mean(0)) * (second - second.mean(0)), axis=0)
    return Importance(
        number,
        summarise(numbers["bound"]),
        summarise(numbers["elbo"]),
        summarise(annealed - numbers["bound"]),
        int(np.sum(variation > _ACTIVE)),
        len(variation),
    )
