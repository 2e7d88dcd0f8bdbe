"""The evaluation of a run on its data, or on other data of the same shape."""

import dataclasses
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from aisle import processes
from aisle.annealing import Kernel
from aisle.context import Context, in_context, parts_of
from aisle.data import Dataset, Split, as_split, check_support, load, spread
from aisle.data.arrays import is_file_name, is_table_name
from aisle.errors import InputError, check
from aisle.evaluation import Certificate, LogLikelihood, Sampler, log_likelihood
from aisle.evaluation.log_likelihood import suited
from aisle.evaluation.pilot import NUM_EXAMPLES, repeated, tune
from aisle.evaluation.results import save
from aisle.evaluation.rounds import Report
from aisle.evaluation.rows import RowScores, score_rows
from aisle.evaluation.work import is_late
from aisle.models.use import simulate
from aisle.runs.opening import Run, load_data, roles_of
from aisle.runs.options import EvaluateConfig
from aisle.runs.tables import taking_missing
from aisle.statistics import Mean, double_sampled

# Chains of the short run on a whole split.
_SHORT_CHAINS = 2


class HeldOut(NamedTuple):
    """Examples of a run's data.

    Attributes:
        split: that is evaluated.
        pilot: other examples to tune step sizes on; never test data. None where there are none.
    """

    split: Split
    pilot: Split | None


def evaluate(
    run: Run,
    config: EvaluateConfig,
    *,
    data: Dataset | None = None,
    out: Path | None = None,
    show_progress: bool = True,
    report: Report | None = None,
) -> tuple[LogLikelihood, Path]:
    """Evaluate a run; return what was found and the folder that has it."""
    is_kept = config.whole_split == 0 or config.whole_split >= 2
    check(is_kept, "whole_split", config.whole_split, "0, or at least 2")
    if config.start == "prior" and config.sampler.precondition:
        raise InputError(
            f"is {config.sampler.precondition} but chains start at the prior, which has no scale "
            "to precondition by: leave it out",
            argument="precondition",
        )
    began = time.perf_counter()
    dataset = data or dataset_of(run, config)
    run = taking_missing(run, dataset.table)
    # Checked as they are stored: bits would be drawn of any values.
    found = parts(run, config, dataset)
    split, pilot = (part and as_split(part, dataset.source, model=run.model) for part in found)
    assert split is not None
    place = out or run.path / "evaluations" / folder_name(config, run.update)
    asked = dataclasses.asdict(dataclasses.replace(config, data_dir=None))

    def anneal(indices: np.ndarray, sampler: Sampler, place: Path, **more: Any) -> LogLikelihood:
        return log_likelihood(
            run.model,
            run.proposal if config.start == "encoder" else None,
            split.observe(indices),
            split.context_of(indices),
            sampler=sampler,
            pilot_x=None if pilot is None else _seen(pilot),
            indices=indices,
            seed=config.sampler.seed,
            about={"update": run.update, **asked},
            out=place,
            show_progress=show_progress,
            **more,
        )

    result = anneal(
        spread(len(split), config.num_examples),
        config.sampler.sampler(),
        place,
        certificate=config.sampler.certificate(),
        importance_samples=config.sampler.importance_samples,
        report=report,
    )
    if config.whole_split and len(result.indices) < len(split):
        whole = _over_all(anneal, config, result, len(split), began, place)
        result = dataclasses.replace(result, whole_split=whole)
        processes.first_does(lambda: save(result, place))
    return result, place


def _seen(pilot: Split) -> Split:
    """Return some examples as the model sees them, with their context."""
    chosen = spread(len(pilot), NUM_EXAMPLES)
    seen = jax.tree.map(np.asarray, pilot.observe(chosen))
    return Split(seen, context=pilot.context_of(chosen))


def _over_all(
    anneal: Callable[..., LogLikelihood],
    config: EvaluateConfig,
    long_run: LogLikelihood,
    num_all: int,
    began: float,
    place: Path,
) -> Mean | None:
    """Estimate the mean over the whole split, if the time suffices for both runs."""
    number, budget = config.whole_split, config.sampler.max_seconds
    deadline = None if budget is None else began + budget
    if not long_run.is_complete or is_late(deadline):
        return None
    left: Any = deadline and max(1e-3, deadline - time.perf_counter())
    sampler = dataclasses.replace(
        config.sampler.sampler(), num_chains=_SHORT_CHAINS, num_temperatures=number, refit=0
    )
    short_run = anneal(
        np.arange(num_all),
        sampler,
        place / f"whole-split-T{number}",
        certificate=Certificate(0, None, left),
    )
    if not short_run.is_complete:
        return None
    return double_sampled(long_run.log_p, long_run.indices, short_run.log_p)


