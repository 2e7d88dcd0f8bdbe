"""Plans of runs by options, known without training; and data that such a run is careful with."""

import dataclasses
from collections import Counter
from functools import lru_cache

import numpy as np
import pytest

from aisle.data import Split, load
from aisle.errors import InputError
from aisle.learning import EarlyStopping
from aisle.runs import folder
from aisle.runs.config import to_json
from aisle.runs.networks import build_named
from aisle.runs.options import (
    DataOptions,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    TrainConfig,
)
from aisle.runs.training import _was_begun_with, plan_of, resume, train

pytestmark = pytest.mark.usefixtures("quick_compilation")


class StopError(Exception):
    pass


@pytest.fixture
def begun(monkeypatch, tmp_path, capsys):
    """Start a run up to its first update; return what is to be trained, and what was reported."""

    def begin(config):
        found = []

        def run(loop, params, *, resume):
            found.append(loop)
            raise StopError

        monkeypatch.setattr("aisle.learning.loop.Loop.run", run)
        monkeypatch.setattr("aisle.runs.networks.build_named", networks)
        with pytest.raises(StopError):
            train(config, tmp_path / "run", show_progress=False)
        return found[0], capsys.readouterr().err

    return begin


@lru_cache
def built(options, num_features):
    return build_named(options, np.full(num_features, 0.5), 0)


def networks(options, mean, seed):
    """Compile them once for all tests."""
    return built(options, len(mean))


def saved(folder, array):
    np.save(folder / "x.npy", array)
    return str(folder / "x.npy")


SMALL = ModelOptions(num_latents=2, num_hidden=4)
VAE = MethodOptions("vae")
REAL = ModelOptions(num_latents=2, num_hidden=4, likelihood="gaussian")


def planned(data, **options):
    config = TrainConfig(data, **options)
    seen = config.observations
    return plan_of(config, load(data, view=config.view(), num_valid=seen.num_valid))


def test_a_small_table_gets_enough_updates_and_a_batch_that_it_fills(tmp_path, capsys):
    """50 rows: 41 to train on, 4 for validation and 5 for testing."""
    data = saved(tmp_path, np.zeros((50, 3), np.float32))
    plan = planned(data)
    assert (plan.batch_size, plan.ends) == (41, (2500, 5000))
    reported = "aisle: batch_size is 128 but there are 41 examples: each batch has all of them\n"
    assert capsys.readouterr().err == reported
    assert planned(data, num_updates=7).ends == (3, 7)
    assert planned(data, num_epochs=7).ends == (3, 7)
    batches = OptimizerOptions(batch_size=20)
    assert planned(data, num_epochs=7, optimizer=batches).ends == (7, 14)
    # Whole epochs, of two updates each.
    assert planned(data, method=VAE, optimizer=batches).ends == (5000,)


def test_a_large_set_gets_a_hundred_epochs():
    assert planned("digits", optimizer=OptimizerOptions(batch_size=10)).ends == (6750, 13500)


def test_a_run_that_is_extended_keeps_its_phases():
    config, dataset = TrainConfig("digits", num_updates=9), load("digits")
    plan = plan_of(config, dataset, ends=(2, 5))
    assert plan.ends == (2, 9)
    assert [phase.share for phase in plan.recipe.phases] == [2, 3]
    # One update has no second half.
    assert plan_of(config, dataset, ends=(1,)).ends == (9,)
    with pytest.raises(InputError, match=r"9 updates .* planned for 10: a run can be extended"):
        plan_of(config, dataset, ends=(5, 10))


def test_a_run_is_that_of_the_same_options_and_hours_wherever_its_data_are(tmp_path):
    def config(place, **run):
        seen = DataOptions(data_dir=tmp_path / place)
        return TrainConfig("mnist", observations=seen, run=RunOptions(**run))

    begun, out = dataclasses.replace(config("here"), num_updates=10), tmp_path / "run"
    content = {"train": to_json(begun), "data": {"num_train": 1000}}
    folder.create(out, content | {"hours": 1.5})
    assert _was_begun_with(config("there", keep_checkpoints=9), 1.5, out)
    assert not _was_begun_with(config("here", seed=1), 1.5, out)
    assert not _was_begun_with(config("here"), 2.0, out)
    assert not _was_begun_with(begun, None, out)
    folder.create(tmp_path / "by updates", content)
    assert _was_begun_with(begun, None, tmp_path / "by updates")
    assert not _was_begun_with(config("here"), 1.5, tmp_path / "by updates")


def test_validation_data_choose_the_weights():
    plan = planned("digits", run=RunOptions(validate_every=2, patience=3))
    assert (plan.validation.keep, plan.validation.every) == ("best", 2)
    assert plan.callbacks == (EarlyStopping(3),)
    assert planned("digits", run=RunOptions(keep="last")).validation.keep == "last"
    assert planned("digits", observations=DataOptions(num_valid=0)).validation is None


def test_patience_needs_validation_data():
    none = DataOptions(num_valid=0)
    with pytest.raises(InputError, match="patience is 3 but there are no validation data"):
        planned("digits", observations=none, run=RunOptions(patience=3))


