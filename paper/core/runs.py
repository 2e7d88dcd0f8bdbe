"""Train and evaluate a plan with the library, in a folder of its own."""

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aisle.errors import InputError
from aisle.runs import commands, evaluating, timing, training, weights
from aisle.runs.config import NOT_A_CONFIG, config_of
from aisle.runs.folder import last_metrics, read_config
from aisle.runs.opening import export_run, open_run
from aisle.runs.options import (
    DataOptions,
    EvaluateConfig,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    SamplerOptions,
    TrainConfig,
)
from aisle.statistics import Mean
from paper.core.chains import TRAINING
from paper.tables.plans import Evaluation, Method, Training

# Of a file of weights.
WEIGHTS_SUFFIX = weights.SUFFIX

# What values that are no plan lead to.
NOT_A_PLAN = (AttributeError, KeyError, TypeError)

# Updates of a try; the first one compiles and is not timed.
_TRIED = 6


class TrainedRun(NamedTuple):
    """A run that has made all its updates; costs are its own, without those of its start.

    Attributes:
        digests: of the data, by split.
    """

    path: Path
    updates: int
    decoder_gradients: int
    seconds: float
    digests: dict[str, str]


class Evaluated(NamedTuple):
    """What an evaluation found.

    Attributes:
        log_likelihood: mean over the whole split if it was asked for, else over the examples.
        gap: of bidirectional Monte Carlo; None if it was not asked for.
        log_p: of each example that was annealed at length.
        mean: over these.
        elbo: evidence lower bound of them, and the latents that the encoder uses; None if no
            importance samples were asked for.
    """

    log_likelihood: Mean
    gap: Mean | None
    log_p: np.ndarray
    mean: Mean
    elbo: Mean | None
    active_units: int | None
    seconds: float


class Timing(NamedTuple):
    """What training would take on this machine."""

    updates: int
    decoder_gradients: int
    seconds: float


def resolved(plan: Training) -> Training:
    """Write out what the named kernel stands for: a cell stays what it is if a preset changes."""
    usual = TRAINING[plan.method.kernel]._asdict()
    own = dataclasses.asdict(plan.method)
    filled = {name: usual[name] for name in own if own[name] is None}
    return dataclasses.replace(plan, method=Method(**{**own, **filled}).effective)


def command(plan: Training, start: str | None) -> str:
    """Return the `aisle train` command of a plan, from the weights of another cell if named."""
    from_start = "" if start is None else f" --init-from {shlex.quote(start)}"
    return commands.train(_train_config(plan)) + from_start


def train(plan: Training, folder: Path, start: Path | None) -> TrainedRun:
    """Train in a folder from given weights, or resume the run that is there.

    A run that is complete is left as it is.
    """
    if not (folder / "config.json").exists():
        config = _train_config(plan)
        model = dataclasses.replace(config.model, init_from=start)
        fitted = training.train(dataclasses.replace(config, model=model), folder)
    else:
        _check_folder(folder, plan, start)
        fitted = training.resume(folder)
    if fitted.is_interrupted:
        raise KeyboardInterrupt(f"in {folder.name}; the same command resumes")
    last = last_metrics(folder)
    return TrainedRun(
        folder,
        last["update"],
        last["decoder_gradients"],
        last["seconds"],
        read_config(folder)["data"]["digests"],
    )


def evaluate(folder: Path, plan: Evaluation) -> Evaluated:
    """Evaluate a run, or read the evaluation that is there."""
    found = evaluating.evaluate(open_run(folder), _evaluate_config(plan))[0]
    importance = found.importance
    return Evaluated(
        found.whole_split or found.estimate,
        found.bdmc and found.bdmc.gap,
        found.log_p,
        found.estimate,
        importance and importance.elbo,
        importance and importance.active_units,
        found.seconds,
    )


def export(run: TrainedRun, file: Path, about: Mapping[str, Any]) -> None:
    """Write a run's weights for others to start from, with what they are."""
    export_run(open_run(run.path), file, about)


def read_about(file: Path) -> dict[str, Any]:
    """Return what a file of weights says of itself."""
    return weights.read_metadata(file)


def time_updates(plan: Training) -> Timing:
    """Time a few updates of each phase, and multiply; without bounds on validation data."""
    config = _train_config(plan)
    dataset = training.dataset_of(config)
    whole, networks = training.plan_of(config, dataset), training.first_weights(config, dataset)
    assert whole.ends is not None
    seconds, gradients = 0.0, 0
    for phase, number in zip(whole.recipe.phases, np.diff([0, *whole.ends]), strict=True):
        one = timing.seconds_of_one(whole, phase, *networks, dataset.train, _TRIED)
        seconds += int(number) * one
        gradients += int(number) * whole.batch_size * phase.method.num_gradients
    return Timing(whole.ends[-1], gradients, seconds)


def _check_folder(folder: Path, plan: Training, start: Path | None) -> None:
    """Refuse to resume a run of another plan; the table may have been moved since.

    A run that `aisle train` made in the same way is as good as the table's own.
    """
    stored = read_config(folder)
    try:
        before = config_of(stored["train"], stored["format"])
    except NOT_A_CONFIG as error:
        raise InputError(
            f"{folder} is not a run of a table ({error!r}): choose another --out, or remove it"
        ) from None
    names = [file and file.name for file in (before.model.init_from, start)]
    is_as_long = (before.num_epochs, before.num_updates) == (plan.num_epochs, None)
    is_same = is_as_long and _meaning(before) == _meaning(_train_config(plan))
    if not is_same or names[0] != names[1]:
        raise InputError(f"{folder} has other settings: choose another --out, or remove it")


def _meaning(config: TrainConfig) -> tuple[Any, ...]:
    """Return what the weights depend on, but for the length and the weights that they start from.

    As objects: an option that is left out is the same as one that is given its default.
    """
    assert config.num_epochs is not None
    return (
        config.data,
        config.view(),
        config.observations.num_valid,
        dataclasses.replace(config.model, init_from=None),
        config.optimizer.batch_size,
        # In epochs, as the data are not here.
        config.recipe(1, config.num_epochs),
        [getattr(config.run, name) for name in ("seed", "keep", "patience", "validate_every")],
    )


def _train_config(plan: Training) -> TrainConfig:
    """Return the library's configuration."""
    method = plan.method.effective
    own: dict[str, Any] = dataclasses.asdict(method)
    if not method.has_chains:
        own = {"method": method.method, "num_samples": method.num_samples}
    if method.method == "auto":
        own = {"method": "auto"}
    return TrainConfig(
        plan.data,
        plan.num_epochs,
        method=MethodOptions(**own),
        model=ModelOptions(**dataclasses.asdict(plan.networks)),
        observations=DataOptions(num_valid=plan.num_valid),
        optimizer=OptimizerOptions(**dataclasses.asdict(plan.optimizer)),
        run=RunOptions(seed=plan.seed, keep=plan.keep),
    )


def _evaluate_config(plan: Evaluation) -> EvaluateConfig:
    sampler = dataclasses.asdict(plan)
    examples = {name: sampler.pop(name) for name in ("num_examples", "whole_split")}
    return EvaluateConfig(**examples, sampler=SamplerOptions(**sampler))
