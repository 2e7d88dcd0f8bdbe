"""Commands compile quickly, and once for this process and those that it starts."""

import os

import equinox as eqx
import jax
import pytest

from aisle.data import load
from aisle.experiments import training
from aisle.experiments.options import ModelOptions, OptimizerOptions, TrainConfig
from aisle.learning import checkpoints, run_directory
from aisle.models import one_layer

TINY = {"num_latents": 2, "num_hidden": 8}


@pytest.fixture(scope="module", autouse=True)
def compiled_once(quick_compilation):
    """Return the environment for processes to be like this one."""
    # As many devices as in this process, or other sums would be formed.
    values = quick_compilation | {"jax_num_cpu_devices": jax.device_count()}
    return os.environ | {name.upper(): str(value) for name, value in values.items()}


@pytest.fixture(scope="module")
def make_run(tmp_path_factory, compiled_once):
    """Return what makes the folder of a run, as three updates that change nothing leave it."""

    def make(data):
        folder = tmp_path_factory.mktemp("runs") / "run"
        dataset = load(data)
        optimizer = OptimizerOptions(batch_size=len(dataset.train))
        config = TrainConfig(data, 3, model=ModelOptions(**TINY), optimizer=optimizer)
        weights = one_layer(jax.random.key(1), dataset.train.mean(), **TINY)
        stored = {"train": training.to_json(config), "data": training._facts(dataset)}
        run_directory.create(folder, stored)
        checkpoints.save(folder, 3, {"params": eqx.filter(weights, eqx.is_inexact_array)})
        return folder

    return make


@pytest.fixture(scope="module")
def digits(make_run):
    """The folder of such a run on the digits."""
    return make_run("digits")


@pytest.fixture
def no_training(monkeypatch):
    """Fail instead of training for long where a mistake is not noticed."""

    def run(*_):
        raise AssertionError("training began")

    monkeypatch.setattr("aisle.learning.loop.make_chunk", run)
