"""Mistakes in the arguments of `aisle evaluate`, found before anything is computed."""

import importlib
import os
import shutil

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.runs import checkpoints, opening
from commands import assert_mistake, contents, run

BAD_OPTIONS = [
    (["-C", "0"], "--num-chains is 0"),
    (["-C", "few"], "few"),
    (["-T", "1"], "--num-temperatures is 1: it must be at least 2"),
    (["-T", "0"], "--num-temperatures is 0"),
    (["-L", "0"], "--num-leapfrog is 0"),
    (["--num-examples", "0"], "--num-examples is 0"),
    (["--num-examples", "-5"], "--num-examples is -5"),
    (["--whole-split", "-2"], "--whole-split is -2"),
    (["--whole-split", "1"], "--whole-split is 1"),
    (["--schedule", "immediate"], "immediate"),
    (["--split", "validation"], "validation"),
    (["--start", "posterior"], "posterior"),
    (["--precondition", "nan"], "--precondition is nan"),
    (["--start", "prior", "--precondition", "1"], "--precondition is 1"),
    (["--momentum-refresh", "0"], "--momentum-refresh is 0"),
    (["--target-accept", "1.5"], "--target-accept is 1.5"),
    (["--bdmc-examples", "-1"], "--bdmc-examples is -1"),
    (["--tolerance", "0"], "--tolerance is 0"),
    (["--tolerance", "nan"], "--tolerance is nan"),
    (["--tolerance", "0.1", "--bdmc-examples", "1"], "--bdmc-examples is 1: it must be at least 2"),
    (["--max-seconds", "-1"], "--max-seconds is -1"),
    (["--importance-samples", "-1"], "--importance-samples is -1"),
    (["--seed", "-1"], "--seed is -1"),
    (["--memory-mb", "0"], "--memory-mb is 0"),
    (["--json", "missing/a.json"], "missing/a.json is in a folder that does not exist"),
    (["--json", "."], ". does not end in .json"),
    (["--data", "nowhere.npy"], "nowhere.npy"),
    (["--data", "nonsense"], "nonsense"),
    (["--no-such-option"], "--no-such-option"),
]


@pytest.fixture
def no_evaluation(monkeypatch):
    """Fail instead of computing where a mistake is not noticed."""

    def rounds(*_):
        raise AssertionError("the evaluation began")

    module = importlib.import_module("aisle.evaluation.log_likelihood")
    monkeypatch.setattr(module, "run_rounds", rounds)


# Objects refuse them, which has tests of its own: of the way through the command, a third is fast.
@pytest.mark.parametrize(
    ("options", "words"),
    [pytest.param(*b, marks=[pytest.mark.slow] * (i % 3 > 0)) for i, b in enumerate(BAD_OPTIONS)],
    ids=lambda a: a[0] if isinstance(a, list) else a,
)
def test_a_bad_option_costs_one_line_and_leaves_nothing(
    capsys, tmp_path, monkeypatch, no_evaluation, digits, options, words
):
    monkeypatch.chdir(tmp_path)
    before = contents(digits)
    assert_mistake(run(capsys, "evaluate", digits, *options), words)
    assert list(tmp_path.iterdir()) == []
    assert contents(digits) == before
    assert not (digits / "evaluations").exists()


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((30, 4), np.float32), "trained on (8, 8): give data of that shape"),
        (np.zeros((30, 8, 9), np.float32), "shape (8, 9)"),
        (np.full((30, 64), np.nan, np.float32), "nan in row"),
        (np.full((30, 8, 8), 1.5, np.float32), "needs values in [0, 1]"),
    ],
    ids=["narrow", "wide", "nan", "above"],
)
def test_bad_data_cost_one_line_and_leave_nothing(
    capsys, tmp_path, no_evaluation, digits, array, words
):
    np.save(tmp_path / "data.npy", array)
    result = run(capsys, "evaluate", digits, "--data", tmp_path / "data.npy")
    assert_mistake(result, words)
    assert [path.name for path in tmp_path.iterdir()] == ["data.npy"]
    assert not (digits / "evaluations").exists()


def test_an_array_by_itself_has_no_part_to_train_on(capsys, tmp_path, no_evaluation, digits):
    np.save(tmp_path / "data.npy", np.zeros((30, 64), np.float32))
    result = run(capsys, "evaluate", digits, "--split", "train", "--data", tmp_path / "data.npy")
    assert_mistake(result, "--split is 'train' but", "leave --split out")


def test_data_that_are_bad_only_where_the_pilot_looks(capsys, tmp_path, no_evaluation, digits):
    good, bad = np.zeros((5, 64), np.float32), np.full((5, 64), np.inf, np.float32)
    np.savez(tmp_path / "data.npz", train=bad, test=good)
    result = run(capsys, "evaluate", digits, "--data", tmp_path / "data.npz")
    assert_mistake(result, "finite")
    assert not (digits / "evaluations").exists()


def test_weights_that_are_not_finite(capsys, tmp_path, no_evaluation, digits):
    folder, opened = tmp_path / "run", opening.open_run(digits)
    shutil.copytree(digits, folder)
    bias = opened.model.decoder.layers[0].bias.at[1].set(jnp.nan)
    model = eqx.tree_at(lambda m: m.decoder.layers[0].bias, opened.model, bias)
    arrays = eqx.filter((model, opened.proposal), eqx.is_inexact_array)
    checkpoints.save(folder, 3, {"state": {"params": arrays}})
    result = run(capsys, "evaluate", folder)
    assert_mistake(result, f"the weights of {folder} at update 3 are not all finite")
    assert not (folder / "evaluations").exists()


def test_other_files_are_left_alone(capsys, tmp_path, no_evaluation, digits):
    (tmp_path / "notes.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "notes.txt"):
        result = run(capsys, "evaluate", digits, "--out", out)
        assert_mistake(result, str(out), "choose a")
    assert contents(tmp_path) == {tmp_path / "notes.txt": b"mine"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder(capsys, tmp_path, no_evaluation, digits):
    (tmp_path / "locked").mkdir(mode=0o500)
    result = run(capsys, "evaluate", digits, "--out", tmp_path / "locked" / "a")
    assert_mistake(result, "cannot write")
