"""The evaluation of a run on its data, or on other data of the same shape."""

import dataclasses
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aisle import processes
from aisle.data import Dataset, Split, as_split, load, spread
from aisle.data.arrays import is_file_name
from aisle.errors import InputError, check
from aisle.evaluation import Certificate, LogLikelihood, Round, Sampler, log_likelihood
from aisle.evaluation.pilot import NUM_EXAMPLES
from aisle.evaluation.results import save
from aisle.evaluation.work import is_late
from aisle.runs.opening import Run, load_data
from aisle.runs.options import EvaluateConfig
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
    report: Callable[[Round], None] | None = None,
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
    dataset = data or dataset_of(run, config)
    held_out = parts(run, config, dataset)
    for split in filter(None, held_out):
        # Bits would be drawn of any values.
        as_split(split, dataset.source)
    task = _Task(run, config, held_out, time.perf_counter(), show_progress)
    place = out or run.path / "evaluations" / folder_name(config, run.update)
    chosen = spread(len(held_out.split), config.num_examples)
    sampler, certificate = config.sampler.sampler(), config.sampler.certificate()
    result = task.anneal(
        chosen, sampler, certificate, place, report, config.sampler.importance_samples
    )
    if config.whole_split and len(result.indices) < len(held_out.split):
        result = dataclasses.replace(result, whole_split=_over_all(task, result, place))
        processes.first_does(lambda: save(result, place))
    return result, place


class _Task(NamedTuple):
    """What the long and the short run of an evaluation share."""

    run: Run
    config: EvaluateConfig
    held_out: HeldOut
    began: float
    show_progress: bool

    def anneal(
        self,
        indices: np.ndarray,
        sampler: Sampler,
        certificate: Certificate,
        place: Path,
        report: Callable[[Round], None] | None = None,
        importance_samples: int = 0,
    ) -> LogLikelihood:
        """Anneal some examples of the split."""
        run, config, (split, pilot) = self.run, self.config, self.held_out
        asked = dataclasses.asdict(dataclasses.replace(config, data_dir=None))
        return log_likelihood(
            run.model,
            run.proposal if config.start == "encoder" else None,
            split.observe(indices),
            sampler=sampler,
            certificate=certificate,
            importance_samples=importance_samples,
            pilot_x=None if pilot is None else pilot.observe(spread(len(pilot), NUM_EXAMPLES)),
            indices=indices,
            seed=config.sampler.seed,
            about={"update": run.update, **asked},
            out=place,
            show_progress=self.show_progress,
            report=report,
        )


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
        whole = dataset.test
        return HeldOut(Split(whole.arrays, None, whole.view), None)
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
    dataset = load(config.data, place, view=view, num_valid=None)
    if int(np.prod(dataset.shape)) != int(np.prod(run.shape)):
        raise InputError(
            f"{config.data} has examples of the shape {tuple(dataset.shape)} but {run.path} was "
            f"trained on {tuple(run.shape)}: give data of that shape"
        )
    return dataset


def folder_name(config: EvaluateConfig, update: int) -> str:
    """Name an evaluation by what it depends on, so that the same command finds it again."""
    options = config.sampler
    sampler = dataclasses.replace(options.sampler(), memory_mb=512)
    whole = repr((config.data, config.start, sampler, options.seed, update))
    short = hashlib.sha256(whole.encode()).hexdigest()[:8]
    size = f"C{sampler.num_chains}-T{sampler.num_temperatures}"
    steps = sampler.kernel.transition.num_gradients
    return f"{config.split}{config.num_examples}-{size}-L{steps}-{short}"


def _over_all(task: _Task, long_run: LogLikelihood, place: Path) -> Mean | None:
    """Estimate the mean over the whole split, if the time suffices for both runs."""
    number, budget = task.config.whole_split, task.config.sampler.max_seconds
    deadline = None if budget is None else task.began + budget
    if not long_run.is_complete or is_late(deadline):
        return None
    left: Any = deadline and max(1e-3, deadline - time.perf_counter())
    sampler = dataclasses.replace(
        task.config.sampler.sampler(),
        num_chains=_SHORT_CHAINS,
        num_temperatures=number,
        refit=0,
    )
    everything = np.arange(len(task.held_out.split))
    certificate = Certificate(0, None, left)
    short_run = task.anneal(everything, sampler, certificate, place / f"whole-split-T{number}")
    if not short_run.is_complete:
        return None
    return double_sampled(long_run.log_p, long_run.indices, short_run.log_p)
