"""log p(x) by annealed importance sampling, with bidirectional Monte Carlo as its certificate."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle import processes
from aisle.annealing import presets
from aisle.data import Split, check_bits
from aisle.data.split import as_values
from aisle.errors import InputError, python_numbers
from aisle.evaluation.arguments import check_arguments, check_observations
from aisle.evaluation.folders import DENSITY, claim, digest, digest_of_rest
from aisle.evaluation.results import LogLikelihood, Round, save
from aisle.evaluation.rounds import Plan, bound_by_importance, refit_start, run_rounds
from aisle.files import alone_in
from aisle.models.distributions import PriorProposal
from aisle.models.joint import check_density, check_encoder, check_observation
from aisle.models.likelihoods import takes_bits
from aisle.types import Model, Proposal

# What a later call may change and still go on with the same tiles.
_MAY_CHANGE = ("bdmc_examples", "tolerance", "max_seconds", "importance_samples", "about")

# Arguments that the figures do not depend on, and those that hashes stand for.
_NOT_SETTINGS = {
    *("out", "memory_mb", "show_progress", "report", "kernel"),
    *("model", "proposal", "x", "pilot_x", "indices"),
}


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
    refit: int = 0,
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
        refit: updates by which a copy of the proposal is fitted to simulated examples before chains
            start from it, 0 for none: for one that is too sure of itself.
        bdmc_examples: simulated examples of bidirectional Monte Carlo, 0 for none.
        tolerance: double T, from num_temperatures on, until the mean gap of bidirectional Monte
            Carlo, with two standard errors, and the change of the mean are below this, in nats.
        max_seconds: time after which no new work is begun, but for a first tile of each part.
        importance_samples: K of an importance-weighted bound to compare with, by the proposal as
            given; 0 for none.
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
    given = python_numbers(locals())
    numbers = check_observations(x, indices)
    x, example = _seen(model, x)
    if pilot_x is not None:
        check_observations(pilot_x, None)
        pilot_x, _ = _seen(model, pilot_x)
    if refit and proposal is None:
        raise InputError(
            f"refit is {refit} but chains start at the prior: give a proposal, or use 0"
        )
    proposal = PriorProposal(model) if proposal is None else proposal
    check_encoder(proposal)
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
    plan = Plan(model, proposal, x, pilot_x, numbers, settings, folder, memory_mb, show_progress)
    with ExitStack() as stack:
        if folder is not None:
            processes.first_does(lambda: _enter(folder, settings, stack))
        return _evaluate(plan, max_seconds, report)


def _enter(folder: Path, settings: Mapping[str, Any], stack: ExitStack) -> None:
    """Make a folder that of this evaluation, and keep other processes from it."""
    claim(folder, {k: v for k, v in settings.items() if k not in _MAY_CHANGE})
    stack.enter_context(alone_in(folder, "is being written by another evaluation"))


def _evaluate(
    plan: Plan, max_seconds: float | None, report: Callable[[Round], None] | None
) -> LogLikelihood:
    deadline = None if max_seconds is None else time.perf_counter() + max_seconds
    start = refit_start(plan) if plan.settings["refit"] else plan
    result = run_rounds(start, deadline, report)
    if plan.settings["importance_samples"]:
        result = result._replace(importance=bound_by_importance(plan, deadline, result))
    if (folder := plan.folder) is not None:
        processes.first_does(lambda: save(result, folder))
    return result


def _seen(model: Model, xs: PyTree) -> tuple[PyTree, PyTree]:
    """Return observations as the model sees them, and the first of them."""
    xs = jax.tree.map(lambda a: as_values(np.asarray(a)), xs)
    example = jax.tree.map(lambda a: jnp.asarray(a[0]), xs)
    check_observation(model, example, "an example")
    if takes_bits(model):
        check_bits(Split(np.asarray(xs)), "x")
    return xs, example


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
