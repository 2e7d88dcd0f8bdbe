"""Which examples of a run's data are evaluated, and which ones its step sizes are tuned on."""

from pathlib import Path

import numpy as np
import pytest

from aisle.data import Dataset, load
from aisle.errors import InputError
from aisle.runs.evaluating import parts
from aisle.runs.opening import Run, facts
from aisle.runs.options import EvaluateConfig


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100.0)[:, None])
    return str(tmp_path / "x.npy")


def run_on(dataset):
    return Run(Path("run"), {"data": facts(dataset)}, None, (1,), 10, None, None)


def values(split):
    return set(split.take(np.arange(len(split))).ravel())


@pytest.mark.parametrize(
    ("split", "pilot"), [("test", "train"), ("valid", "train"), ("train", "valid")]
)
def test_the_pilot_has_other_examples_and_never_test_data(file, split, pilot):
    dataset = load(file)
    found = parts(run_on(dataset), EvaluateConfig(split=split), dataset)
    assert values(found.split) == values(getattr(dataset, split))
    assert values(found.pilot) == values(getattr(dataset, pilot))
    assert not values(found.pilot) & (values(dataset.test) | values(found.split))


def test_without_validation_data_the_pilot_of_training_data_is_simulated(file):
    dataset = load(file, num_valid=0)
    assert parts(run_on(dataset), EvaluateConfig(split="train"), dataset).pilot is None
    with pytest.raises(InputError, match="split is 'valid' but the run has no validation data"):
        parts(run_on(dataset), EvaluateConfig(split="valid"), dataset)


def test_an_array_of_other_data_is_evaluated_whole_and_its_pilot_is_simulated(file, tmp_path):
    dataset = load(file)
    np.save(tmp_path / "other.npy", np.arange(50.0)[:, None] - 100)
    other = str(tmp_path / "other.npy")
    found = parts(run_on(dataset), EvaluateConfig(data=other), load(other))
    assert len(found.split) == 50
    assert found.pilot is None
    with pytest.raises(InputError, match=r"split is 'train' but .* has no part called test"):
        parts(run_on(dataset), EvaluateConfig(data=other, split="train"), load(other))
    # The file that the run was trained on has the same tenth held out again.
    same = parts(run_on(dataset), EvaluateConfig(data=file), load(file))
    assert values(same.split) == values(dataset.test)


def test_parts_of_an_npz_are_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    sizes = {"train": 20, "valid": 5, "test": 7}
    np.savez(tmp_path / "x.npz", **{name: rng.random((n, 3)) for name, n in sizes.items()})
    dataset = load(tmp_path / "x.npz")
    assert isinstance(dataset, Dataset)
    config = EvaluateConfig(data=str(tmp_path / "x.npz"))
    found = parts(run_on(load(tmp_path / "x.npz")), config, dataset)
    assert (len(found.split), len(found.pilot)) == (7, 20)
