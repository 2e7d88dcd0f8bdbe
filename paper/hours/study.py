"""Train for some hours, then evaluate on test data once, and on training data."""

import json
from pathlib import Path
from typing import Literal, NamedTuple

from aisle.errors import InputError
from aisle.evaluation import LogLikelihood
from aisle.runs import commands, evaluating, training
from aisle.runs.folder import read_metrics
from aisle.runs.opening import open_run
from aisle.runs.options import EvaluateConfig, SamplerOptions, TrainConfig
from aisle.statistics import Mean
from paper.output import write_json


class Point(NamedTuple):
    """A bound on validation examples during training."""

    hours: float
    bound: float


class Trained(NamedTuple):
    """What some hours of training came to.

    Attributes:
        curve: bounds on validation examples, as training went on.
        test: mean log p(x) of the whole test split, a stochastic lower bound.
        train: likewise of some training examples.
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


class Effort(NamedTuple):
    """What an evaluation takes: examples, chains, temperatures, and those for the whole split."""

    num_examples: int = 1000
    num_chains: int = 16
    num_temperatures: int = 500
    whole_split: int = 30
    simulated: int = 100

    def config(self, split: Literal["test", "train"]) -> EvaluateConfig:
        """Return how a split is evaluated; the whole of it for test data alone."""
        sampler = SamplerOptions(
            num_chains=self.num_chains,
            num_temperatures=self.num_temperatures,
            bdmc_examples=self.simulated,
        )
        whole = self.whole_split if split == "test" else 0
        return EvaluateConfig(split, self.num_examples, whole, sampler=sampler)


def measure(config: TrainConfig, hours: float, out: Path, effort: Effort) -> Trained:
    """Train in a folder of `out`, or resume what is there, and evaluate."""
    _check(out / "asked.json", config, hours)
    folder = out / "run"
    if (folder / "config.json").exists():
        fitted = training.resume(folder)
    else:
        fitted = training.train(config, folder, hours=hours)
    if fitted.is_interrupted:
        raise KeyboardInterrupt("the same command resumes")
    test = _evaluate(folder, effort.config("test"))
    train = _evaluate(folder, effort.config("train"))
    assert test.bdmc is not None
    records = read_metrics(folder)
    curve = [
        Point(record["seconds"] / 3600, record["held_out_bound"])
        for record in records
        if "held_out_bound" in record
    ]
    last = records[-1]
    return Trained(
        curve,
        test.whole_split or test.estimate,
        train.estimate,
        test.bdmc.gap,
        last["update"],
        last["seconds"],
        f"{commands.train_anywhere(config)} --hours {hours:g}",
    )


def _evaluate(folder: Path, config: EvaluateConfig) -> LogLikelihood:
    return evaluating.evaluate(open_run(folder), config)[0]


def _check(file: Path, config: TrainConfig, hours: float) -> None:
    """Refuse to resume what was asked otherwise."""
    asked = {"data": config.data, "model": config.model.model, "seed": config.run.seed}
    asked |= {"hours": hours}
    before = json.loads(file.read_text()) if file.exists() else asked
    for name, value in asked.items():
        if before[name] != value:
            raise InputError(
                f"{file.parent} has a run with {name} {before[name]}, not {value}: choose another "
                "--out"
            )
    write_json(file, asked)
