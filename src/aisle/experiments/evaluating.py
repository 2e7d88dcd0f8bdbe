"""The evaluation of a run on its data, or on other data of the same shape."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from aisle.annealing import presets
from aisle.data import Dataset, Split, check_values, load
from aisle.errors import InputError
from aisle.evaluation import LogLikelihood, Round, log_likelihood
from aisle.evaluation.pilot import NUM_EXAMPLES
from aisle.experiments.options import EvaluateConfig
from aisle.experiments.training import Run, open_run
from aisle.learning.observations import observe_all


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
    dataset = dataset_of(run, config)
    split, other = dataset.test, dataset.train
    if config.split == "train":
        split, other = other, split
    binarize = run.config.observations.binarize
    for part in (split, other):
        check_values(part, binarize, dataset.source)
    indices = spread(len(split), config.num_examples)
    folder = out or path / "evaluations" / folder_name(config, run.update)
    result = log_likelihood(
        run.model,
        run.proposal if config.start == "encoder" else None,
        observations(split, indices, binarize),
        pilot_x=observations(other, spread(len(other), NUM_EXAMPLES), binarize),
        indices=indices,
        **dataclasses.asdict(_complete(config).sampler),
        out=folder,
        show_progress=show_progress,
        report=report,
    )
    return result, folder


def _complete(config: EvaluateConfig) -> EvaluateConfig:
    """Write out what the named kernel stands for."""
    given, has_scale = dataclasses.asdict(config.sampler), config.start == "encoder"
    name = config.sampler.kernel
    chosen = presets.complete(presets.EVALUATION, name, given, has_scale=has_scale)
    return dataclasses.replace(config, sampler=dataclasses.replace(config.sampler, **chosen))


def spread(available: int, wanted: int) -> np.ndarray:
    """Choose examples evenly from all, as a data set may be in order of its classes."""
    if wanted < 1:
        raise InputError(f"num_examples is {wanted}: it must be at least 1")
    number = min(wanted, available)
    return np.arange(number) * available // number


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
    dataset = load(name, config.data_dir or run.config.observations.data_dir)
    if int(np.prod(dataset.shape)) != int(np.prod(run.shape)):
        raise InputError(
            f"{name} has examples of the shape {tuple(dataset.shape)} but {run.path} was trained "
            f"on {tuple(run.shape)}: give data of that shape"
        )
    return dataset


def observations(split: Split, indices: np.ndarray, binarize: str) -> Array:
    """Return some examples as the model sees them."""
    return observe_all(jnp.asarray(split.take(indices)), jnp.asarray(indices), binarize)


def check_weights(run: Run) -> None:
    """Refuse a run whose weights are of no use."""
    arrays: list[Any] = jax.tree.leaves(eqx.filter((run.model, run.proposal), eqx.is_inexact_array))
    if not all(bool(jnp.all(jnp.isfinite(a))) for a in arrays):
        raise InputError(
            f"the weights of {run.path} at update {run.update} are not all finite: train again "
            "with a lower learning rate"
        )
