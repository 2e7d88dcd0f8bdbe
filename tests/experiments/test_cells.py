import dataclasses
import json
import shutil
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest

from aisle.annealing import presets
from aisle.errors import InputError, Interrupted
from aisle.experiments import cells, commands, evaluating, recipes, training
from aisle.experiments.cells import Cell
from aisle.experiments.options import (
    EvaluateConfig,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    SamplerOptions,
    TrainConfig,
)
from aisle.learning import run_directory

NETWORKS = ModelOptions(num_latents=2, num_hidden=4)
FAST = OptimizerOptions(batch_size=500)
HOW = EvaluateConfig(
    num_examples=6, sampler=SamplerOptions(num_chains=2, num_temperatures=3, bdmc_examples=4)
)


def make(method, **options):
    return TrainConfig("digits", 1, method, NETWORKS, optimizer=FAST, **options)


START = Cell("start", make(MethodOptions("vae", num_samples=1)))
CELL = Cell("dreg", make(MethodOptions("dreg", num_samples=2)), HOW, "start", -20.5, "so it is")
CHAINS = MethodOptions("ais", num_samples=1, num_temperatures=2, kernel="paper")


@pytest.fixture(scope="module")
def done(tmp_path_factory, quick_compilation):
    """A start, and a cell that starts from it."""
    out = tmp_path_factory.mktemp("table")
    cells.train_cell(START, out)
    return out, cells.run_cell(CELL, out)


def test_a_cell_starts_from_its_start(done):
    out, _ = done
    file = training.open_config(out / "dreg").model.init_from
    assert file == out / "cells" / "start.safetensors"
    run = training.open_run(out / "start")
    assert eqx.tree_equal(training.load_weights(file), (run.model, run.proposal))
    first, second = (training.open_run(out / name).model for name in ("start", "dreg"))
    steps = [
        np.abs(a.weight - b.weight).max()
        for a, b in zip(first.decoder.layers, second.decoder.layers, strict=True)
    ]
    # Three updates of Adam at 0.001, and nothing but those.
    assert 0 < max(steps) < 0.0031


def test_a_row_says_what_was_found(done):
    out, (row, log_p, _) = done
    found = evaluating.evaluate(out / "dreg", HOW)[0]
    np.testing.assert_array_equal(log_p, found.log_p)
    assert row.log_likelihood == found.estimate
    assert row.gap == found.bdmc.gap
    assert (row.cell, row.data, row.method, row.num_samples) == ("dreg", "digits", "dreg", 2)
    assert (row.num_temperatures, row.num_leapfrog, row.kernel) == (None, None, None)
    assert (row.start, row.paper, row.note, row.seed) == ("start", -20.5, "so it is", 0)
    assert row.difference == found.estimate.mean + 20.5
    assert (row.updates, row.decoder_gradients) == (3, 3 * 500 * 4)
    assert row.seconds > 0


def test_a_row_may_show_how_tight_short_chains_are(done):
    out, (row, *_) = done
    assert row.short is None
    (out / "cells" / "dreg.json").rename(out / "kept")
    short = recipes.one_chain(HOW)
    again = cells.run_cell(CELL._replace(short=short), out)
    (out / "kept").rename(out / "cells" / "dreg.json")
    assert again.row._replace(short=None) == row
    assert again.row.short == evaluating.evaluate(out / "dreg", short)[0].estimate
    sampler = short.sampler
    assert (sampler.num_chains, sampler.num_temperatures, sampler.num_leapfrog) == (1, 11, 2)


def test_a_finished_cell_is_not_run_again(done, monkeypatch):
    out, before = done
    monkeypatch.setattr(training, "train", None)
    monkeypatch.setattr(training, "resume", None)
    monkeypatch.setattr(cells, "evaluate", None)
    after = cells.run_cell(CELL, out)
    assert after.row == before.row
    np.testing.assert_array_equal(after.log_p, before.log_p)
    cells.train_cell(START, out)


