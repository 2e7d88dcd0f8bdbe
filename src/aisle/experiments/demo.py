"""The demonstration: four methods on the embedded digits, with everything else the same."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from aisle.errors import InputError
from aisle.evaluation import LogLikelihood
from aisle.experiments import training
from aisle.experiments.evaluating import evaluate
from aisle.experiments.options import (
    EvaluateConfig,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    SamplerOptions,
    TrainConfig,
)
from aisle.learning.run_directory import read_metrics
from aisle.statistics import summarise

# How the models are compared, on all held-out digits.
SAMPLER = SamplerOptions(num_chains=8, num_temperatures=200, bdmc_examples=100)

# Of a digit.
SHAPE = (8, 8)

METHODS = {
    "vae": MethodOptions("vae", num_samples=1),
    "dreg": MethodOptions("dreg", num_samples=5),
    "mh-hmc": MethodOptions("mh-hmc", num_samples=5, num_temperatures=5, num_leapfrog=5),
    "ais": MethodOptions("ais", num_samples=5, num_temperatures=5, num_leapfrog=5),
}


class Result(NamedTuple):
    """How one method did.

    Attributes:
        log_likelihood: stochastic lower bound, by annealing.
        gap: of bidirectional Monte Carlo, on simulated examples.
        difference: of the mean log-likelihood to the first method's, on the same examples.
        difference_error: standard error of that, of the paired differences.
    """

    method: str
    updates: int
    decoder_gradients: int
    seconds: float
    log_likelihood: float
    standard_error: float
    gap: float
    gap_error: float
    difference: float
    difference_error: float


def config(name: str, num_epochs: int, seed: int) -> TrainConfig:
    """Return the configuration of one method; only the method differs."""
    return TrainConfig(
        "digits",
        num_epochs,
        METHODS[name],
        ModelOptions(num_latents=20, num_hidden=100),
        optimizer=OptimizerOptions(batch_size=100, learning_rate=3e-3, lr_schedule="cosine"),
        run=RunOptions(seed=seed, validate_every=10),
    )


def run_method(name: str, out: Path, num_epochs: int, seed: int) -> training.Run:
    """Train one method in its own folder, or go on with what is there; return the run."""
    folder, wanted = out / name, config(name, num_epochs, seed)
    if (folder / "config.json").exists():
        if training.open_config(folder) != wanted:
            raise InputError(f"{folder} has other settings: choose another --out, or remove it")
        training.resume(folder)
    else:
        training.train(wanted, folder)
    return training.open_run(folder)


def measure(run: training.Run, seed: int) -> LogLikelihood:
    """Estimate log p(x) of every held-out example."""
    sampler = dataclasses.replace(SAMPLER, seed=seed)
    return evaluate(run.path, EvaluateConfig(sampler=sampler))[0]


def result(run: training.Run, found: LogLikelihood, first: LogLikelihood) -> Result:
    """Put together what the table shows of a method."""
    assert found.bdmc is not None
    last = read_metrics(run.path)[-1]
    paired = summarise(found.log_p - first.log_p)
    return Result(
        run.config.method.method,
        run.update,
        last["decoder_gradients"],
        last["seconds"],
        found.estimate.mean,
        found.estimate.standard_error,
        found.bdmc.gap.mean,
        found.bdmc.gap.standard_error,
        paired.mean,
        paired.standard_error,
    )
