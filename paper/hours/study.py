"""Train for some hours, then evaluate on test data once, and on training data."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from aisle.runs import checkpoints, commands
from aisle.runs.folder import read_metrics
from aisle.runs.opening import Run, export_run, open_run
from aisle.runs.options import TrainConfig
from aisle.runs.weights import SUFFIX
from aisle.statistics import Mean
from paper.core.timed import Effort, check_asked, evaluated, trained

# Validation examples of the curve, and its checkpoints: all that are written.
_NUM_EXAMPLES, _ALL = 300, 1_000_000


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
    command = f"{commands.train_anywhere(config)} --hours {hours:g}"
    check_asked(out, {"command": command})
    options = dataclasses.replace(config.run, keep_checkpoints=_ALL)
    run = trained(dataclasses.replace(config, run=options), hours, out / "run")
    export_run(run, out / f"weights{SUFFIX}")
    test, train = evaluated(run, effort), evaluated(run, effort, "train")
    assert test.bdmc is not None
    records = read_metrics(run.path)
    last = records[-1]
    return Trained(
        curve(run, effort),
        test.whole_split or test.estimate,
        train.whole_split or train.estimate,
        test.bdmc.gap,
        last["update"],
        last["seconds"],
        command,
    )


def curve(run: Run, effort: Effort) -> list[Point]:
    """Evaluate validation examples at each checkpoint of a run; what is done already is read."""
    if "valid" not in run.stored["data"]["digests"]:
        return []
    short = effort._replace(
        num_examples=min(_NUM_EXAMPLES, effort.num_examples),
        num_chains=effort.num_chains // 2,
        num_temperatures=max(2, effort.num_temperatures // 2),
        whole_split=0,
        refit=None,
    )
    seconds = {r["update"]: r["seconds"] for r in read_metrics(run.path)}
    return [
        Point(seconds[update] / 3600, evaluated(at, short, "valid").estimate)
        for update in checkpoints.updates(run.path)
        for at in (open_run(run.path, update=update),)
    ]
