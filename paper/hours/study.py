"""Train for some hours, then evaluate on test data once, and on training data."""

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

from aisle.errors import InputError
from aisle.learning.history import report
from aisle.runs import checkpoints, commands
from aisle.runs.config import absolute
from aisle.runs.folder import read_metrics
from aisle.runs.opening import Run, export_run, open_run
from aisle.runs.options import RunOptions, TrainConfig
from aisle.runs.training import completed
from aisle.runs.weights import SUFFIX
from aisle.statistics import Mean
from paper.core.effort import Effort, evaluated

RECORD = "hours.json"
# Validation examples of the curve.
_NUM_EXAMPLES = 300


class Point(NamedTuple):
    """Mean log p(x) of validation examples at a checkpoint, a stochastic lower bound."""

    hours: float
    log_p: Mean


class Stage(NamedTuple):
    """One command of training, which starts from the weights of the one before."""

    command: str
    seconds: float


class Trained(NamedTuple):
    """What some hours of training came to.

    Attributes:
        before: the trainings on record that led to the first weights.
        curve: log p(x) of validation examples, as training went on; empty without any.
        test: mean log p(x) of the whole test split, a stochastic lower bound.
        train: likewise of the training examples.
        gap: by how much the bound on test examples may be too low.
        command: that trains the same.
    """

    before: list[Stage]
    curve: list[Point]
    test: Mean
    train: Mean
    gap: Mean
    updates: int
    seconds: float
    command: str

    @property
    def hours(self) -> float:
        """Hours of training, with those before."""
        return _hours([*self.before, Stage(self.command, self.seconds)])


def measure(config: TrainConfig, hours: float, out: Path, effort: Effort) -> Trained:
    """Train in a folder of `out`, or resume what is there, and evaluate."""
    config = absolute(config)
    start = config.model.init_from
    before = [] if start is None else recorded(start)
    run = completed(config, out / "run", hours=hours)
    export_run(run, out / f"weights{SUFFIX}")
    place = config.observations.data_dir
    test = evaluated(run, effort, "test", place)
    train = evaluated(run, effort.of_training(), "train", place)
    assert test.bdmc is not None
    last = read_metrics(run.path)[-1]
    return Trained(
        before,
        curve(run, effort, place, _hours(before)),
        test.whole_split or test.estimate,
        train.whole_split or train.estimate,
        test.bdmc.gap,
        last["update"],
        last["seconds"],
        f"{commands.train_anywhere(_without_checkpoints(config))} --hours {hours:g}",
    )


def recorded(weights: Path) -> list[Stage]:
    """Return how weights were trained, if a record lies beside them."""
    path = weights.with_name(RECORD)
    return stages(json.loads(path.read_text())) if path.exists() else []


def stages(record: dict[str, Any]) -> list[Stage]:
    """Return the commands of a record, in the order in which they trained."""
    last = Stage(record["command"], record["seconds"])
    return [*(Stage(**stage) for stage in record.get("before", [])), last]


def _hours(stages: list[Stage]) -> float:
    return sum(stage.seconds for stage in stages) / 3600


def _without_checkpoints(config: TrainConfig) -> TrainConfig:
    """Return the configuration with as many checkpoints as usual, which change no result."""
    usual = RunOptions().keep_checkpoints
    return dataclasses.replace(config, run=dataclasses.replace(config.run, keep_checkpoints=usual))


def curve(run: Run, effort: Effort, data_dir: Path | None, before: float) -> list[Point]:
    """Evaluate validation examples at each checkpoint of a run; what is done already is read.

    Hours are counted from the beginning, `before` of them before the run.
    """
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
        points.append(Point(before + seconds[update] / 3600, found))
    return points
