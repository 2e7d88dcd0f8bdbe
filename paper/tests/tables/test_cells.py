"""Cells and their files; training and evaluating are stand-ins, as `tests/core` has the real."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from aisle.errors import InputError
from aisle.statistics import Mean
from commands import contents
from paper.core import chains, runs
from paper.tables import cells, recipes
from paper.tables.cells import Cell
from paper.tables.plans import Evaluation, Method, Networks, Optimizer, Training

NETWORKS = Networks(num_latents=2, num_hidden=4)
HOW = Evaluation(num_examples=6, num_chains=2, num_temperatures=3, bdmc_examples=4)
DIGESTS = {"train": "a", "test": "b"}


def plan(method):
    return Training("digits", 1, method, NETWORKS, Optimizer(batch_size=500), seed=2)


START = Cell("start", plan(Method("vae")))
CELL = Cell("dreg", plan(Method("dreg", 2)), HOW, "start", -20.5, "so it is")
CHAINS = Cell("chains", plan(Method("ais", 5, 7, kernel="paper")), HOW)
WHOLE = Mean(-21.0, 0.5, 300)
FOUND = runs.Evaluated(
    WHOLE, Mean(0.125, 0.1, 4), np.arange(6.0), Mean(2.5, 0.8, 6), Mean(-30.0, 1.0, 6), 2, 4.0
)


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """Train and evaluate at once; return what was asked."""
    asked = []

    def train(plan, folder, start):
        asked.append(("train", folder.name, start))
        return runs.TrainedRun(folder, 3, 6000, 1.5, DIGESTS)

    def evaluate(folder, plan):
        asked.append(("evaluate", folder.name, plan))
        return FOUND

    def export(run, file, about):
        file.write_text(json.dumps(about))

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setattr(runs, "evaluate", evaluate)
    monkeypatch.setattr(runs, "export", export)
    monkeypatch.setattr(runs, "read_about", lambda file: json.loads(file.read_text()))
    return asked


@pytest.fixture
def done(tmp_path, calls):
    """A start, and a cell that starts from it."""
    cells.train_cell(START, tmp_path)
    found = cells.run_cell(CELL, tmp_path)
    calls.clear()
    return tmp_path, found


def test_a_cell_starts_from_the_weights_of_its_start(tmp_path, calls):
    cells.train_cell(START, tmp_path)
    cells.run_cell(CELL, tmp_path)
    file = tmp_path / "cells" / "start.safetensors"
    assert calls == [
        ("train", "start", None),
        ("train", "dreg", file),
        ("evaluate", "dreg", HOW),
    ]
    assert file.exists() and (tmp_path / "cells" / "dreg.safetensors").exists()


def test_a_result_says_what_was_found(done):
    _, (result, log_p, digests) = done
    np.testing.assert_array_equal(log_p, FOUND.log_p)
    assert digests == DIGESTS
    assert (result.log_likelihood, result.gap) == (WHOLE, FOUND.gap)
    assert (result.elbo, result.active_units) == (FOUND.elbo, 2)
    assert (result.cell, result.data, result.method) == ("dreg", "digits", "dreg")
    assert (result.num_samples, result.num_temperatures) == (2, None)
    assert (result.num_leapfrog, result.kernel) == (None, None)
    assert (result.start, result.paper, result.note) == ("start", -20.5, "so it is")
    assert (result.seed, result.difference, result.short) == (2, -0.5, None)
    assert (result.updates, result.decoder_gradients, result.seconds) == (3, 6000, 1.5)
    assert result.command == runs.command(CELL.training, "start")


def test_a_result_of_chains_names_their_kernel(tmp_path):
    result = cells.run_cell(CHAINS, tmp_path).result
    assert (result.num_samples, result.num_temperatures) == (5, 7)
    assert (result.num_leapfrog, result.kernel) == (5, "paper")
    assert (result.paper, result.difference) == (None, None)


def test_a_result_may_show_how_tight_short_chains_are(tmp_path, calls):
    short = recipes.one_chain(HOW)
    result = cells.run_cell(CELL._replace(short=short), tmp_path).result
    assert result.short == FOUND.mean
    assert calls[-1] == ("evaluate", "dreg", short)
    assert (short.num_chains, short.num_temperatures, short.num_leapfrog) == (1, 11, 2)
    assert (short.num_examples, short.bdmc_examples) == (6, 0)


def test_a_finished_cell_is_not_evaluated_again(done, calls):
    out, before = done
    after = cells.run_cell(CELL, out)
    assert after.result == before.result
    np.testing.assert_array_equal(after.log_p, before.log_p)
    # Its weights may be needed.
    assert [call[0] for call in calls] == ["train"]


def test_what_was_found_is_enough_elsewhere(done, tmp_path_factory):
    out, before = done
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert cells.finished(CELL, elsewhere) is None
    assert not cells.has_weights(START, elsewhere)
    shutil.copytree(out / "cells", elsewhere / "cells")
    found = cells.finished(CELL, elsewhere)
    assert (found.result, found.digests) == (before.result, DIGESTS)
    np.testing.assert_array_equal(found.log_p, before.log_p)
    assert cells.has_weights(START, elsewhere)


def test_a_preset_that_the_method_does_not_use_may_change(done, monkeypatch, tmp_path):
    out, before = done
    cells.run_cell(CHAINS, out)
    other = chains.TRAINING["tuned"]._replace(target_accept=0.7)
    monkeypatch.setitem(chains.TRAINING, "tuned", other)
    assert cells.finished(CELL, out).result == before.result
    assert cells.finished(CHAINS, out) is not None
    other = chains.TRAINING["paper"]._replace(target_accept=0.7)
    monkeypatch.setitem(chains.TRAINING, "paper", other)
    with pytest.raises(InputError, match="has other settings"):
        cells.finished(CHAINS, out)


def test_the_command_of_a_cell_follows_the_present_defaults(done, monkeypatch):
    out, before = done
    monkeypatch.setattr(runs, "command", lambda plan, start: f"{start} {plan.data}")
    assert cells.finished(CELL, out).result == before.result._replace(command="start digits")


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}}', '{"settings": {}, "row": {}}'])
def test_a_damaged_file_is_reported(tmp_path, text):
    file = tmp_path / "cells" / "dreg.json"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(InputError, match=r"dreg.json is damaged \(.*\): remove it, or copy"):
        cells.finished(CELL, tmp_path)


OTHERS = [
    CELL._replace(training=dataclasses.replace(CELL.training, num_epochs=2)),
    CELL._replace(start=None),
    CELL._replace(evaluation=dataclasses.replace(HOW, num_examples=7)),
]


@pytest.mark.parametrize("cell", OTHERS)
def test_what_another_plan_has_found_is_refused(done, cell):
    before = contents(done[0])
    with pytest.raises(InputError, match=r"dreg\.json has other settings: choose another --out"):
        cells.finished(cell, done[0])
    assert contents(done[0]) == before


def test_weights_of_another_plan_are_refused(done):
    other = START._replace(training=dataclasses.replace(START.training, num_epochs=2))
    for cell in (other, START._replace(start="first")):
        with pytest.raises(InputError, match=r"start\.safetensors has other settings: choose"):
            cells.has_weights(cell, done[0])


def test_weights_that_a_table_has_not_written_are_refused(done):
    file = done[0] / "cells" / "start.safetensors"
    file.write_text('{"model": {}, "shape": [8, 8]}')
    with pytest.raises(InputError, match=rf"^{file} is not of a cell of this version .*remove it$"):
        cells.has_weights(START, done[0])


def test_a_difference_is_that_of_the_same_examples(done):
    result, log_p, _ = done[1]
    better = cells.FinishedCell(result, log_p + np.array([1, 2, 3, 1, 2, 3]))
    gain = cells.difference(better, done[1])
    assert gain.mean == pytest.approx(2)
    assert gain.standard_error == pytest.approx(np.std([1, 2, 3, 1, 2, 3], ddof=1) / 6**0.5)


def test_examples_of_other_data_are_not_compared(done):
    _, finished = done
    other = finished._replace(digests=DIGESTS | {"test": "another"})
    assert cells.difference(finished, other) is None
    # What was recorded before digests were is taken at its word.
    assert cells.difference(finished._replace(digests=None), other).mean == 0


def test_a_result_survives_its_file(done):
    out, (result, *_) = done
    content = json.loads((Path(out) / "cells" / "dreg.json").read_text())
    assert content["row"] == json.loads(json.dumps(cells.as_plain(result)))
    assert content["packages"]["jax"]
