"""Models of one's own on the command line: trained by `--model`, or by `aisle.fit`."""

import sys

import equinox as eqx
import numpy as np
import pytest

import aisle
from aisle.runs import evaluating
from commands import assert_mistake, call, run
from fitting import DATA, START, Encoder, assert_identical, encoder

MODULE = '''
from fitting import START, encoder

def build(key, train):
    """Of a user: the examples say how many features there are."""
    return START, encoder(train.example.shape[0])

def one(key, train):
    return START
'''
TRAIN = ("--model", "mymodels:build", "--method", "vae", "--optimizer", "adam", "--batch-size", 11)
TRAIN += ("--lr-schedule", "constant", "--num-valid", 0)


@pytest.fixture(scope="module")
def home(tmp_path_factory, compiled_once):
    """A folder with a module, data, a run of `aisle train` and one of `aisle.fit`."""
    home = tmp_path_factory.mktemp("home")
    (home / "mymodels.py").write_text(MODULE)
    np.save(home / "x.npy", DATA[:40].astype(np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setattr(sys, "path", [*sys.path])
        assert call("train", "x.npy", *TRAIN, "--updates", 2, "--out", "trained") == 0
        # The same programs as before.
        x, adam = DATA[:36].astype(np.float32), aisle.Adam(1e-3, aisle.rates.constant)
        options = {"method": aisle.VAE(), "optimizer": adam, "batch_size": 11, "num_updates": 2}
        aisle.fit(START, encoder(), x, **options, seed=1, show_progress=False, out="fitted")
        yield home
    sys.modules.pop("mymodels", None)


def weights_of(folder):
    opened = aisle.open_run(folder, START, encoder())
    return opened.model, opened.proposal


OF_FIT = ("--model", "mymodels:build", "--data", "x.npy")
KINDS = {"trained": (), "fitted": OF_FIT}


def test_a_run_is_opened_by_its_function(home):
    opened = aisle.open_run("trained")
    assert isinstance(opened.proposal, Encoder)
    assert_identical((opened.model, opened.proposal), weights_of("trained"))
    assert not eqx.tree_equal(opened.model, START)


@pytest.mark.parametrize("kind", KINDS)
def test_samples(capsys, tmp_path, home, kind):
    path = tmp_path / "s.npy"
    code, _, err = run(capsys, "sample", kind, *KINDS[kind], "--out", path, "--num-samples", 4)
    assert (code, err) == (0, "")
    model, _ = weights_of(kind)
    np.testing.assert_array_equal(np.load(path), aisle.sample(model, 4, seed=0))


@pytest.mark.parametrize("kind", KINDS)
def test_exported_weights(capsys, tmp_path, home, kind):
    path = tmp_path / "w.safetensors"
    assert run(capsys, "export", kind, path, *KINDS[kind])[0] == 0
    assert_identical(aisle.load(path, START, encoder()), weights_of(kind))
    with pytest.raises(aisle.InputError, match=r"load\(path, model, proposal\)"):
        aisle.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluations(capsys, monkeypatch, home, kind):
    """Of a run of `aisle train` the tenth that was held out, of one of `fit` all of the array."""
    asked = {}

    def log_likelihood(model, proposal, x, context, **options):
        asked.update(options, model=model, proposal=proposal, x=x)
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluating, "log_likelihood", log_likelihood)
    assert run(capsys, "evaluate", kind, *KINDS[kind])[0] == 130
    assert_identical((asked["model"], asked["proposal"]), weights_of(kind))
    test = aisle.data.load("x.npy").test
    wanted = test.observe(np.arange(4)) if kind == "trained" else np.load("x.npy")
    np.testing.assert_array_equal(asked["x"], wanted)
    assert (asked["pilot_x"] is None) == (kind == "fitted")


@pytest.mark.slow
def test_a_run_is_resumed(capsys, home):
    code, out, _ = run(capsys, "train", "--resume", "trained", "--updates", 3)
    assert (code, "3 updates, kept in trained" in out) == (0, True)


@pytest.mark.parametrize("source", ["trained", "fitted", "fitted.safetensors"])
def test_another_run_starts_from_its_weights(capsys, tmp_path, home, first_weights, source):
    if source.endswith(".safetensors"):
        assert run(capsys, "export", "fitted", source, *OF_FIT)[0] == 0
    options = (*TRAIN, "--init-from", source, "--out", tmp_path / "new")
    assert_identical(first_weights("x.npy", *options), weights_of(source.split(".")[0]))


def test_data_that_have_moved(capsys, tmp_path, home):
    moved = (home / "x.npy").rename(tmp_path / "x.npy")
    try:
        result = run(capsys, "sample", "trained", "--out", tmp_path / "s.npy")
        there = ("--data-dir", tmp_path)
        found = run(capsys, "sample", "trained", "--out", tmp_path / "s.npy", *there)
    finally:
        moved.rename(home / "x.npy")
    assert_mistake(result, "x.npy, which trained was trained on, is not there", "--data-dir")
    assert found[0] == 0


def test_a_function_that_returns_something_else(capsys, home, no_training):
    options = ("--model", "mymodels:one", "--batch-size", 11, "--out", "none")
    result = run(capsys, "train", "x.npy", *options)
    assert_mistake(result, "--model is 'mymodels:one' but the function returns a LinearGaussian")
    assert not (home / "none").exists()
