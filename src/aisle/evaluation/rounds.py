"""The rounds of an evaluation, each with twice the temperatures: tune, certify, estimate."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle.annealing import HMC, Ladder, effective_sample_size
from aisle.evaluation import examples, parts, pilot, refitting
from aisle.evaluation.results import Bidirectional, Importance, LogLikelihood, Round
from aisle.evaluation.sampler import Certificate, Sampler
from aisle.evaluation.work import Job, Limits, Outcome, is_late, preferred_examples, walk
from aisle.models.use import simulate
from aisle.statistics import CLEAR, Mean, summarise
from aisle.types import Model, PRNGKey, Proposal

# A latent is in use if its mean under q varies by more than this over the examples.
_ACTIVE = 0.01

# What the keys of a round are for.
_PILOT, _FORWARD, _BDMC, _IMPORTANCE, _REFIT = range(5)

# By how much simulated examples grow where the gap's error is too large, and how often.
_MORE_EXAMPLES, _MOST_GROWTHS = 4, 3


class Task(NamedTuple):
    """What all rounds share.

    Attributes:
        proposal: where chains start.
        about: what to write beside the numbers.
        identity: what the numbers depend on beside sampler and seed, as hashes.
        refit_seconds: that were spent on refitting the proposal.
    """

    model: Model
    proposal: Proposal
    x: PyTree
    pilot_x: PyTree | None
    indices: np.ndarray
    sampler: Sampler
    certificate: Certificate
    importance_samples: int
    seed: int
    folder: Path | None
    about: dict[str, Any] | None
    identity: dict[str, str]
    show_progress: bool
    refit_seconds: float = 0.0

    def key(self, round_: int, purpose: int) -> PRNGKey:
        """Return a key for one purpose in one round: no two share a draw."""
        root = jax.random.key(self.seed)
        return jax.random.fold_in(jax.random.fold_in(root, round_), purpose)

    def path(self, *names: str) -> Path | None:
        """Return a path in the folder of results, if there is one."""
        return None if self.folder is None else self.folder.joinpath(*names)

    def limits(self, deadline: float | None = None) -> Limits:
        """Return the limits of a walk."""
        return Limits(self.sampler.memory_mb * 2**20, deadline, self.show_progress)

    def depends_on(self) -> dict[str, Any]:
        """Return what the numbers of a tile depend on, as plain values."""
        kernel = self.sampler.kernel
        transition = kernel.transition
        plain = {"num_leapfrog": transition.num_gradients}
        if isinstance(transition, HMC):
            plain |= {
                "precondition": transition.precondition,
                "momentum_refresh": transition.refresh,
            }
        return {
            "num_chains": self.sampler.num_chains,
            "num_temperatures": self.sampler.num_temperatures,
            **plain,
            "target_accept": kernel.target_accept,
            "refit": self.sampler.refit,
            "kernel": repr(kernel),
            "seed": self.seed,
            **self.identity,
        }

    def settings(self) -> dict[str, Any]:
        """Return everything that the result depends on, as plain values."""
        return {
            **self.depends_on(),
            "bdmc_examples": self.certificate.num_examples,
            "tolerance": self.certificate.tolerance,
            "max_seconds": self.certificate.max_seconds,
            "importance_samples": self.importance_samples,
            "about": self.about,
        }


class _Complete(NamedTuple):
    """A round with the numbers of its examples; it is whole if none of them is missing."""

    round_: Round
    ladder: Ladder
    forward: Outcome
    is_whole: bool


def run_rounds(
    task: Task, deadline: float | None, report: Callable[[Round], None] | None
) -> LogLikelihood:
    """Double T until the tolerance is reached or the time is up; without one, do one round."""
    tolerance = task.certificate.tolerance
    done: list[_Complete] = []
    is_reached = None if tolerance is None else False
    while True:
        number = len(done)
        # The first round is reported however far it comes; a later one only if it is complete.
        found = _round(task, number, done[-1].round_ if done else None, deadline)
        if number and not found.is_whole:
            break
        done.append(found)
        if report is not None:
            report(found.round_)
        if tolerance is None or not found.is_whole or not _is_finite(found.round_):
            break
        if _is_close(found.round_, tolerance):
            is_reached = True
            break
        # The next round takes about twice as long.
        if is_late(deadline, 2 * found.round_.seconds):
            break
    return _result(task, done, is_reached)


def _is_finite(round_: Round) -> bool:
    """Say whether more temperatures could help: what is not a number comes near no tolerance."""
    assert round_.bdmc is not None
    return math.isfinite(round_.estimate.mean) and math.isfinite(_limit(round_.bdmc.gap))


def _is_close(round_: Round, tolerance: float) -> bool:
    assert round_.bdmc is not None
    if round_.change is None:
        return False
    return _limit(round_.bdmc.gap) < tolerance and abs(round_.change) < tolerance


def _limit(gap: Mean) -> float:
    """Return what the gap is hardly above: the first small one of some rounds may be luck."""
    return gap.mean + CLEAR * gap.standard_error


def refit_start(task: Task) -> Task:
    """Let chains start from a proposal that is fitted to simulated examples."""
    proposal, seconds = refitting.refit(
        task.key(0, _REFIT),
        task.model,
        task.proposal,
        task.sampler.refit,
        task.path("refitted.npz"),
        show_progress=task.show_progress,
    )
    return task._replace(proposal=proposal, refit_seconds=seconds)


def _round(task: Task, number: int, before: Round | None, deadline: float | None) -> _Complete:
    """Tune, certify, estimate: all with draws of this round's own."""
    ladder, pilot_seconds = _tuned_ladder(task, number)
    simulated, wanted = _certify(task, number, ladder, deadline)
    forward = _estimate(task, number, ladder, deadline)
    log_p, cost = summarise(_log_means(forward.numbers["log_weight"])), _cost(task, ladder)
    tuning = pilot.num_gradients(task.sampler.kernel, len(ladder.step_sizes), pilot.NUM_EXAMPLES)
    num_simulated = 0 if simulated is None else len(simulated.indices)
    seconds = pilot_seconds + forward.seconds + (simulated.seconds if simulated else 0.0)
    if number == 0:
        tuning += refitting.num_gradients(task.sampler.refit)
        seconds += task.refit_seconds
    round_ = Round(
        num_temperatures=len(ladder.step_sizes),
        estimate=log_p,
        bdmc=None if simulated is None else _bidirectional(simulated),
        change=None if before is None else log_p.mean - before.estimate.mean,
        decoder_gradients=tuning + cost * (2 * num_simulated + len(forward.indices)),
        seconds=seconds,
    )
    is_whole = (num_simulated, len(forward.indices)) == (wanted, len(task.indices))
    return _Complete(round_, ladder, forward, is_whole)


