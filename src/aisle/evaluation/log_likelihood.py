"""log p(x) by annealed importance sampling, with bidirectional Monte Carlo as its certificate."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy.special import logsumexp

from aisle import processes
from aisle.annealing import Kernel, effective_sample_size, presets, schedules
from aisle.annealing.kernel import gradients_per_chain
from aisle.data import Split, check_bits
from aisle.data.split import as_values
from aisle.errors import InputError
from aisle.evaluation import parts, pilot, runs
from aisle.evaluation.arguments import check_arguments, check_observations
from aisle.evaluation.folders import DENSITY, claim, digest, digest_of_rest
from aisle.evaluation.results import Bidirectional, Importance, LogLikelihood, Round, save
from aisle.evaluation.work import Job, Limits, Outcome, is_late, preferred_examples, walk
from aisle.models.distributions import PriorProposal
from aisle.models.joint import check_density, check_observation, check_parts
from aisle.models.likelihoods import takes_bits
from aisle.statistics import CLEAR, summarise
from aisle.types import Model, PRNGKey, Proposal

# A latent is in use if its mean under q varies by more than this over the examples.
_ACTIVE = 0.01

# What a later call may change and still go on with the same tiles.
_MAY_CHANGE = ("bdmc_examples", "tolerance", "max_seconds", "importance_samples", "about")

# Arguments that the figures do not depend on, and those that hashes stand for.
_NOT_SETTINGS = {
    *("out", "memory_mb", "show_progress", "report", "kernel"),
    *("model", "proposal", "x", "pilot_x", "indices"),
}

# What the keys of a round are for.
_PILOT, _FORWARD, _BDMC, _IMPORTANCE = range(4)


def log_likelihood(
    model: Model,
    proposal: Proposal | None,
    x: PyTree,
    *,
    num_chains: int = 16,
    num_temperatures: int = 500,
    kernel: str = "tuned",
    num_leapfrog: int | None = None,
    schedule: str | None = None,
    precondition: float | None = None,
    momentum_refresh: float | None = None,
    target_accept: float | None = None,
    bdmc_examples: int = 100,
    tolerance: float | None = None,
    max_seconds: float | None = None,
    importance_samples: int = 0,
    pilot_x: PyTree | None = None,
    indices: np.ndarray | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    about: Mapping[str, Any] | None = None,
    memory_mb: int = 512,
    show_progress: bool = True,
    report: Callable[[Round], None] | None = None,
) -> LogLikelihood:
    """Estimate log p(x) of each example, and say how far off the estimate can be.

    Step sizes are tuned on a pilot and frozen; the reported runs have other keys. The estimate is
    a stochastic lower bound: its exponential is unbiased, so on average it is too low. How much too
    low it is on examples of the model's own, bidirectional Monte Carlo tells.

    Args:
        model: log_prior, log_likelihood, sample_prior, sample_observation; see `aisle.types.Model`.
        proposal: an encoder, from x to a distribution q(z|x) where chains start; None for the
            prior, which needs no encoder.
        x: observations along the first axis, an array or a pytree of arrays; uint8 stands for
            value / 255, as in training.
        num_chains: C, chains of an example.
        num_temperatures: T, from 2; with a tolerance, of the first round.
        kernel: tuned or paper, which say what the next five are where they are None; see
            `aisle.annealing.presets`.
        num_leapfrog: L, leapfrog steps of a transition.
        schedule: of the inverse temperatures: sigmoid, linear or geometric.
        precondition: power of the proposal's scale that preconditions HMC; 0 where it has none.
        momentum_refresh: share of new noise in the momentum at each transition.
        target_accept: acceptance that the pilot tunes each temperature's step size to.
        bdmc_examples: simulated examples of bidirectional Monte Carlo, 0 for none.
        tolerance: double T, from num_temperatures on, until the mean gap of bidirectional Monte
            Carlo, with two standard errors, and the change of the mean are below this, in nats.
        max_seconds: time after which no new work is begun, but for a first tile of each part.
        importance_samples: K of an importance-weighted bound to compare with, 0 for none.
        pilot_x: other examples to tune on; by default simulated ones.
        indices: number of each example, from which its draws derive; by default its place in `x`.
        seed: of all draws.
        out: folder for the results. Tiles are kept there, and an evaluation that was killed goes
            on where it was, with the same figures in the end. A folder is of one model, known by
            its arrays, classes and static fields, and by its densities at one point.
        about: what to write beside the figures, such as where model and data come from.
        memory_mb: megabytes that the temporary arrays of a tile may take on a device.
        show_progress: whether to show a progress bar on standard error.
        report: called with each round when it is complete.
    """
    given = dict(locals())
    numbers = check_observations(x, indices)
    x, example = _seen(model, x)
    if pilot_x is not None:
        check_observations(pilot_x, None)
        pilot_x, _ = _seen(model, pilot_x)
    proposal = PriorProposal(model) if proposal is None else proposal
    check_parts(model, proposal, example)
    has_scale = presets.has_scale(proposal, example)
    given |= presets.complete(presets.EVALUATION, kernel, given, has_scale=has_scale)
    check_arguments(given)
    if given["precondition"] and not has_scale:
        raise InputError(
            f"precondition is {precondition:g} but the proposal's distribution has no `scale`: "
            "use 0"
        )
    given[DENSITY] = check_density(model, proposal, example)
    settings = _settings(
        given | {"x": x, "pilot_x": pilot_x, "indices": numbers, "proposal": proposal}
    )
    folder = None if out is None else Path(out)
    if folder is not None:
        fixed = {k: v for k, v in settings.items() if k not in _MAY_CHANGE}
        processes.first_does(lambda: claim(folder, fixed))
    plan = _Plan(model, proposal, x, pilot_x, numbers, settings, folder, memory_mb, show_progress)
    deadline = None if max_seconds is None else time.perf_counter() + max_seconds
    result = _rounds(plan, deadline, report)
    if importance_samples:
        result = result._replace(importance=_importance(plan, deadline, result))
    if folder is not None:
        processes.first_does(lambda: save(result, folder))
    return result


def _seen(model: Model, xs: PyTree) -> tuple[PyTree, PyTree]:
    """Return observations as the model sees them, and the first of them."""
    xs = jax.tree.map(as_values, xs)
    example = jax.tree.map(lambda a: jnp.asarray(a[0]), xs)
    check_observation(model, example, "an example")
    if takes_bits(model):
        check_bits(Split(np.asarray(xs)), "x")
    return xs, example


class _Plan(NamedTuple):
    """What all rounds share."""

    model: Model
    proposal: Proposal
    x: PyTree
    pilot_x: PyTree | None
    indices: np.ndarray
    settings: dict[str, Any]
    folder: Path | None
    memory_mb: int
    show_progress: bool

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


def _rounds(
    plan: _Plan, deadline: float | None, report: Callable[[Round], None] | None
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


def _round(plan: _Plan, number: int, before: Round | None, deadline: float | None) -> _Complete:
    """Tune, certify, estimate: all with draws of this round's own."""
    settings = plan.settings
    num_temperatures = settings["num_temperatures"] * 2**number
    kernel, pilot_seconds = _tuned_kernel(plan, number, num_temperatures)
    context, name = (plan.model, plan.proposal, kernel), f"T={num_temperatures}"
    cost = settings["num_chains"] * gradients_per_chain(kernel)
    preferred = preferred_examples(settings["num_chains"], gradients_per_chain(kernel))
    gradients = pilot.num_gradients(kernel, settings["schedule"], pilot.NUM_EXAMPLES)
    seconds, bdmc = pilot_seconds, None
    if settings["bdmc_examples"]:
        simulated = np.arange(settings["bdmc_examples"])
        key = plan.key(number, _BDMC)
        job = Job(
            f"{name}, bidirectional",
            runs.both_ways,
            context,
            key,
            None,
            simulated,
            2 * cost,
            preferred,
        )
        outcome = walk(job, plan.limits(deadline), plan.path(f"round{number}", "bidirectional"))
        bdmc = _bidirectional(outcome)
        seconds += outcome.seconds
        gradients += 2 * cost * len(outcome.indices)
    key = plan.key(number, _FORWARD)
    job = Job(
        f"{name}, log p(x)", runs.forward, context, key, plan.x, plan.indices, cost, preferred
    )
    forward = walk(job, plan.limits(deadline), plan.path(f"round{number}", "forward"))
    estimate = summarise(_log_means(forward.figures["log_weight"]))
    round_ = Round(
        num_temperatures,
        estimate,
        bdmc,
        None if before is None else estimate.mean - before.estimate.mean,
        gradients + cost * len(forward.indices),
        seconds + forward.seconds,
    )
    num_simulated = 0 if bdmc is None else bdmc.gap.num_examples
    is_whole = (num_simulated, estimate.num_examples) == (
        settings["bdmc_examples"],
        len(plan.indices),
    )
    return _Complete(round_, kernel, forward, is_whole)


