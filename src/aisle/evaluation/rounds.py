"""The rounds of an evaluation, each with twice the temperatures: tune, certify, estimate."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy.special import logsumexp

from aisle.annealing import Kernel, effective_sample_size, schedules
from aisle.annealing.kernel import gradients_per_chain
from aisle.evaluation import parts, pilot, refitting, runs
from aisle.evaluation.results import Bidirectional, Importance, LogLikelihood, Round
from aisle.evaluation.work import Job, Limits, Outcome, is_late, preferred_examples, walk
from aisle.statistics import CLEAR, summarise
from aisle.types import Model, PRNGKey, Proposal

# A latent is in use if its mean under q varies by more than this over the examples.
_ACTIVE = 0.01

# What the keys of a round are for.
_PILOT, _FORWARD, _BDMC, _IMPORTANCE, _REFIT = range(5)


class Plan(NamedTuple):
    """What all rounds share.

    Attributes:
        proposal: where chains start.
        refit_seconds: that were spent on refitting it.
    """

    model: Model
    proposal: Proposal
    x: PyTree
    pilot_x: PyTree | None
    indices: np.ndarray
    settings: dict[str, Any]
    folder: Path | None
    memory_mb: int
    show_progress: bool
    refit_seconds: float = 0.0

    def key(self, round_: int, purpose: int) -> PRNGKey:
        """Return a key for one purpose in one round: no two share a draw."""
        root = jax.random.key(self.settings["seed"])
        return jax.random.fold_in(jax.random.fold_in(root, round_), purpose)

    def path(self, *names: str) -> Path | None:
        """Return a path in the folder of results, if there is one."""
        return None if self.folder is None else self.folder.joinpath(*names)

    def limits(self, deadline: float | None = None) -> Limits:
        """Return the limits of a walk."""
        return Limits(self.memory_mb * 2**20, deadline, self.show_progress)


class _Complete(NamedTuple):
    """A round with the figures of its examples; it is whole if none of them is missing."""

    round_: Round
    kernel: Kernel
    forward: Outcome
    is_whole: bool


def run_rounds(
    plan: Plan, deadline: float | None, report: Callable[[Round], None] | None
) -> LogLikelihood:
    """Double T until the tolerance is reached or the time is up; without one, do one round."""
    tolerance = plan.settings["tolerance"]
    done: list[_Complete] = []
    is_reached = None if tolerance is None else False
    while True:
        number = len(done)
        # The first round is reported however far it comes; a later one only if it is complete.
        found = _round(plan, number, done[-1].round_ if done else None, deadline)
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
    return _result(plan, done, is_reached)


def _is_finite(round_: Round) -> bool:
    """Say whether more temperatures could help: what is not a number comes near no tolerance."""
    return math.isfinite(round_.estimate.mean) and math.isfinite(_gap_limit(round_))


def _is_close(round_: Round, tolerance: float) -> bool:
    if round_.change is None:
        return False
    return _gap_limit(round_) < tolerance and abs(round_.change) < tolerance


def _gap_limit(round_: Round) -> float:
    """Return what the gap is hardly above: the first small one of some rounds may be luck."""
    assert round_.bdmc is not None
    gap = round_.bdmc.gap
    return gap.mean + CLEAR * gap.standard_error


def refit_start(plan: Plan) -> Plan:
    """Let chains start from a proposal that is fitted to simulated examples."""
    proposal, seconds = refitting.refit(
        plan.key(0, _REFIT),
        plan.model,
        plan.proposal,
        plan.settings["refit"],
        plan.path("refitted.npz"),
        show_progress=plan.show_progress,
    )
    return plan._replace(proposal=proposal, refit_seconds=seconds)


def _round(plan: Plan, number: int, before: Round | None, deadline: float | None) -> _Complete:
    """Tune, certify, estimate: all with draws of this round's own."""
    kernel, pilot_seconds = _tuned_kernel(plan, number)
    simulated = _certify(plan, number, kernel, deadline)
    forward = _estimate(plan, number, kernel, deadline)
    log_p, cost = summarise(_log_means(forward.figures["log_weight"])), _cost(kernel)
    tuning = pilot.num_gradients(kernel, plan.settings["schedule"], pilot.NUM_EXAMPLES)
    num_simulated = 0 if simulated is None else len(simulated.indices)
    seconds = pilot_seconds + forward.seconds + (simulated.seconds if simulated else 0.0)
    if number == 0:
        tuning += refitting.num_gradients(plan.settings["refit"])
        seconds += plan.refit_seconds
    round_ = Round(
        num_temperatures=len(kernel.step_sizes),
        estimate=log_p,
        bdmc=None if simulated is None else _bidirectional(simulated),
        change=None if before is None else log_p.mean - before.estimate.mean,
        decoder_gradients=tuning + cost * (2 * num_simulated + len(forward.indices)),
        seconds=seconds,
    )
    wanted = (plan.settings["bdmc_examples"], len(plan.indices))
    is_whole = (num_simulated, len(forward.indices)) == wanted
    return _Complete(round_, kernel, forward, is_whole)


def _certify(plan: Plan, number: int, kernel: Kernel, deadline: float | None) -> Outcome | None:
    """Anneal simulated examples both ways, if there are to be some."""
    if not plan.settings["bdmc_examples"]:
        return None
    job = Job(
        name=f"T={len(kernel.step_sizes)}, bidirectional",
        function=runs.both_ways,
        context=(plan.model, plan.proposal, kernel),
        key=plan.key(number, _BDMC),
        xs=None,
        indices=np.arange(plan.settings["bdmc_examples"]),
        gradients=2 * _cost(kernel),
        preferred=_preferred(kernel),
    )
    return walk(job, plan.limits(deadline), plan.path(f"round{number}", "bidirectional"))


