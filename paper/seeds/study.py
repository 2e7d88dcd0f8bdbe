"""Train in several ways from the same start and for the same time, by several seeds."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from scipy.stats import norm, t

from aisle.learning.optimizers import RATE_WITH_CHAINS
from aisle.runs.config import absolute
from aisle.runs.folder import last_metrics
from aisle.runs.options import (
    DataOptions,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    TrainConfig,
)
from aisle.runs.training import completed
from aisle.statistics import Mean, is_ahead, summarise
from paper.core.effort import Effort, evaluated

WAYS = {
    "dreg-K1": MethodOptions("dreg", 1),
    "dreg-K5": MethodOptions("dreg", 5),
    "ais-T5-K1": MethodOptions("ais", 1, 5),
    "ais-T11-K1": MethodOptions("ais", 1, 11),
    "ais-T11-K5": MethodOptions("ais", 5, 11),
    "ais-T11-K1-paper": MethodOptions("ais", 1, 11, kernel="paper"),
    "ais-T11-K1-even": MethodOptions("ais", 1, 11, schedule="linear"),
    "mh-hmc-T5-K1": MethodOptions("mh-hmc", 1, 5),
    "mh-hmc-T11-K1": MethodOptions("mh-hmc", 1, 11),
}


class Claim(NamedTuple):
    """A statement that one way is better than another in the same time."""

    text: str
    better: str
    worse: str


CLAIMS = (
    Claim("AIS beats DReG, one sample each", "ais-T11-K1", "dreg-K1"),
    Claim("AIS beats DReG, five samples each", "ais-T11-K5", "dreg-K5"),
    Claim("T = 11 beats T = 5", "ais-T11-K1", "ais-T5-K1"),
    Claim("the tuned kernel beats the paper's", "ais-T11-K1", "ais-T11-K1-paper"),
    Claim("the ramp beats even spacing", "ais-T11-K1", "ais-T11-K1-even"),
    Claim("MH-HMC beats AIS at T = 5", "mh-hmc-T5-K1", "ais-T5-K1"),
    Claim("MH-HMC beats AIS at T = 11", "mh-hmc-T11-K1", "ais-T11-K1"),
)


class Asked(NamedTuple):
    """What is trained.

    Attributes:
        minutes: of each training, and of the start before it.
        seeds: of the first weights and of all draws.
    """

    data: str
    minutes: float
    seeds: Sequence[int]
    model: ModelOptions
    data_dir: Path | None = None


class Found(NamedTuple):
    """What one training came to.

    Attributes:
        log_p: of each test example, a stochastic lower bound.
        gap: by how much that may be too low on average.
        seconds: of training, without the start.
    """

    log_p: np.ndarray
    gap: Mean
    updates: int
    seconds: float


class Spread(NamedTuple):
    """A mean over seeds and examples, with the standard errors of both.

    Attributes:
        by_seed: the mean over examples for each seed.
    """

    by_seed: list[float]
    over_examples: float
    over_seeds: float

    @property
    def mean(self) -> float:
        """The mean of all."""
        return float(np.mean(self.by_seed))

    @property
    def as_one(self) -> Mean:
        """The mean with one error; that over seeds is widened by Student's t."""
        number = len(self.by_seed)
        # Two standard errors of three seeds cover much less than two of many.
        widened = t.ppf(0.975, number - 1) / norm.ppf(0.975) if number > 1 else float("nan")
        error = float(np.hypot(self.over_examples, widened * self.over_seeds))
        return Mean(self.mean, error, number)


class Verdict(NamedTuple):
    """What is known of a claim, and by how much the one way is better."""

    claim: Claim
    gain: Spread
    verdict: str


Runs = dict[str, list[Found]]


def measure(asked: Asked, out: Path, effort: Effort) -> Runs:
    """Train and evaluate each way by each seed, or resume what is in `out`."""
    hours = asked.minutes / 60
    config = absolute(_config(asked, MethodOptions("vae"), asked.seeds[0]))
    data_dir = config.observations.data_dir
    found: Runs = {name: [] for name in WAYS}
    for seed in asked.seeds:
        place = out / f"seed{seed}"
        start = place / "start"
        completed(_config(asked, MethodOptions("vae"), seed), start, hours=hours)
        for name, method in WAYS.items():
            config = _config(asked, method, seed, start)
            run = completed(config, place / name, hours=hours)
            result, last = evaluated(run, effort, data_dir=data_dir), last_metrics(run.path)
            assert result.bdmc is not None
            found[name].append(
                Found(result.log_p, result.bdmc.gap, last["update"], last["seconds"])
            )
            # Linux allows a process only so many programs.
            jax.clear_caches()
    return found


def _config(
    asked: Asked, method: MethodOptions, seed: int, start: Path | None = None
) -> TrainConfig:
    """Return a training: all ways have the same rate, and the start its usual one."""
    optimizer = OptimizerOptions()
    if start is not None:
        optimizer = dataclasses.replace(optimizer, learning_rate=RATE_WITH_CHAINS)
    return TrainConfig(
        asked.data,
        method=method,
        model=dataclasses.replace(asked.model, init_from=start),
        observations=DataOptions(data_dir=asked.data_dir),
        optimizer=optimizer,
        run=RunOptions(seed=seed),
    )


def spread(values: Sequence[np.ndarray]) -> Spread:
    """Summarise numbers of the same examples for each seed."""
    whole = np.stack(values)
    by_seed = whole.mean(1)
    return Spread(
        by_seed.tolist(),
        summarise(whole.mean(0)).standard_error,
        summarise(by_seed).standard_error,
    )


def gap_of(runs: Sequence[Found]) -> Mean:
    """Return the mean gap over seeds."""
    gaps = [run.gap for run in runs]
    error = np.sqrt(sum(gap.standard_error**2 for gap in gaps)) / len(gaps)
    mean = float(np.mean([gap.mean for gap in gaps]))
    return Mean(mean, float(error), sum(gap.num_examples for gap in gaps))


def judge(claim: Claim, found: Runs) -> Verdict:
    """Compare two ways on the same examples; a lead must exceed the gap of the one behind."""
    better, worse = found[claim.better], found[claim.worse]
    gain = spread([one.log_p - other.log_p for one, other in zip(better, worse, strict=True)])
    ahead = gain.as_one
    behind = ahead._replace(mean=-ahead.mean)
    verdict = "undecided"
    if is_ahead(ahead, gap_of(worse)):
        verdict = "holds"
    elif is_ahead(behind, gap_of(better)):
        verdict = "does not hold"
    return Verdict(claim, gain, verdict)