def test_a_part_called_valid_is_used_and_test_data_never(tmp_path, begun):
    parts = {"train": 0, "valid": 1, "test": 2}
    arrays = {name: np.full((20, 4), 0.1 * i, np.float32) for name, i in parts.items()}
    np.savez(tmp_path / "x.npz", **arrays)
    config = TrainConfig(str(tmp_path / "x.npz"), method=VAE, model=REAL)
    loop, _ = begun(config)
    trained = loop.feeder._split
    assert (len(trained), float(np.max(trained.take(np.arange(20))))) == (20, 0)
    held_out = loop.bounder.split
    assert len(held_out) == 20
    np.testing.assert_array_equal(held_out.take(np.arange(20)), arrays["valid"])


def test_parts_of_one_array_have_no_example_in_common(tmp_path, begun):
    data = saved(tmp_path, np.arange(100, dtype=np.float32)[:, None] + np.zeros(3, np.float32))
    loop, _ = begun(TrainConfig(data, method=VAE, model=REAL))
    trained = set(loop.feeder._split.rows)
    valid, test = set(loop.bounder.split.rows), set(load(data).test.rows)
    assert (len(trained), len(valid), len(test)) == (81, 9, 10)
    assert len(trained | valid | test) == 100


@pytest.mark.slow
def test_whole_numbers_are_never_divided_unasked(tmp_path, begun):
    values = np.random.default_rng(0).integers(0, 4, (50, 3)).astype(np.uint8)
    data = saved(tmp_path, values)
    loop, _ = begun(TrainConfig(data, method=VAE, model=REAL))
    seen = loop.feeder._split.observe(np.arange(5))
    assert seen.dtype == np.uint8
    np.testing.assert_array_equal(seen, loop.feeder._split.take(np.arange(5)))


@pytest.mark.slow
def test_grey_values_are_divided_when_asked(tmp_path, begun):
    values = np.random.default_rng(0).integers(0, 256, (50, 3)).astype(np.uint8)
    data = saved(tmp_path, values)
    grey = DataOptions(binarize="none", grey=True)
    loop, _ = begun(TrainConfig(data, method=VAE, model=REAL, observations=grey))
    seen = loop.feeder._split.observe(np.arange(5))
    np.testing.assert_allclose(seen, loop.feeder._split.take(np.arange(5)) / np.float32(255))


@pytest.mark.slow
def test_each_part_is_read_once_to_be_checked(monkeypatch, begun):
    read, chunks = Counter(), Split.chunks

    def counted(split, *size):
        read[len(split)] += 1
        return chunks(split, *size)

    monkeypatch.setattr(Split, "chunks", counted)
    begun(TrainConfig("digits", method=VAE, model=SMALL))
    # The second time for the mean, which the networks start from.
    assert read == {1350: 2, 150: 1, 297: 1}


@pytest.mark.parametrize("largest", [3, 200])
def test_values_that_are_no_probabilities_are_refused_with_the_way(tmp_path, begun, largest):
    data = saved(tmp_path, np.full((50, 3), largest, np.uint8))
    with pytest.raises(InputError, match=r"values from \d+ to \d+: drawing bits .*by --grey"):
        begun(TrainConfig(data, method=VAE, model=SMALL))


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        ([1.0, 1.0, 1.0], ""),
        ([1.0, 0.0, 1.0], "1 of 3 features have one value alone, the first of them column 1"),
        ([1e-9, 1e-9, 1e-9], "standardise them"),
        ([500.0, 500.0, 1.0], "standardise them"),
        # Though the median range is a usual one.
        ([0.03, 1.0, 300.0], "the values of column 0 range over 0"),
    ],
    ids=["usual", "constant", "small", "large", "mixed"],
)
def test_values_that_a_gaussian_is_not_made_for_are_reported(tmp_path, begun, factor, words):
    data = saved(tmp_path, np.random.default_rng(0).normal(size=(200, 3)) * factor)
    study = dataclasses.replace(REAL, network="study")
    _, reported = begun(TrainConfig(data, method=VAE, model=study))
    assert words in reported and reported.count("\n") == bool(words)


@pytest.mark.slow
def test_categories_as_columns_are_reported(tmp_path, begun):
    kinds = np.eye(3, dtype=np.float32)[np.random.default_rng(0).integers(0, 3, 200)]
    bits = np.random.default_rng(1).integers(0, 2, (200, 4)).astype(np.float32)
    data = saved(tmp_path, np.concatenate([bits, kinds], axis=1))
    _, reported = begun(TrainConfig(data, method=VAE, model=SMALL))
    assert "exactly one of the columns 4 to 6 is 1" in reported and reported.count("\n") == 1


@pytest.mark.slow
def test_chains_are_longer_in_the_second_half_and_in_what_is_added(tmp_path):
    method = MethodOptions("ais", 1, 3, late_temperatures=5)
    small = ModelOptions(num_latents=2, num_hidden=3)
    last = RunOptions(keep="last")
    config = TrainConfig("digits", num_updates=8, method=method, model=small, run=last)
    train(config, tmp_path / "run", show_progress=False)
    resume(tmp_path / "run", num_updates=11, show_progress=False)
    records = folder.read_metrics(tmp_path / "run")
    numbers = [len(record["step_size"]) for record in records if "step_size" in record]
    assert numbers == 4 * [3] + 7 * [5]
