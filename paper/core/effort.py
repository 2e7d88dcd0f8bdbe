"""How carefully a training is evaluated."""

import dataclasses
from pathlib import Path
from typing import Literal, NamedTuple

from aisle.evaluation import LogLikelihood
from aisle.runs import evaluating
from aisle.runs.opening import Run
from aisle.runs.options import EvaluateConfig, SamplerOptions


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
    num_temperatures: int = 1000
    whole_split: int = 30
    simulated: int = 100
    refit: int | None = None
    num_leapfrog: int | None = None
    target_accept: float | None = None

    def of_training(self) -> "Effort":
        """Return the effort for training data, which show what was overfitted: less will do."""
        return self._replace(
            num_temperatures=max(2, self.num_temperatures // 4),
            whole_split=self.whole_split and max(2, self.whole_split // 3),
        )

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


def evaluated(
    run: Run,
    effort: Effort,
    split: Literal["test", "valid", "train"] = "test",
    data_dir: Path | None = None,
) -> LogLikelihood:
    """Evaluate a split of a run's data; what is evaluated already is read."""
    config = dataclasses.replace(effort.config(split), data_dir=data_dir)
    return evaluating.evaluate(run, config)[0]