def test_what_was_found_is_enough_elsewhere(done, tmp_path):
    out, before = done
    shutil.copytree(out / "cells", tmp_path / "cells")
    found = cells.finished(CELL, tmp_path)
    assert found.row == before.row
    np.testing.assert_array_equal(found.log_p, before.log_p)


def test_a_cell_found_elsewhere_is_trained_for_its_weights_alone(done, monkeypatch, tmp_path):
    out, before = done
    for name in ("cells", "start"):
        shutil.copytree(out / name, tmp_path / name)
    monkeypatch.setattr(cells, "evaluate", None)
    assert cells.run_cell(CELL, tmp_path).row == before.row
    first, second = (training.open_run(folder / "dreg").model for folder in (out, tmp_path))
    assert eqx.tree_equal(first, second)


def test_weights_are_enough_to_start_from_elsewhere(done, tmp_path):
    out, _ = done
    assert not cells.has_weights(START, tmp_path)
    (tmp_path / "cells").mkdir()
    shutil.copy(out / "cells" / "start.safetensors", tmp_path / "cells")
    assert cells.has_weights(START, tmp_path)
    run, other = (cells.train_cell(CELL, folder) for folder in (out, tmp_path))
    assert eqx.tree_equal((run.model, run.proposal), (other.model, other.proposal))
    assert not (tmp_path / "start").exists()


def test_weights_of_a_run_that_has_no_file_of_them_are_written(done, tmp_path):
    out, _ = done
    shutil.copytree(out / "start", tmp_path / "start")
    cells.train_cell(START, tmp_path)
    file = Path("cells") / "start.safetensors"
    assert (tmp_path / file).read_bytes() == (out / file).read_bytes()


def test_a_preset_that_the_method_does_not_use_may_change(done, monkeypatch):
    out, before = done
    other = presets.TRAINING["tuned"]._replace(schedule="sigmoid")
    monkeypatch.setitem(presets.TRAINING, "tuned", other)
    assert cells.finished(CELL, out).row == before.row
    cells.train_cell(START, out)


def test_the_command_of_a_cell_follows_the_present_defaults(done, monkeypatch):
    out, before = done
    monkeypatch.setattr(cells.commands, "train", lambda config, start: f"{start} {config.data}")
    assert cells.finished(CELL, out).row == before.row._replace(command="start digits")


@pytest.mark.parametrize("name", ["ais", "mh-hmc"])
def test_what_the_chains_of_a_method_use_is_compared(name):
    def essence(**changes):
        return cells._essence(training.complete(make(MethodOptions(name, 2, 3, **changes))))

    assert essence(kernel="paper") != essence()
    assert essence(num_leapfrog=3) != essence()
    # The chains of MH-HMC are at the posterior from the first move on.
    assert (essence(schedule="sigmoid") != essence()) == (name == "ais")


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}}', '{"settings": {}, "row": {}}'])
def test_a_damaged_file_is_told(tmp_path, text):
    file = tmp_path / "cells" / "dreg.json"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(InputError, match=r"dreg.json is damaged \(.*\): remove it, or copy"):
        cells.finished(CELL, tmp_path)


def test_a_kill_before_the_first_checkpoint_is_gone_on_with(done, tmp_path):
    out, _ = done
    (tmp_path / "start").mkdir()
    shutil.copy(out / "start" / "config.json", tmp_path / "start")
    assert cells.train_cell(START, tmp_path).update == 3


OTHERS = [
    CELL._replace(config=dataclasses.replace(CELL.config, num_epochs=2)),
    CELL._replace(start=None),
    CELL._replace(evaluation=dataclasses.replace(HOW, num_examples=7)),
]


@pytest.mark.parametrize("cell", OTHERS)
def test_other_settings_are_refused(done, cell):
    with pytest.raises(InputError, match=r"dreg(\.json)? has other settings: choose another --out"):
        cells.run_cell(cell, done[0])