def parts(run: Run, config: EvaluateConfig, dataset: Dataset) -> HeldOut:
    """Return the examples to evaluate, and others to tune on, where there are some."""
    is_one_array = (
        config.data is not None and is_file_name(config.data) and dataset.test.rows is not None
    )
    # Of what the run was trained on, the same tenth is held out again.
    held_out_before = run.stored["data"].get("digests", {}).get("test")
    if is_one_array and dataset.test.digest() != held_out_before:
        if config.split != "test":
            raise InputError(
                f"is {config.split!r} but {config.data} has no part called test, so all of it is "
                "evaluated: leave --split out, or save the parts in an .npz file",
                argument="split",
            )
        return HeldOut(dataclasses.replace(dataset.test, rows=None), None)
    if config.split == "valid" and dataset.valid is None:
        raise InputError(
            "is 'valid' but the run has no validation data: choose test or train",
            argument="split",
        )
    split = {"test": dataset.test, "valid": dataset.valid, "train": dataset.train}[config.split]
    assert split is not None
    return HeldOut(split, dataset.valid if config.split == "train" else dataset.train)


def dataset_of(run: Run, config: EvaluateConfig) -> Dataset:
    """Load the data of a run, or the other data that were asked for."""
    if run.config is None:
        raise InputError(
            f"{run.path} is a run of aisle.fit, which has not noted where its data are: evaluate "
            "it by aisle.log_likelihood(run.model, run.proposal, x)"
        )
    if config.data is None:
        return load_data(run, config.data_dir)
    view = dataclasses.replace(run.config, data=config.data).view()
    place = config.data_dir or run.config.observations.data_dir
    roles = roles_of(run.stored, run.config)._asdict() if is_table_name(config.data) else {}
    dataset = load(config.data, place, view=view, **roles)
    if int(np.prod(dataset.shape)) != int(np.prod(run.shape)):
        raise InputError(
            f"{config.data} has examples of the shape {tuple(dataset.shape)} but {run.path} was "
            f"trained on {tuple(run.shape)}: give data of that shape"
        )
    return dataset


def score(run: Run, data: str, num_chains: int, num_temperatures: int, seed: int = 0) -> RowScores:
    """Score each example of some data by itself, with step sizes tuned on simulated examples."""
    config = EvaluateConfig(data=data)
    dataset = dataset_of(run, config)
    run = taking_missing(run, dataset.table)
    # All rows of a file that has no parts, also where some of them were trained on.
    whole = dataclasses.replace(dataset.test, rows=None)
    split = as_split(whole, dataset.source, model=run.model)
    check_support(getattr(run.model, "likelihood", None), split, dataset.source)
    every = np.arange(len(split))
    examples = split.with_context(split.observe(every), every)
    _, contexts = parts_of(examples)
    key_data, key_pilot = jax.random.split(jax.random.key(seed))
    if isinstance(contexts, Context) and contexts.condition is None and contexts.exposure is None:
        # Simulated examples are complete, so that step sizes do not depend on what is scored.
        contexts = None
    contexts = None if contexts is None else repeated(contexts)
    pilot_xs = in_context(simulate(key_data, run.model, NUM_EXAMPLES, contexts), contexts)
    kernel = suited(Kernel.tuned(is_long=True), run.proposal, pilot_xs)
    sizes = tune(key_pilot, run.model, run.proposal, pilot_xs, kernel, num_temperatures)
    ladder = kernel.ladder(num_temperatures, sizes)
    return score_rows(run.model, run.proposal, examples, ladder, num_chains=num_chains, seed=seed)


def folder_name(config: EvaluateConfig, update: int) -> str:
    """Name an evaluation by what it depends on, so that the same command finds it again."""
    options = config.sampler
    sampler = dataclasses.replace(options.sampler(), memory_mb=512)
    whole = repr((config.data, config.start, sampler, options.seed, update))
    short = hashlib.sha256(whole.encode()).hexdigest()[:8]
    size = f"C{sampler.num_chains}-T{sampler.num_temperatures}"
    steps = sampler.kernel.transition.num_gradients
    return f"{config.split}{config.num_examples}-{size}-L{steps}-{short}"