def _estimate(plan: Plan, number: int, kernel: Kernel, deadline: float | None) -> Outcome:
    """Anneal the given examples."""
    job = Job(
        name=f"T={len(kernel.step_sizes)}, log p(x)",
        function=runs.forward,
        context=(plan.model, plan.proposal, kernel),
        key=plan.key(number, _FORWARD),
        xs=plan.x,
        indices=plan.indices,
        gradients=_cost(kernel),
        preferred=_preferred(kernel),
    )
    return walk(job, plan.limits(deadline), plan.path(f"round{number}", "forward"))


def _cost(kernel: Kernel) -> int:
    """Return the gradients of all chains of an example."""
    return kernel.num_samples * gradients_per_chain(kernel)


def _preferred(kernel: Kernel) -> int:
    return preferred_examples(kernel.num_samples, gradients_per_chain(kernel))


def _tuned_kernel(plan: Plan, number: int) -> tuple[Kernel, float]:
    """Tune the step sizes of a round, or read those that it was begun with."""
    settings = plan.settings
    num_temperatures = settings["num_temperatures"] * 2**number
    betas = schedules.named(settings["schedule"], num_temperatures)
    # A move at beta = 1 would not change the weight.
    kernel = Kernel(
        betas,
        jnp.ones(num_temperatures),
        settings["num_chains"],
        settings["num_leapfrog"],
        settings["precondition"],
        settings["momentum_refresh"],
        last_move=False,
    )
    file = plan.path(f"round{number}", "step_sizes.npz")
    stored = parts.kept(file, lambda: _tune(plan, number, kernel))
    sizes = jnp.asarray(stored["step_sizes"])
    return eqx.tree_at(lambda k: k.step_sizes, kernel, sizes), float(stored["seconds"])


def _tune(plan: Plan, number: int, kernel: Kernel) -> dict[str, np.ndarray]:
    start = time.perf_counter()
    key_x, key_chains = jax.random.split(plan.key(number, _PILOT))
    if plan.pilot_x is None:
        xs = pilot.simulate(key_x, plan.model, pilot.NUM_EXAMPLES)
    else:
        available = len(jax.tree.leaves(plan.pilot_x)[0])
        chosen = np.resize(np.arange(available), pilot.NUM_EXAMPLES)
        xs = jax.tree.map(lambda a: jnp.asarray(a[chosen]), plan.pilot_x)
    settings = plan.settings
    tuned = pilot.tune(
        key_chains,
        plan.model,
        plan.proposal,
        xs,
        kernel,
        settings["schedule"],
        settings["target_accept"],
    )
    sizes = np.asarray(tuned.step_sizes)
    return {"step_sizes": sizes, "seconds": np.array(time.perf_counter() - start)}


def _bidirectional(outcome: Outcome) -> Bidirectional:
    lower = _log_means(outcome.figures["up"])
    upper = -_log_means(-outcome.figures["down"])
    gap = upper - lower
    return Bidirectional(summarise(lower), summarise(upper), summarise(gap), float(gap.max()))


def bound_by_importance(plan: Plan, deadline: float | None, result: LogLikelihood) -> Importance:
    """Bound the same examples by importance sampling, and see which latents the encoder uses."""
    number = plan.settings["importance_samples"]
    context, key = (plan.model, plan.proposal, number), plan.key(0, _IMPORTANCE)
    # Of the examples that were annealed, should the time have been up before the last.
    done = np.isin(plan.indices, result.indices)
    xs = jax.tree.map(lambda a: a[done], plan.x)
    preferred = max(1, 4096 // number)
    job = Job(
        "importance sampling", runs.importance, context, key, xs, result.indices, 0, preferred
    )
    outcome = walk(job, plan.limits(deadline), plan.path(f"importance{number}"))
    figures, annealed = outcome.figures, result.log_p[np.isin(result.indices, outcome.indices)]
    first, second = figures["half_means"].astype(np.float64).swapaxes(0, 1)
    # Both halves are noisy, but not with the same noise: it does not count as variation.
    variation = np.mean((first - first.mean(0)) * (second - second.mean(0)), axis=0)
    return Importance(
        number,
        summarise(figures["bound"]),
        summarise(figures["elbo"]),
        summarise(annealed - figures["bound"]),
        int(np.sum(variation > _ACTIVE)),
        len(variation),
    )


def _result(plan: Plan, done: list[_Complete], is_reached: bool | None) -> LogLikelihood:
    last = done[-1]
    log_weights = last.forward.figures["log_weight"]
    sizes = jax.vmap(effective_sample_size)(jnp.asarray(log_weights))
    return LogLikelihood(
        indices=last.forward.indices,
        log_p=_log_means(log_weights),
        effective_sample_size=np.asarray(sizes),
        num_nonfinite=last.forward.figures["num_nonfinite"],
        acceptance=last.forward.figures["mean_acceptance"],
        betas=np.asarray(last.kernel.betas),
        step_sizes=np.asarray(last.kernel.step_sizes),
        num_chains=plan.settings["num_chains"],
        num_leapfrog=plan.settings["num_leapfrog"],
        rounds=[found.round_ for found in done],
        importance=None,
        is_tolerance_reached=is_reached,
        is_complete=last.is_whole,
        settings=plan.settings,
    )


def _log_means(log_weights: np.ndarray) -> np.ndarray:
    """Return the log of each example's mean weight, in double precision."""
    return logsumexp(log_weights.astype(np.float64), axis=1) - np.log(log_weights.shape[1])