def test_an_option_of_evaluation_that_came_later_had_its_default(done, tmp_path):
    (tmp_path / "cells").mkdir()
    file = tmp_path / "cells" / "dreg.json"
    content = json.loads((done[0] / "cells" / "dreg.json").read_text())
    del (
        content["settings"]["evaluate"]["sampler"]["refit"],
        content["settings"]["evaluate"]["start"],
    )
    file.write_text(json.dumps(content))
    assert cells.finished(CELL, tmp_path) is not None
    refitted = dataclasses.replace(HOW, sampler=dataclasses.replace(HOW.sampler, refit=5))
    for other in (refitted, dataclasses.replace(HOW, start="prior")):
        with pytest.raises(InputError, match="has other settings"):
            cells.finished(CELL._replace(evaluation=other), tmp_path)


def test_other_settings_of_training_are_refused(done):
    other = START._replace(config=dataclasses.replace(START.config, num_epochs=2))
    with pytest.raises(InputError, match="start has other settings"):
        cells.train_cell(other, done[0])
    with pytest.raises(InputError, match=r"start\.safetensors has other settings: choose another"):
        cells.has_weights(other, done[0])
    with pytest.raises(InputError, match="has other settings"):
        cells.has_weights(START._replace(start="first"), done[0])


def test_weights_that_a_table_has_not_written_are_told(done, tmp_path):
    file = tmp_path / "cells" / "start.safetensors"
    file.parent.mkdir()
    training.export_run(training.open_run(done[0] / "start"), file)
    with pytest.raises(InputError, match=rf"^{file} is not of a cell of this version .*remove it$"):
        cells.has_weights(START, tmp_path)


def test_an_interruption_ends_the_table(done, monkeypatch, tmp_path):
    real = training.train

    def interrupted(*arguments):
        return real(*arguments)._replace(signal_number=15)

    monkeypatch.setattr(training, "train", interrupted)
    with pytest.raises(Interrupted, match="in start; the same command goes on") as caught:
        cells.train_cell(START, tmp_path)
    assert caught.value.signal_number == 15
    # What is there is gone on with.
    assert cells.train_cell(START, tmp_path).update == 3


def test_a_difference_is_that_of_the_same_examples(done):
    row, log_p, _ = done[1]
    better = cells.Finished(row, log_p + np.array([1, 2, 3, 1, 2, 3]))
    gain = cells.difference(better, done[1])
    assert gain.mean == pytest.approx(2)
    assert gain.standard_error == pytest.approx(np.std([1, 2, 3, 1, 2, 3], ddof=1) / 6**0.5)


def test_examples_of_other_data_are_not_compared(done):
    out, finished = done
    digests = run_directory.read_config(out / "dreg")["data"]["digests"]
    assert finished.digests == cells.finished(CELL, out).digests == digests
    other = finished._replace(digests=digests | {"test": "another"})
    assert cells.difference(finished, other) is None
    # What was recorded before digests were is taken at its word.
    assert cells.difference(finished._replace(digests=None), other).mean == 0


def test_the_command_says_what_differs_from_the_defaults():
    config = make(CHAINS)
    assert commands.train(config, "first") == (
        "aisle train digits --epochs 1 --num-samples 1 --num-temperatures 2 --kernel paper "
        "--num-latents 2 --num-hidden 4 --batch-size 500 --init-from first"
    )


def test_a_command_for_others_names_no_folder():
    config = make(CHAINS)
    placed = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, init_from=Path("/elsewhere/first")),
        observations=dataclasses.replace(config.observations, data_dir=Path("/elsewhere")),
    )
    assert commands.train_anywhere(placed) == commands.train(config, "first")
    assert commands.train_anywhere(config) == commands.train(config)


def test_the_row_survives_its_file(done):
    out, (row, *_) = done
    content = json.loads((out / "cells" / "dreg.json").read_text())
    assert content["row"] == json.loads(json.dumps(cells.as_plain(row)))
