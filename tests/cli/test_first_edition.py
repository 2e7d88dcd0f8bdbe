"""Runs and weights of the first edition on the command line: see tests/fixtures/first_edition."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle import data
from aisle.runs import evaluating
from aisle.runs.opening import load, load_data, open_run
from commands import assert_mistake, contents, run

FILES = Path(__file__).parents[1] / "fixtures" / "first_edition"
EXPECTED = json.loads((FILES / "expected.json").read_text())


@pytest.mark.parametrize("name", ["averaged", "plain", "averaged.safetensors"])
def test_it_is_opened_with_the_weights_that_it_used(name):
    path, expected = FILES / name, EXPECTED[name]
    if path.is_dir():
        opened = open_run(path)
        model, proposal = opened.model, opened.proposal
        assert opened.update == opened.num_planned == expected["update"]
    else:
        model, proposal = load(path)
    x, z = jnp.array(EXPECTED["x"], jnp.float32), jnp.array(EXPECTED["z"])
    found = {
        "log_likelihood": model.log_likelihood(x, z),
        "log_prior": model.log_prior(z),
        "log_proposal": proposal(x).log_prob(z),
    }
    for name, value in found.items():
        assert float(value) == pytest.approx(expected[name], rel=1e-6)
    size = sum(leaf.size for leaf in jax.tree.leaves((model, proposal)))
    assert size == expected["num_weights"]


def test_its_data_are_those_that_it_was_trained_on():
    """All 1,500 digits: nothing was set aside for validation."""
    dataset = load_data(open_run(FILES / "plain"))
    assert (len(dataset.train), dataset.valid, len(dataset.test)) == (1500, None, 297)


def test_it_is_evaluated_on_its_test_data(capsys, tmp_path, monkeypatch):
    asked = {}

    def log_likelihood(model, proposal, x, context, **options):
        asked.update(options, x=x)
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluating, "log_likelihood", log_likelihood)
    assert run(capsys, "evaluate", FILES / "averaged", "--out", tmp_path / "out")[0] == 130
    np.testing.assert_array_equal(asked["x"], data.load("digits").test.observe(np.arange(297)))
    assert asked["pilot_x"].take(np.arange(64)).shape == (64, 64)


@pytest.mark.slow
def test_it_is_sampled_from_and_exported(capsys, tmp_path):
    before = contents(FILES)
    paths = tmp_path / "s.npy", tmp_path / "w.safetensors"
    assert run(capsys, "sample", FILES / "averaged", "--out", paths[0])[0] == 0
    assert np.load(paths[0]).shape == (64, 64)
    assert run(capsys, "export", FILES / "averaged", paths[1])[0] == 0
    found, wanted = load(paths[1]), load(FILES / "averaged.safetensors")
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)
    assert contents(FILES) == before


@pytest.mark.slow
def test_it_cannot_be_resumed_and_a_new_run_starts_from_it(capsys, tmp_path, first_weights):
    folder = tmp_path / "run"
    shutil.copytree(FILES / "averaged", folder)
    before = contents(folder)
    result = run(capsys, "train", "--resume", folder, "--epochs", 3)
    assert_mistake(result, "cannot resume it", f"start a new run with --init-from {folder}")
    assert contents(folder) == before
    options = ("--num-hidden", 8, "--num-latents", 2, "--init-from", folder)
    found = first_weights("digits", *options, "--out", tmp_path / "new")
    old = open_run(folder)
    for a, b in zip(
        jax.tree.leaves(found), jax.tree.leaves((old.model, old.proposal)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
