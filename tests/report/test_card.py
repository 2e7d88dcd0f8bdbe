"""`aisle export` to a folder: weights, a card that says what was measured, and a picture."""

import json
import re

import equinox as eqx
import jax
import numpy as np
import pytest
from PIL import Image

import aisle
from aisle.data import load
from aisle.runs import checkpoints, folder
from aisle.runs.config import to_json
from aisle.runs.networks import build_named
from aisle.runs.opening import facts, open_run
from aisle.runs.options import ModelOptions, RunOptions, TrainConfig
from commands import assert_mistake, call, contents, run
from pages import write_evaluation

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run on digits, as three updates that change nothing leave it."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    model = ModelOptions(num_latents=2, num_hidden=4)
    config = TrainConfig("digits", num_updates=3, model=model, run=RunOptions(keep="last"))
    dataset = load("digits", view=config.view())
    networks = build_named(config.model, dataset.train.mean(), seed=1)
    folder.create(path, {"train": to_json(config), "data": facts(dataset), "ends": [3]})
    arrays = eqx.filter(networks, eqx.is_inexact_array)
    checkpoints.save(path, 3, {"state": {"params": arrays}})
    costs = {"bound": -30.0, "decoder_gradients": 12_345, "seconds": 6.0}
    (path / "metrics.jsonl").write_text(json.dumps({"update": 3, **costs}) + "\n")
    return path


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    about = {"split": "test", "update": 3, "num_examples": 20, "data": None}
    values = np.linspace(-25, -15, 20)
    write_evaluation(trained / "evaluations" / "own", values, about=about)
    old = {**about, "update": 2}
    write_evaluation(trained / "evaluations" / "of other weights", values - 50, about=old)
    path = tmp_path_factory.mktemp("exported") / "digits-model"
    assert call("export", trained, path) == 0
    return path


def test_the_folder_opens(trained, exported):
    assert sorted(p.name for p in exported.iterdir()) == [
        *("README.md", "model.safetensors", "samples.png"),
    ]
    run, (model, proposal) = open_run(trained), aisle.load(exported)
    for found, wanted in ((model, run.model), (proposal, run.proposal)):
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
    with Image.open(exported / "samples.png") as picture:
        assert picture.format == "PNG" and picture.width > 300


def test_the_card_says_what_the_run_knows(trained, exported):
    card = (exported / "README.md").read_text()
    stored = folder.read_config(trained)
    assert card.startswith("---\nlibrary_name: aisle\n")
    # A decoder of 2 latents, 4 hidden units and 64 pixels.
    assert "2 latents, the likelihood Bernoulli, 352 weights" in card
    assert "# digits-model\n" in card and "![Samples](samples.png)" in card
    # Of the evaluations, those of these weights.
    (row,) = re.findall(r"^\| (\d.*) \|$", card, re.MULTILINE)
    assert row == "20 of test | -20.00 +- 0.70 | 0.12 +- 0.03 on 7 examples | 2 | 4"
    for part, digest in stored["data"]["digests"].items():
        assert f"{part}: {stored['data'][f'num_{part}']:,} examples, digest `{digest}`" in card
    assert "12,345 gradients of the decoder in 6 seconds" in card and "- 3 updates" in card
    assert "aisle train digits --updates 3" in card
    assert f"jax {jax.__version__}" in card and "CC BY 4.0" in card
    assert str(trained.parent) not in card


def test_how_to_load_is_right(exported, monkeypatch, capsys):
    card = (exported / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(exported.parent)
    found = {}
    exec(code, found)
    assert found["x"].shape == (10, 64)


def test_without_an_evaluation_nothing_is_claimed(trained, tmp_path):
    import shutil

    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("evaluations"))
    assert call("export", tmp_path / "run", tmp_path / "out") == 0
    assert "Not measured" in (tmp_path / "out" / "README.md").read_text()


def test_a_folder_that_is_there_stays(trained, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    assert_mistake(run(capsys, "export", trained, tmp_path), "is there already")
    assert contents(tmp_path) == before


def test_nothing_is_left_of_an_export_that_fails(trained, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aisle.report.card.card", full)
    assert_mistake(run(capsys, "export", trained, tmp_path / "out"), "cannot write")
    assert list(tmp_path.iterdir()) == []
