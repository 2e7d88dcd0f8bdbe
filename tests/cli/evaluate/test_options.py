"""What the options of `aisle evaluate` ask the library for."""

from pathlib import Path

import equinox as eqx
import numpy as np
import pytest

from aisle.annealing import HMC, Kernel, schedules
from aisle.data import load
from aisle.evaluation import Certificate, Sampler
from aisle.runs import evaluating, opening
from aisle.runs.options import EvaluateConfig, SamplerOptions


class StopError(Exception):
    pass


@pytest.fixture
def asked(monkeypatch):
    """Run a command up to the evaluation, and return what it asks the library for."""

    def ask(*arguments):
        found = {}

        def log_likelihood(model, proposal, x, context=None, **options):
            found.update(options, model=model, proposal=proposal, x=x)
            if options["pilot_x"] is not None:
                found["pilot_x"] = options["pilot_x"].arrays
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
    return split.observe(indices), indices


def test_the_defaults(asked, digits):
    found = asked(digits)
    data = load("digits")
    xs, indices = observations(data.test, 297, of=297)
    np.testing.assert_array_equal(found["x"], xs)
    np.testing.assert_array_equal(found["indices"], indices)
    np.testing.assert_array_equal(found["pilot_x"], observations(data.train, 64, of=64)[0])
    opened = opening.open_run(digits)
    assert eqx.tree_equal((found["model"], found["proposal"]), (opened.model, opened.proposal))
    assert (found["sampler"], found["certificate"]) == (Sampler(), Certificate())
    assert (found["importance_samples"], found["seed"]) == (0, 0)
    assert found["out"].parent == digits / "evaluations"
    assert not found["out"].exists()


def test_the_other_split_and_start(asked, digits):
    found = asked(digits, "--split", "train", "--start", "prior", "--num-examples", 5, "-C", 3)
    data = load("digits")
    np.testing.assert_array_equal(found["x"], observations(data.train, 5, of=5)[0])
    np.testing.assert_array_equal(found["indices"], [0, 270, 540, 810, 1080])
    np.testing.assert_array_equal(found["pilot_x"], observations(data.valid, 64, of=64)[0])
    assert found["proposal"] is None
    assert found["sampler"].num_chains == 3


def test_the_validation_split_is_tuned_on_training_examples(asked, digits):
    found = asked(digits, "--split", "valid")
    data = load("digits")
    np.testing.assert_array_equal(found["x"], observations(data.valid, 150, of=150)[0])
    np.testing.assert_array_equal(found["pilot_x"], observations(data.train, 64, of=64)[0])


def test_every_option_of_the_chains_reaches_them(asked, digits):
    found = asked(digits, "--kernel", "paper", "--target-accept", "0.7")
    assert found["sampler"].kernel == Kernel.paper(is_long=True, target_accept=0.7)
    chains = ("-C", 3, "-T", 7, "-L", 6, "--schedule", "linear", "--refit", 2, "--memory-mb", 9)
    moves = ("--precondition", 0.5, "--momentum-refresh", 0.9, "--seed", 4)
    rest = ("--bdmc-examples", 5, "--tolerance", 0.2, "--max-seconds", 30)
    found = asked(digits, *chains, *moves, *rest, "--importance-samples", 8)
    hmc = HMC(num_leapfrog=6, refresh=0.9, precondition=0.5)
    kernel = Kernel(schedules.linear, hmc, 0.8)
    assert found["sampler"] == Sampler(3, 7, kernel, refit=2, memory_mb=9)
    assert found["certificate"] == Certificate(5, 0.2, 30.0)
    assert (found["importance_samples"], found["seed"]) == (8, 4)


def test_other_data_of_the_same_shape(asked, tmp_path, digits):
    values = np.random.default_rng(0).random((30, 64)).astype(np.float32)
    np.savez(tmp_path / "other.npz", train=values[:20], test=np.round(values[20:]))
    found = asked(digits, "--data", tmp_path / "other.npz")
    np.testing.assert_array_equal(found["x"], np.round(values[20:]))
    assert found["pilot_x"].shape == (18, 64)


@pytest.mark.parametrize("name", ["other.npy", "other.npz"])
def test_all_of_an_array_by_itself(asked, tmp_path, digits, name):
    values = np.round(np.random.default_rng(0).random((30, 64))).astype(np.float32)
    save = np.save if name.endswith("npy") else np.savez
    save(tmp_path / name, values)
    found = asked(digits, "--data", tmp_path / name)
    np.testing.assert_array_equal(found["x"], values)
    assert found["pilot_x"] is None


@pytest.mark.parametrize(
    "num_valid", [None, *(pytest.param(number, marks=pytest.mark.slow) for number in (5, 0))]
)
def test_of_what_was_trained_on_only_the_tenth_that_was_held_out(
    asked, tmp_path, make_run, num_valid
):
    values = np.round(np.random.default_rng(0).random((30, 64))).astype(np.float32)
    np.save(tmp_path / "mine.npy", values)
    folder = make_run(str(tmp_path / "mine.npy"), num_valid)
    (tmp_path / "mine.npy").rename(tmp_path / "moved.npy")
    test = load(tmp_path / "moved.npy").test
    found = asked(folder, "--data", tmp_path / "moved.npy")
    np.testing.assert_array_equal(found["x"], values[test.rows])
    # Step sizes are tuned on none of these.
    pilot = found["pilot_x"]
    assert len(pilot) == 25
    assert not any(np.array_equal(one, other) for one in pilot for other in found["x"])


def test_the_folder_is_named_by_what_the_numbers_depend_on():
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
        "data_dir": Path("elsewhere"),
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