def _certify(
    task: Task, number: int, ladder: Ladder, deadline: float | None
) -> tuple[Outcome | None, int]:
    """Anneal simulated examples both ways; return what was found and how many were wanted.

    Where the gap's error is what keeps a tolerance from being reached, and not the gap itself, more
    examples help and more temperatures do not.
    """
    wanted, tolerance = task.certificate.num_examples, task.certificate.tolerance
    if not wanted:
        return None, 0
    outcome = _both_ways(task, number, ladder, deadline, wanted)
    for _ in range(_MOST_GROWTHS):
        gap = _bidirectional(outcome).gap
        is_noise = tolerance is not None and gap.mean < tolerance / 2 <= CLEAR * gap.standard_error
        is_late_ = is_late(deadline, _MORE_EXAMPLES * outcome.seconds)
        if not is_noise or is_late_ or len(outcome.indices) < wanted:
            break
        wanted *= _MORE_EXAMPLES
        outcome = _both_ways(task, number, ladder, deadline, wanted)
    return outcome, wanted


def _both_ways(
    task: Task, number: int, ladder: Ladder, deadline: float | None, num_examples: int
) -> Outcome:
    job = Job(
        name=f"T={len(ladder.step_sizes)}, bidirectional",
        function=examples.both_ways,
        context=(task.model, task.proposal, ladder, task.sampler.num_chains),
        key=task.key(number, _BDMC),
        xs=None,
        indices=np.arange(num_examples),
        gradients=2 * _cost(task, ladder),
        preferred=_preferred(task, ladder),
    )
    return walk(job, task.limits(deadline), task.path(f"round{number}", "bidirectional"))


