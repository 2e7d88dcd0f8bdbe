"""The evaluation of a run on its data, or on other data of the same shape."""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aisle import processes
from aisle.annealing import presets
from aisle.data import Dataset, Split, load, spread
from aisle.data.arrays import is_file_name
from aisle.errors import InputError
from aisle.evaluation import LogLikelihood, Round, log_likelihood
from aisle.evaluation.pilot import NUM_EXAMPLES
from aisle.evaluation.results import save
from aisle.evaluation.work import is_late
from aisle.experiments.options import EvaluateConfig
from aisle.experiments.training import Run, check_data, is_own, load_data, open_run
from aisle.learning.observations import observe_rows
from aisle.statistics import Mean, double_sampled

# Chains of the short run on a whole split.
_SHORT_CHAINS = 2


def evaluate(
    path: Path,
    config: EvaluateConfig,
    *,
    out: Path | None = None,
    show_progress: bool = True,
    report: Callable[[Round], None] | None = None,
) -> tuple[LogLikelihood, Path]:
    """Evaluate a run's newest checkpoint; return what was found and the folder that has it."""
    run = open_run(path)
    check_weights(run)
    if config.whole_split < 0 or config.whole_split == 1:
        raise InputError(f"whole_split is {config.whole_split}: it must be 0, or at least 2")
    dataset = dataset_of(run, config)
    split, other = _parts(run, config, dataset)
    check_data(dataset, run.config)
    task = _Task(run, config, split, other, time.perf_counter(), show_progress)
    folder = out or path / "evaluations" / folder_name(config, run.update)
    result = task.anneal(spread(len(split), config.num_examples), {}, folder, report)
    if config.whole_split and len(result.indices) < len(split):
        result = result._replace(whole_split=_over_all(task, result, folder))
        processes.first_does(lambda: save(result, folder))
    return result, folder


class _Task(NamedTuple):
    """What the long and the short run of an evaluation share."""

    run: Run
    config: EvaluateConfig
    split: Split
    other: Split | None
    began: float
    show_progress: bool

    def anneal(
        self,
        indices: np.ndarray,
        changes: Mapping[str, Any],
        folder: Path,
        report: Callable[[Round], None] | None,
    ) -> LogLikelihood:
        """Anneal some examples of the split, with changes to the sampler's options."""
        run, config, other = self.run, self.config, self.other
        binarize, pilot_x = run.config.observations.binarize, None
        if other is not None:
            pilot_x = observe_rows(other, spread(len(other), NUM_EXAMPLES), binarize)
        return log_likelihood(
            run.model,
            run.proposal if config.start == "encoder" else None,
            observe_rows(self.split, indices, binarize),
            pilot_x=pilot_x,
            indices=indices,
            **{**dataclasses.asdict(_complete(config).sampler), **changes},
            about={"update": run.update, **_asked(config)},
            out=folder,
            show_progress=self.show_progress,
            report=report,
        )


def _parts(run: Run, config: EvaluateConfig, dataset: Dataset) -> tuple[Split, Split | None]:
    """Return the examples to evaluate, and others to tune on, where there are some."""
    test, train = dataset.test, dataset.train
    is_one_array = config.data is not None and is_file_name(config.data) and test.rows is not None
    # Of what the run was trained on, the same tenth is held out again.
    if not is_one_array or is_own(run.path, dataset):
        return (test, train) if config.split == "test" else (train, test)
    if config.split == "train":
        raise InputError(
            f"split is 'train' but {config.data} has no part called test, so all of it is "
            "evaluated: leave --split out, or save both parts in an .npz file"
        )
    return Split(test.array), None


def _over_all(task: _Task, long_run: LogLikelihood, folder: Path) -> Mean | None:
    """Estimate the mean over the whole split, if the time suffices for both runs."""
    num_temperatures, budget = task.config.whole_split, task.config.sampler.max_seconds
    deadline = None if budget is None else task.began + budget
    if not long_run.is_complete or is_late(deadline):
        return None
    changes = {
        "num_chains": _SHORT_CHAINS,
        "num_temperatures": num_temperatures,
        "refit": 0,
        "bdmc_examples": 0,
        "tolerance": None,
        "max_seconds": deadline and max(1e-3, deadline - time.perf_counter()),
        "importance_samples": 0,
    }
    everything = np.arange(len(task.split))
    short_run = task.anneal(everything, changes, folder / f"whole-split-T{num_temperatures}", None)
    if not short_run.is_complete:
        return None
    return double_sampled(long_run.log_p, long_run.indices, short_run.log_p)


def _asked(config: EvaluateConfig) -> dict[str, Any]:
    """Return what was asked for, but for the sampler, as plain values."""
    plain = {k: v for k, v in dataclasses.asdict(config).items() if k != "sampler"}
    return plain | {"data_dir": None if config.data_dir is None else str(config.data_dir)}


def _complete(config: EvaluateConfig) -> EvaluateConfig:
    """Write out what the named kernel stands for."""
    given, has_scale = dataclasses.asdict(config.sampler), config.start == "encoder"
    name = config.sampler.kernel
    chosen = presets.complete(presets.EVALUATION, name, given, has_scale=has_scale)
    return dataclasses.replace(config, sampler=dataclasses.replace(config.sampler, **chosen))


def folder_name(config: EvaluateConfig, update: int) -> str:
    """Name an evaluation by what it depends on, so that the same command finds it again."""
    # These only say when to stop, or add figures; the kernel's name says nothing that is not there.
    free = {
        "bdmc_examples",
        "tolerance",
        "max_seconds",
        "importance_samples",
        "memory_mb",
        "kernel",
    }
    whole_sampler = dataclasses.asdict(_complete(config).sampler)
    sampler = {k: v for k, v in whole_sampler.items() if k not in free}
    whole = repr((config.data, config.data_dir, config.start, sampler, update))
    short = hashlib.sha256(whole.encode()).hexdigest()[:8]
    examples = f"{config.split}{config.num_examples}"
    size = "C{num_chains}-T{num_temperatures}-L{num_leapfrog}".format(**sampler)
    return f"{examples}-{size}-{short}"


def dataset_of(run: Run, config: EvaluateConfig) -> Dataset:
    """Load the data of a run, or the other data that were asked for."""
    name = config.data or run.config.data
    if config.data is None:
        dataset = load_data(run.path, run.config, config.data_dir)
    else:
        dataset = load(name, config.data_dir or run.config.observations.data_dir)
    if int(np.prod(dataset.shape)) != int(np.prod(run.shape)):
        raise InputError(
            f"{name} has examples of the shape {tuple(dataset.shape)} but {run.path} was trained "
            f"on {tuple(run.shape)}: give data of that shape"
        )
    return dataset


def check_weights(run: Run) -> None:
    """Refuse a run whose weights are of no use."""
    arrays: list[Any] = jax.tree.leaves(eqx.filter((run.model, run.proposal), eqx.is_inexact_array))
    if not all(bool(jnp.all(jnp.isfinite(a))) for a in arrays):
        raise InputError(
            f"the weights of {run.path} at update {run.update} are not all finite: train again "
            "with a lower learning rate"
        )
