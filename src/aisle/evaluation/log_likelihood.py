"""log p(x) by annealed importance sampling, with bidirectional Monte Carlo as its certificate."""

import dataclasses
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import tree
from jaxtyping import PyTree

from aisle import processes
from aisle.annealing import Kernel
from aisle.context import InContext, given, parts_of
from aisle.data import Split, as_split, check_support
from aisle.errors import InputError, check_count, check_seed
from aisle.evaluation.folders import claim, digest, digest_of_classes
from aisle.evaluation.results import LogLikelihood, save
from aisle.evaluation.rounds import Report, bound_by_importance, run_rounds
from aisle.evaluation.sampler import Certificate, Sampler
from aisle.evaluation.task import Task, refitted
from aisle.files import json_text, locked
from aisle.models.distributions import PriorProposal
from aisle.models.joint import check_density, check_encoder, check_observation
from aisle.types import Model, Observation, Proposal


def log_likelihood(
    model: Model,
    proposal: Proposal | None,
    x: PyTree,
    context: PyTree | None = None,
    *,
    sampler: Sampler | None = None,
    certificate: Certificate | None = None,
    importance_samples: int = 0,
    pilot_x: PyTree | None = None,
    indices: np.ndarray | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    about: Mapping[str, Any] | None = None,
    report: Report | None = None,
    show_progress: bool = True,
) -> LogLikelihood:
    """Estimate log p(x) of each example, and say how far off the estimate can be.

    Step sizes are tuned on a pilot and frozen; the reported runs have other keys. The estimate is
    a stochastic lower bound: its exponential is unbiased, so on average it is too low. How much too
    low it is on data simulated from the model, bidirectional Monte Carlo tells.

    Example:
        >>> model = aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.array(0.0))
        >>> sampler = aisle.Sampler(num_chains=4, num_temperatures=20)
        >>> certificate = aisle.Certificate(num_examples=10)
        >>> result = aisle.log_likelihood(
        ...     model, None, np.zeros((5, 3)), sampler=sampler, certificate=certificate,
        ...     show_progress=False)
        >>> abs(result.mean - float(model.log_marginal(jnp.zeros(3)))) < 0.5
        True

    Args:
        model: log_prior, log_likelihood, sample_prior, sample_observation; see `aisle.Model`.
        proposal: an encoder, from x to a distribution q(z|x) where chains start; None for the
            prior, which needs no encoder.
        x: examples along the first axis of an array or of each array of a pytree; NaN is missing
            for models that know of it.
        context: of the examples, if model and proposal take it. Data for the certificate are
            simulated in the contexts of these examples, so that it speaks of such data.
        sampler: chains, temperatures and kernel; by default `aisle.Sampler()`.
        certificate: simulated examples, tolerance and time; by default `aisle.Certificate()`.
        importance_samples: K of an importance-weighted bound to compare with, by the proposal as
            given; 0 for none.
        pilot_x: other examples to tune on, with a context as `aisle.Split(x, context=...)`; by
            default simulated ones.
        indices: number of each example, from which its draws derive; by default its place in `x`.
        seed: of all draws.
        out: folder for the results. Tiles are kept there, and an evaluation that was killed
            resumes, with the same numbers in the end. A folder is of one model, known by its
            arrays, classes and static fields.
        about: what to write beside the numbers, such as where model and data come from.
        report: called with each plan when it is made, and with each round when it is complete;
            both print themselves in one line.
        show_progress: whether to show a progress bar on standard error.
    """
    sampler = Sampler() if sampler is None else sampler
    certificate = Certificate() if certificate is None else certificate
    _check_kind(Sampler, sampler, "sampler")
    _check_kind(Certificate, certificate, "certificate")
    check_count("importance_samples", importance_samples, 0)
    check_seed(seed)
    if sampler.refit and proposal is None:
        raise InputError(
            f"is {sampler.refit} but chains start at the prior: give a proposal, or use 0",
            argument="refit",
        )
    proposal, xs = prepared(model, proposal, x, context)
    numbers = _numbers(indices, len(tree.leaves(xs)[0]))
    pilot = None if pilot_x is None else _observations(model, pilot_x, "pilot_x")
    identity = {
        "weights": digest((model, proposal)),
        "classes": digest_of_classes((model, proposal)),
        "examples": digest((xs, numbers)),
        "pilot_examples": digest(pilot),
    }
    budget = certificate.max_seconds
    folder = None if out is None else Path(out)
    task = Task(
        model=model,
        proposal=proposal,
        x=xs,
        pilot_x=pilot,
        indices=numbers,
        sampler=dataclasses.replace(sampler, kernel=suited(sampler.kernel, proposal, xs)),
        certificate=certificate,
        importance_samples=importance_samples,
        seed=int(seed),
        folder=folder,
        about=_plain(about),
        identity=identity,
        deadline=None if budget is None else time.perf_counter() + budget,
        show_progress=show_progress,
    )
    with ExitStack() as stack:
        if folder is not None:
            held = locked(folder, "is being written by another evaluation")
            processes.first_does(lambda: claim(folder, task.depends_on()))
            processes.first_does(lambda: stack.enter_context(held))
        start = refitted(task, sampler.refit) if sampler.refit else task
        result = run_rounds(start, report)
        if importance_samples:
            result = dataclasses.replace(result, importance=bound_by_importance(task, result))
        if folder is not None:
            processes.first_does(lambda: save(result, folder))
        return result