def _estimate(task: Task, number: int, ladder: Ladder, deadline: float | None) -> Outcome:
    """Anneal the given examples."""
    job = Job(
        name=f"T={len(ladder.step_sizes)}, log p(x)",
        function=examples.forward,
        context=(task.model, task.proposal, ladder, task.sampler.num_chains),
        key=task.key(number, _FORWARD),
        xs=task.x,
        indices=task.indices,
        gradients=_cost(task, ladder),
        preferred=_preferred(task, ladder),
    )
    return walk(job, task.limits(deadline), task.path(f"round{number}", "forward"))


def _cost(task: Task, ladder: Ladder) -> int:
    """Return the gradients of all chains of an example."""
    return task.sampler.num_chains * ladder.num_gradients


def _preferred(task: Task, ladder: Ladder) -> int:
    return preferred_examples(task.sampler.num_chains, ladder.num_gradients)


def _tuned_ladder(task: Task, number: int) -> tuple[Ladder, float]:
    """Tune the step sizes of a round, or read those that it was begun with."""
    num_temperatures = task.sampler.num_temperatures * 2**number
    file = task.path(f"round{number}", "step_sizes.npz")
    stored = parts.kept(file, lambda: _tune(task, number, num_temperatures))
    sizes = jnp.asarray(stored["step_sizes"])
    # A move at beta = 1 would not change the weight.
    ladder = task.sampler.kernel.ladder(num_temperatures, sizes, last_move=False)
    return ladder, float(stored["seconds"])


def _tune(task: Task, number: int, num_temperatures: int) -> dict[str, np.ndarray]:
    start = time.perf_counter()
    key_x, key_chains = jax.random.split(task.key(number, _PILOT))
    if task.pilot_x is None:
        xs = simulate(key_x, task.model, pilot.NUM_EXAMPLES)
    else:
        xs = pilot.repeated(task.pilot_x)
    sizes = pilot.tune(
        key_chains, task.model, task.proposal, xs, task.sampler.kernel, num_temperatures
    )
    return {"step_sizes": np.asarray(sizes), "seconds": np.array(time.perf_counter() - start)}


def _bidirectional(outcome: Outcome) -> Bidirectional:
    lower = _log_means(outcome.numbers["up"])
    upper = -_log_means(-outcome.numbers["down"])
    gap = upper - lower
    return Bidirectional(summarise(lower), summarise(upper), summarise(gap), float(gap.max()))


def bound_by_importance(task: Task, deadline: float | None, result: LogLikelihood) -> Importance:
    """Bound the same examples by importance sampling, and see which latents the encoder uses."""
    number = task.importance_samples
    context, key = (task.model, task.proposal, number), task.key(0, _IMPORTANCE)
    # Of the examples that were annealed, should the time have been up before the last.
    done = np.isin(task.indices, result.indices)
    xs = jax.tree.map(lambda a: a[done], task.x)
    preferred = max(1, 4096 // number)
    job = Job(
        "importance sampling", examples.importance, context, key, xs, result.indices, 0, preferred
    )
    outcome = walk(job, task.limits(deadline), task.path(f"importance{number}"))
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


def _result(task: Task, done: list[_Complete], is_reached: bool | None) -> LogLikelihood:
    last = done[-1]
    log_weights = last.forward.numbers["log_weight"]
    sizes = jax.vmap(effective_sample_size)(jnp.asarray(log_weights))
    return LogLikelihood(
        indices=last.forward.indices,
        log_p=_log_means(log_weights),
        effective_sample_size=np.asarray(sizes),
        num_nonfinite=last.forward.numbers["num_nonfinite"],
        acceptance=last.forward.numbers["mean_acceptance"],
        betas=np.asarray(last.ladder.betas),
        step_sizes=np.asarray(last.ladder.step_sizes),
        rounds=[found.round_ for found in done],
        importance=None,
        is_tolerance_reached=is_reached,
        is_complete=last.is_whole,
        settings=task.settings(),
    )


def _log_means(log_weights: np.ndarray) -> np.ndarray:
    """Return the log of each example's mean weight, in double precision."""
    # A weight that is not a number makes its example's mean one, without a warning.
    with np.errstate(invalid="ignore"):
        totals = np.logaddexp.reduce(log_weights.astype(np.float64), axis=1)
    return totals - np.log(log_weights.shape[1])
