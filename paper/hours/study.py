"""Train for some hours, then evaluate on test data once, and on training data."""

from pathlib import Path
from typing import NamedTuple

from aisle.runs import commands
from aisle.runs.folder import read_metrics
from aisle.runs.opening import export_run
from aisle.runs.options import TrainConfig
from aisle.runs.weights import SUFFIX
from aisle.statistics import Mean
from paper.core.timed import Effort, check_asked, evaluated, trained


class Point(NamedTuple):
    """A bound on validation examples during training."""

    hours: float
    bound: float


class Trained(NamedTuple):
    """What some hours of training came to.

    Attributes:
        curve: bounds on validation examples, as training went on.
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
    run = trained(config, hours, out / "run")
    export_run(run, out / f"weights{SUFFIX}")
    test, train = evaluated(run, effort), evaluated(run, effort, "train")
    assert test.bdmc is not None
    records = read_metrics(run.path)
    curve = [
        Point(record["seconds"] / 3600, record["held_out_bound"])
        for record in records
        if "held_out_bound" in record
    ]
    last = records[-1]
    return Trained(
        curve,
        test.whole_split or test.estimate,
        train.whole_split or train.estimate,
        test.bdmc.gap,
        last["update"],
        last["seconds"],
        command,
    )