def _tuned_kernel(plan: _Plan, number: int, num_temperatures: int) -> tuple[Kernel, float]:
    """Tune the step sizes of a round, or read those that it was begun with."""
    settings = plan.settings
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
    stored = None if file is None else parts.load_arrays(file)
    stored = processes.from_first(_tune(plan, number, kernel) if stored is None else stored)
    if file is not None:
        processes.first_does(lambda: parts.load_arrays(file) or parts.save_arrays(file, stored))
    sizes = jnp.asarray(stored["step_sizes"])
    return eqx.tree_at(lambda k: k.step_sizes, kernel, sizes), float(stored["seconds"])


def _tune(plan: _Plan, number: int, kernel: Kernel) -> dict[str, np.ndarray]:
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


def _importance(plan: _Plan, deadline: float | None, result: LogLikelihood) -> Importance:
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


def _result(plan: _Plan, done: list[_Complete], is_reached: bool | None) -> LogLikelihood:
    last = done[-1]
    log_weights = last.forward.figures["log_weight"]
    sizes = jax.vmap(effective_sample_size)(jnp.asarray(log_weights))
    return LogLikelihood(
        last.forward.indices,
        _log_means(log_weights),
        np.asarray(sizes),
        last.forward.figures["num_nonfinite"],
        last.forward.figures["mean_acceptance"],
        np.asarray(last.kernel.betas),
        np.asarray(last.kernel.step_sizes),
        plan.settings["num_chains"],
        plan.settings["num_leapfrog"],
        [found.round_ for found in done],
        None,
        is_reached,
        last.is_whole,
        plan.settings,
    )


def _log_means(log_weights: np.ndarray) -> np.ndarray:
    """Return the log of each example's mean weight, in double precision."""
    return logsumexp(log_weights.astype(np.float64), axis=1) - np.log(log_weights.shape[1])


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the figures depend on, weights and data as hashes."""
    plain = {name: value for name, value in given.items() if name not in _NOT_SETTINGS}
    networks = (given["model"], given["proposal"])
    return {
        **plain,
        "weights": digest(networks),
        "classes": digest_of_rest(networks),
        "examples": digest((given["x"], given["indices"])),
        "pilot_examples": digest(given["pilot_x"]),
    }
