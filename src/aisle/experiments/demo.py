"""The demonstration: four methods on the embedded digits, with everything else the same."""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from aisle.errors import InputError
from aisle.experiments import training
from aisle.experiments.options import (
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    TrainConfig,
)
from aisle.learning.run_directory import read_metrics
from aisle.learning.validation import importance_bounds
from aisle.statistics import summarise

# Samples of the importance-weighted bound that the methods are compared by: many, as the bound is
# looser for a model whose encoder lags behind.
NUM_SAMPLES = 5000

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
        difference: of the mean log-likelihood to the first method's, on the same examples.
        difference_error: standard error of that, of the paired differences.
    """

    method: str
    updates: int
    decoder_gradients: int
    seconds: float
    log_likelihood: float
    standard_error: float
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


def log_likelihoods(run: training.Run, seed: int) -> np.ndarray:
    """Bound log p(x) of every held-out example by importance sampling."""
    xs = training.held_out(run.config, 10_000)
    bounds = _bounds(jax.random.key(seed), run.model, run.proposal, xs)
    return np.asarray(bounds, float)


def result(run: training.Run, bounds: np.ndarray, first: np.ndarray) -> Result:
    """Put together what the table shows of a method."""
    last = read_metrics(run.path)[-1]
    own, paired = summarise(bounds), summarise(bounds - first)
    return Result(
        run.config.method.method,
        run.update,
        last["decoder_gradients"],
        last["seconds"],
        own.mean,
        own.standard_error,
        paired.mean,
        paired.standard_error,
    )


@eqx.filter_jit
def _bounds(key: Array, model: Any, proposal: Any, xs: Array) -> Array:
    return importance_bounds(key, model, proposal, xs, NUM_SAMPLES)