def prepared(
    model: Model, proposal: Proposal | None, x: PyTree, context: PyTree | None = None
) -> tuple[Proposal, PyTree | InContext]:
    """Return the proposal, and examples as the model sees them, with context; refuse misfits."""
    proposal = PriorProposal(model) if proposal is None else proposal
    check_encoder(proposal)
    xs = _observations(model, x, "x", context)
    check_density(model, proposal, _first(xs))
    return proposal, xs


def suited(kernel: Kernel, proposal: Proposal, xs: PyTree | InContext) -> Kernel:
    """Return the kernel for a proposal, seen by the first of some examples."""
    x, context = parts_of(_first(xs))
    return kernel.suited_to(given(proposal, context), x)


def _observations(
    model: Model, x: PyTree, source: str, context: PyTree | None = None
) -> PyTree | InContext:
    split = as_split(x, source, context, model)
    every = np.arange(len(split))
    xs = split.observe(every) if isinstance(x, Split) else split.arrays
    xs = split.with_context(xs, every)
    check_observation(model, _first(xs), "an example")
    check_support(getattr(model, "likelihood", None), split, source)
    return tree.map(np.asarray, xs)


def _first(xs: PyTree | InContext) -> Observation | InContext:
    return tree.map(lambda a: jnp.asarray(a[0]), xs)


def _check_kind(kind: type, given: Any, argument: str) -> None:
    if not isinstance(given, kind):
        raise InputError(f"is {given!r}: give an aisle.{kind.__name__}", argument=argument)


def _numbers(indices: np.ndarray | None, num_examples: int) -> np.ndarray:
    """Return the number of each example, from which its draws derive."""
    numbers = np.arange(num_examples) if indices is None else np.asarray(indices)
    if numbers.shape != (num_examples,) or len(np.unique(numbers)) != len(numbers):
        raise InputError(
            f"{len(np.unique(numbers))} different indices for {num_examples} examples: give each "
            "example a number of its own"
        )
    # The draws derive from 32 bits of a number.
    if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= 2**31:
        raise InputError(
            f"indices has values of type {numbers.dtype} from {numbers.min()} to {numbers.max()}: "
            f"give whole numbers from 0 to {2**31 - 1}"
        )
    return numbers


def _plain(about: Mapping[str, Any] | None) -> dict[str, Any] | None:
    try:
        json_text({"about": about})
    except (TypeError, ValueError) as error:
        raise InputError(
            f"cannot be written as JSON ({error}): give plain values", argument="about"
        ) from None
    return None if about is None else dict(about)
