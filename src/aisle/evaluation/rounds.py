"""The rounds of an evaluation, each with twice the temperatures: tune, certify, estimate."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle.annealing import HMC, Ladder, effective_sample_size
from aisle.context import in_context, parts_of
from aisle.evaluation import examples, pilot, refitting
from aisle.evaluation.bounds import lower_bounds, upper_bounds
from aisle.evaluation.diagnostics import pareto_shapes
from aisle.evaluation.folders import kept
from aisle.evaluation.results import Bidirectional, Importance, LogLikelihood, Round
from aisle.evaluation.sampler import Certificate, Sampler
from aisle.evaluation.work import Job, Outcome, is_late, preferred_examples, walk
from aisle.models.use import simulate
from aisle.statistics import CLEAR, summarise
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
        x: examples, in their context if they have one.
        about: what to write beside the numbers.
        identity: what the numbers depend on beside sampler and seed, as hashes.
        deadline: value of `time.perf_counter` after which no new work is begun, or None.
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
    deadline: float | None
    show_progress: bool
    refit_seconds: float = 0.0

    def key(self, round_: int, purpose: int) -> PRNGKey:
        """Return a key for one purpose in one round: no two share a draw."""
        root = jax.random.key(self.seed)
        return jax.random.fold_in(jax.random.fold_in(root, round_), purpose)

    def contexts(self, numbers: np.ndarray) -> PyTree | None:
        """Return contexts to simulate examples in: those of the real ones, in a random order.

        That of a simulated example depends on its number alone, however many there are, and all
        real ones are taken before one is taken again.
        """
        _, context = parts_of(self.x)
        order = np.random.default_rng([self.seed, _BDMC]).permutation(len(self.indices))
        return jax.tree.map(lambda a: a[order[numbers % len(order)]], context)

    def path(self, *names: str) -> Path | None:
        """Return a path in the folder of results, if there is one."""
        return None if self.folder is None else self.folder.joinpath(*names)

    def walk(self, job: Job, *names: str) -> Outcome:
        """Compute a job, with its tiles in a folder of the results."""
        return walk(
            job,
            self.path(*names),
            memory=self.sampler.memory_mb * 2**20,
            deadline=self.deadline,
            show_progress=self.show_progress,
        )

    def depends_on(self) -> dict[str, Any]:
        """Return what the numbers of a tile depend on, as plain values."""
        kernel = self.sampler.kernel
        hmc, of_hmc = kernel.transition, {}
        if isinstance(hmc, HMC):
            of_hmc = {"precondition": hmc.precondition, "momentum_refresh": hmc.refresh}
        return {
            "num_chains": self.sampler.num_chains,
            "num_temperatures": self.sampler.num_temperatures,
            "num_leapfrog": hmc.num_gradients,
            **of_hmc,
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


def run_rounds(task: Task, report: Callable[[Round], None] | None) -> LogLikelihood:
    """Double T until the tolerance is reached or the time is up; without one, do one round."""
    tolerance, result = task.certificate.tolerance, None
    is_reached = None if tolerance is None else False
    while True:
        found = _round(task, [] if result is None else result.rounds)
        # The first round is reported however far it comes; a later one only if it is complete.
        if result is not None and not found.is_complete:
            break
        result, last = found, found.rounds[-1]
        if report is not None:
            report(last)
        if tolerance is None or last.bdmc is None or not found.is_complete:
            break
        # What the gap is hardly above: the first small one of some rounds may be luck.
        gap = last.bdmc.gap
        limit = gap.mean + CLEAR * gap.standard_error
        # What is not a number comes near no tolerance, by however many temperatures.
        if not (math.isfinite(last.estimate.mean) and math.isfinite(limit)):
            break
        if last.change is not None and limit < tolerance and abs(last.change) < tolerance:
            is_reached = True
            break
        # The next round takes about twice as long.
        if is_late(task.deadline, 2 * last.seconds):
            break
    return dataclasses.replace(result, is_tolerance_reached=is_reached)


def refit_start(task: Task) -> Task:
    """Let chains start from a proposal that is fitted to simulated examples."""
    proposal, seconds = refitting.refit(
        task.key(0, _REFIT),
        task.model,
        task.proposal,
        task.sampler.refit,
        task.path("refitted.npz"),
        contexts=parts_of(task.x)[1],
        show_progress=task.show_progress,
    )
    return task._replace(proposal=proposal, refit_seconds=seconds)


def _round(task: Task, before: list[Round]) -> LogLikelihood:
    """Tune, certify, estimate: all with draws of this round's own."""
    number = len(before)
    ladder, seconds = _tuned_ladder(task, number)
    simulated, wanted = _certify(task, number, ladder)
    forward = _anneal(task, number, ladder, task.indices, is_simulated=False)
    log_weights = forward.numbers["log_weight"]
    log_p = lower_bounds(log_weights)
    estimate = summarise(log_p)
    num_simulated, num_given = len(simulated.indices), len(forward.indices)
    num_gradients = (
        num_given * task.sampler.num_chains * ladder.num_gradients
        + num_simulated * examples.num_gradients_both_ways(ladder, task.sampler.num_chains)
        + pilot.num_gradients(task.sampler.kernel, len(ladder.step_sizes), pilot.NUM_EXAMPLES)
    )
    seconds += forward.seconds + simulated.seconds
    if not before:
        num_gradients += task.sampler.refit * refitting.BATCH_SIZE
        seconds += task.refit_seconds
    round_ = Round(
        num_temperatures=len(ladder.step_sizes),
        estimate=estimate,
        bdmc=_bidirectional(simulated) if num_simulated else None,
        change=estimate.mean - before[-1].estimate.mean if before else None,
        decoder_gradients=num_gradients,
        seconds=seconds,
    )
    return LogLikelihood(
        indices=forward.indices,
        log_p=log_p,
        effective_sample_size=np.asarray(jax.vmap(effective_sample_size)(jnp.asarray(log_weights))),
        pareto_shape=pareto_shapes(log_weights),
        num_nonfinite=forward.numbers["num_nonfinite"],
        acceptance=forward.numbers["mean_acceptance"],
        betas=np.asarray(ladder.betas),
        step_sizes=np.asarray(ladder.step_sizes),
        rounds=[*before, round_],
        importance=None,
        is_tolerance_reached=None,
        is_complete=(num_simulated, num_given) == (wanted, len(task.indices)),
        settings=task.settings(),
    )


