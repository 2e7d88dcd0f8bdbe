"""Train for some hours, then evaluate on test data once, and on training data."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from aisle.errors import InputError
from aisle.learning.history import report
from aisle.runs import checkpoints, commands
from aisle.runs.folder import read_metrics
from aisle.runs.opening import Run, export_run, open_run
from aisle.runs.options import RunOptions, TrainConfig
from aisle.runs.training import completed
from aisle.runs.weights import SUFFIX
from aisle.statistics import Mean
from paper.core.effort import Effort, evaluated

# Validation examples of the curve.
_NUM_EXAMPLES = 300


class Point(NamedTuple):
    """Mean log p(x) of validation examples at a checkpoint, a stochastic lower bound."""

    hours: float
    log_p: Mean


class Trained(NamedTuple):
    """What some hours of training came to.

    Attributes:
        curve: log p(x) of validation examples, as training went on; empty without any.
        test: mean log p(x) of the whole test split, a stochastic lower bound.
        train: likewise of the training examples.
        gap: by how much the bound on test examples may be too low.
        command: that trains the same.
    """

    curve: list[Point]
    test: Mean
    train: Mean
    gap: Mean
    updates: int
    seconds: float
    command: str


def measure(config: TrainConfig, hours: float, out: Path, effort: Effort) -> Trained:
    """Train in a folder of `out`, or resume what is there, and evaluate."""
    run = completed(config, out / "run", hours=hours)
    export_run(run, out / f"weights{SUFFIX}")
    place = config.observations.data_dir
    test = evaluated(run, effort, "test", place)
    train = evaluated(run, effort.of_training(), "train", place)
    assert test.bdmc is not None
    records = read_metrics(run.path)
    last = records[-1]
    return Trained(
        curve(run, effort, place),
        test.whole_split or test.estimate,
        train.whole_split or train.estimate,
        test.bdmc.gap,
        last["update"],
        last["seconds"],
        f"{commands.train_anywhere(_without_checkpoints(config))} --hours {hours:g}",
    )


def _without_checkpoints(config: TrainConfig) -> TrainConfig:
    """Return the configuration with as many checkpoints as usual, which change no result."""
    usual = RunOptions().keep_checkpoints
    return dataclasses.replace(config, run=dataclasses.replace(config.run, keep_checkpoints=usual))


def curve(run: Run, effort: Effort, data_dir: Path | None) -> list[Point]:
    """Evaluate validation examples at each checkpoint of a run; what is done already is read."""
    if "valid" not in run.stored["data"]["digests"]:
        return []
    short = effort._replace(
        num_examples=min(_NUM_EXAMPLES, effort.num_examples),
        num_chains=effort.num_chains // 2,
        num_temperatures=max(2, effort.num_temperatures // 4),
        whole_split=0,
        refit=None,
    )
    seconds = {record["update"]: record["seconds"] for record in read_metrics(run.path)}
    points = []
    for update in checkpoints.updates(run.path):
        try:
            at = open_run(run.path, data_dir=data_dir, update=update)
        except InputError as error:
            report(f"a point of the curve is left out: {error}")
            continue
        found = evaluated(at, short, "valid", data_dir).estimate
        points.append(Point(seconds[update] / 3600, found))
    return points
