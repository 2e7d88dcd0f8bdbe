"""What the options of `aisle evaluate` ask the library for."""

import equinox as eqx
import numpy as np
import pytest

from aisle.data import load
from aisle.experiments import evaluating, training
from aisle.experiments.options import EvaluateConfig, SamplerOptions
from aisle.learning.observations import observe_rows


class StopError(Exception):
    pass


@pytest.fixture
def asked(monkeypatch):
    """Run a command up to the evaluation, and return what it asks the library for."""

    def ask(*arguments):
        found = {}

        def log_likelihood(model, proposal, x, **options):
            found.update(options, model=model, proposal=proposal, x=x)
            raise StopError

        monkeypatch.setattr(evaluating, "log_likelihood", log_likelihood)
        with pytest.raises(StopError):
            evaluate_command(*arguments)
        return found

    return ask


def evaluate_command(*arguments):
    from aisle.cli import main

    main(list(map(str, ("evaluate", *arguments))))


def observations(split, number, *, of):
    indices = np.arange(number) * len(split) // of
    return observe_rows(split, indices, "static"), indices


def test_the_defaults(asked, digits):
    found = asked(digits)
    data = load("digits")
    xs, indices = observations(data.test, 297, of=297)
    np.testing.assert_array_equal(found["x"], xs)
    np.testing.assert_array_equal(found["indices"], indices)
    np.testing.assert_array_equal(found["pilot_x"], observations(data.train, 64, of=64)[0])
    opened = training.open_run(digits)
    assert eqx.tree_equal((found["model"], found["proposal"]), (opened.model, opened.proposal))
    defaults = {
        "num_chains": 16,
        "num_temperatures": 500,
        "num_leapfrog": 4,
        "schedule": "sigmoid",
        "precondition": 0.75,
        "momentum_refresh": 0.6,
        "target_accept": 0.8,
        "refit": 0,
        "bdmc_examples": 100,
        "tolerance": None,
        "max_seconds": None,
        "importance_samples": 0,
        "seed": 0,
    }
    assert {name: found[name] for name in defaults} == defaults
    assert found["out"].parent == digits / "evaluations"
    assert not found["out"].exists()


def test_the_other_split_and_start(asked, digits):
    found = asked(digits, "--split", "train", "--start", "prior", "--num-examples", 5, "-C", 3)
    data = load("digits")
    np.testing.assert_array_equal(found["x"], observations(data.train, 5, of=5)[0])
    np.testing.assert_array_equal(found["indices"], [0, 300, 600, 900, 1200])
    np.testing.assert_array_equal(found["pilot_x"], observations(data.test, 64, of=64)[0])
    assert found["proposal"] is None
    assert found["num_chains"] == 3
    assert found["precondition"] == 0


def test_the_kernel_of_the_paper(asked, digits):
    found = asked(digits, "--kernel", "paper", "--target-accept", "0.7")
    names = ("num_leapfrog", "schedule", "precondition", "momentum_refresh", "target_accept")
    assert [found[name] for name in names] == [10, "sigmoid", 0, 1, 0.7]


def test_other_data_of_the_same_shape(asked, tmp_path, digits):
    values = np.random.default_rng(0).random((30, 64)).astype(np.float32)
    np.savez(tmp_path / "other.npz", train=values[:20], test=np.round(values[20:]))
    found = asked(digits, "--data", tmp_path / "other.npz")
    np.testing.assert_array_equal(found["x"], np.round(values[20:]))
    assert found["pilot_x"].shape == (20, 64)


@pytest.mark.parametrize("name", ["other.npy", "other.npz"])
def test_all_of_an_array_by_itself(asked, tmp_path, digits, name):
    values = np.round(np.random.default_rng(0).random((30, 64))).astype(np.float32)
    save = np.save if name.endswith("npy") else np.savez
    save(tmp_path / name, values)
    found = asked(digits, "--data", tmp_path / name)
    np.testing.assert_array_equal(found["x"], values)
    assert found["pilot_x"] is None


def test_of_what_was_trained_on_only_the_tenth_that_was_held_out(asked, tmp_path, make_run):
    values = np.round(np.random.default_rng(0).random((30, 64))).astype(np.float32)
    np.save(tmp_path / "mine.npy", values)
    folder = make_run(str(tmp_path / "mine.npy"))
    (tmp_path / "mine.npy").rename(tmp_path / "moved.npy")
    found = asked(folder, "--data", tmp_path / "moved.npy")
    assert found["x"].shape == (3, 64)
    assert found["pilot_x"].shape == (27, 64)


def test_the_folder_is_named_by_what_the_figures_depend_on():
    def name(update=3, **changes):
        sampler = {k: changes.pop(k) for k in list(changes) if k in SamplerOptions.__annotations__}
        return evaluating.folder_name(
            EvaluateConfig(**changes, sampler=SamplerOptions(**sampler)), update
        )

    assert name().startswith("test1000-C16-T500-L4-")
    free = {
        "bdmc_examples": 5,
        "tolerance": 0.1,
        "max_seconds": 3.0,
        "importance_samples": 7,
        "memory_mb": 9,
        "whole_split": 5,
    }
    assert name(**free) == name()
    assert name(num_leapfrog=4, momentum_refresh=0.6) == name()
    others = [
        {"update": 4},
        {"split": "train"},
        {"num_examples": 10},
        {"start": "prior"},
        {"data": "mnist"},
        {"num_chains": 4},
        {"num_temperatures": 50},
        {"num_leapfrog": 2},
        {"kernel": "paper"},
        {"schedule": "linear"},
        {"precondition": 0.5},
        {"momentum_refresh": 0.5},
        {"target_accept": 0.5},
        {"refit": 5},
        {"seed": 1},
    ]
    assert len({name(), *(name(**changes) for changes in others)}) == len(others) + 1