def _tuned_ladder(task: Task, number: int) -> tuple[Ladder, float]:
    """Tune the step sizes of a round, or read those that it was begun with, with their seconds."""
    kernel, num_temperatures = task.sampler.kernel, task.sampler.num_temperatures * 2**number

    def tune() -> dict[str, np.ndarray]:
        key_x, key_chains = jax.random.split(task.key(number, _PILOT))
        if task.pilot_x is None:
            contexts = task.contexts(np.arange(pilot.NUM_EXAMPLES))
            xs = simulate(key_x, task.model, pilot.NUM_EXAMPLES, contexts)
            xs = in_context(xs, contexts)
        else:
            xs = pilot.repeated(task.pilot_x)
        sizes = pilot.tune(key_chains, task.model, task.proposal, xs, kernel, num_temperatures)
        return {"step_sizes": np.asarray(sizes)}

    stored, seconds = kept(task.path(f"round{number}", "step_sizes.npz"), tune)
    # A move at beta = 1 would not change the weight.
    sizes = jnp.asarray(stored["step_sizes"])
    return kernel.ladder(num_temperatures, sizes, last_move=False), seconds


def _certify(task: Task, number: int, ladder: Ladder) -> tuple[Outcome, int]:
    """Anneal simulated examples both ways; return what was found and how many were wanted.

    Where the gap's error is what keeps a tolerance from being reached, and not the gap itself, more
    examples help and more temperatures do not.
    """
    wanted, tolerance = task.certificate.num_examples, task.certificate.tolerance
    if not wanted:
        return Outcome(np.arange(0), {}, 0.0), 0
    outcome = _anneal(task, number, ladder, np.arange(wanted), is_simulated=True)
    for _ in range(_MOST_GROWTHS):
        gap = _bidirectional(outcome).gap
        is_noise = tolerance is not None and gap.mean < tolerance / 2 <= CLEAR * gap.standard_error
        is_late_ = is_late(task.deadline, _MORE_EXAMPLES * outcome.seconds)
        if not is_noise or is_late_ or len(outcome.indices) < wanted:
            break
        wanted *= _MORE_EXAMPLES
        outcome = _anneal(task, number, ladder, np.arange(wanted), is_simulated=True)
    return outcome, wanted


def _anneal(
    task: Task, number: int, ladder: Ladder, indices: np.ndarray, *, is_simulated: bool
) -> Outcome:
    """Anneal the given examples, or simulated ones in both directions."""
    num_chains = task.sampler.num_chains
    cost = num_chains * ladder.num_gradients
    given = ("log p(x)", "forward", examples.forward, _FORWARD, cost)
    cost = examples.num_gradients_both_ways(ladder, num_chains)
    simulated = ("bidirectional", "bidirectional", examples.both_ways, _BDMC, cost)
    name, folder, function, purpose, cost = simulated if is_simulated else given
    xs = in_context(None, task.contexts(indices)) if is_simulated else task.x
    job = Job(
        name=f"T={len(ladder.step_sizes)}, {name}",
        function=function,
        context=(task.model, task.proposal, ladder, num_chains),
        key=task.key(number, purpose),
        xs=xs,
        indices=indices,
        gradients=cost,
        preferred=preferred_examples(num_chains, ladder.num_gradients),
    )
    return task.walk(job, f"round{number}", folder)


def _bidirectional(outcome: Outcome) -> Bidirectional:
    up, down = outcome.numbers["up"], outcome.numbers["down"]
    lower, upper = lower_bounds(up), upper_bounds(up, down)
    gap = upper - lower
    return Bidirectional(summarise(lower), summarise(upper), summarise(gap), float(gap.max()))


def bound_by_importance(task: Task, result: LogLikelihood) -> Importance:
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
