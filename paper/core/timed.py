"""Train for a time, in a folder that is resumed, and evaluate what that came to."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from aisle.errors import InputError
from aisle.evaluation import LogLikelihood
from aisle.runs import evaluating, training
from aisle.runs.opening import Run, open_run
from aisle.runs.options import EvaluateConfig, SamplerOptions, TrainConfig
from paper.output import write_json


class Effort(NamedTuple):
    """What an evaluation takes: examples, chains, temperatures, and those for the whole split.

    Attributes:
        whole_split: 0 to leave the other examples out.
        simulated: examples of the certificate.
        refit: updates of a copy of the encoder that chains start from; None for the encoder.
        num_leapfrog: None for that of the kernel, as is the next.
    """

    num_examples: int = 1000
    num_chains: int = 16
    num_temperatures: int = 500
    whole_split: int = 30
    simulated: int = 100
    refit: int | None = None
    num_leapfrog: int | None = None
    target_accept: float | None = None

    def config(self, split: Literal["test", "valid", "train"]) -> EvaluateConfig:
        """Return how a split is evaluated; the gap is that of test data."""
        sampler = SamplerOptions(
            num_chains=self.num_chains,
            num_temperatures=self.num_temperatures,
            bdmc_examples=self.simulated if split == "test" else 0,
            refit=self.refit,
            num_leapfrog=self.num_leapfrog,
            target_accept=self.target_accept,
        )
        return EvaluateConfig(split, self.num_examples, self.whole_split, sampler=sampler)


def trained(config: TrainConfig, hours: float, folder: Path) -> Run:
    """Train in a folder for some hours, or resume what is there."""
    if (folder / "config.json").exists():
        fitted = training.resume(folder)
    else:
        fitted = training.train(config, folder, hours=hours)
    if fitted.is_interrupted:
        raise KeyboardInterrupt("the same command resumes")
    return open_run(folder)


def evaluated(
    run: Run, effort: Effort, split: Literal["test", "valid", "train"] = "test"
) -> LogLikelihood:
    """Evaluate a split of a run's data; what is evaluated already is read."""
    return evaluating.evaluate(run, effort.config(split))[0]


def check_asked(out: Path, asked: Mapping[str, Any]) -> None:
    """Refuse to resume in a folder what was asked otherwise, or note what is asked."""
    file = out / "asked.json"
    before = json.loads(file.read_text()) if file.exists() else asked
    for name, value in asked.items():
        if before.get(name) != value:
            raise InputError(
                f"{out} was begun with {name} {before.get(name)}, not {value}: choose another --out"
            )
    write_json(file, dict(asked))
