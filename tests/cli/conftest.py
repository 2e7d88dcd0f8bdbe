"""Commands compile quickly, and once for this process and those that it starts."""

import os

import equinox as eqx
import jax
import pytest

from aisle.cli import main
from aisle.data import load
from aisle.runs import checkpoints, folder
from aisle.runs.config import to_json
from aisle.runs.networks import build_named
from aisle.runs.opening import facts
from aisle.runs.options import DataOptions, ModelOptions, RunOptions, TrainConfig

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

    def make(data, num_valid=None, likelihood="bernoulli"):
        path = tmp_path_factory.mktemp("runs") / "run"
        config = TrainConfig(
            data,
            num_updates=3,
            model=ModelOptions(**TINY, likelihood=likelihood),
            observations=DataOptions(num_valid=num_valid),
            run=RunOptions(keep="last"),
        )
        dataset = load(data, view=config.view(), num_valid=num_valid)
        weights = build_named(config.model, dataset.train.mean(), seed=1)
        folder.create(path, {"train": to_json(config), "data": facts(dataset), "ends": [1, 3]})
        arrays = eqx.filter(weights, eqx.is_inexact_array)
        checkpoints.save(path, 3, {"state": {"params": arrays}})
        return path

    return make


@pytest.fixture(scope="module")
def digits(make_run):
    """The folder of such a run on the digits."""
    return make_run("digits")


@pytest.fixture
def first_weights(monkeypatch):
    """Return what begins a run and returns the first weights of its networks, without training."""

    class StopError(Exception):
        pass

    def begin(*arguments):
        found = []

        def run(loop, params, *, resume):
            found.append(eqx.combine(params, loop.stages[0].step.static))
            raise StopError

        monkeypatch.setattr("aisle.learning.loop.Loop.run", run)
        with pytest.raises(StopError):
            main(list(map(str, ("train", *arguments))))
        return found[0]

    return begin


@pytest.fixture
def no_training(monkeypatch):
    """Fail instead of training for long where a mistake is not noticed."""

    def run(*_):
        raise AssertionError("training began")

    monkeypatch.setattr("aisle.learning.loop.make_chunk", run)
