"""`aisle train`, from the arguments to the files of a run."""

import importlib.metadata
import json
import os
import pty
import re
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import numpy as np
import pytest

from aisle.data import load
from aisle.errors import TrainingError
from aisle.provenance import git_commit
from aisle.runs import checkpoints, training
from aisle.runs.opening import open_run
from commands import PROGRAM, assert_mistake, call, contents, run

# Three updates an epoch of 1,350 examples, on one device, which compiles faster than eight.
# A rate that does not depend on the length of a run: all runs are of the same compiled programs.
TINY = ("--num-hidden", "8", "--num-latents", "2", "--batch-size", "449", "--optimizer", "adam")
TINY += ("--lr-schedule", "constant")
# T = 3 transitions of L = 2 steps for K = 2 chains.
AIS = ("--method", "ais", "-K", "2", "-T", "3", "-L", "2", *TINY, "--ema", "0.9")
AIS_GRADIENTS = 449 * ((2 + 3 * 2) * 2 + 1)
VAE = ("--method", "vae", *TINY, "--ema", "0.9")
BOARD = ("--epochs", 2, "--validate-every", 1, "--keep", "last", "--tensorboard")


def records_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def arrays_of(folder):
    run = open_run(folder)
    return jax.tree.leaves(eqx.filter((run.model, run.proposal), eqx.is_inexact_array))


@pytest.fixture(scope="module")
def board(tmp_path_factory, compiled_once):
    """Two epochs by ais, with the files of TensorBoard."""
    folder = tmp_path_factory.mktemp("board") / "run"
    assert call("train", "digits", *AIS, *BOARD, "--out", folder) == 0
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory, compiled_once):
    """One epoch by vae."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    assert call("train", "digits", *VAE, "--epochs", 1, "--out", folder) == 0
    return folder


@pytest.mark.slow
def test_a_run_is_opened_with_its_averaged_weights(board):
    state = training.resume(board, show_progress=False).state
    for mine, average in zip(arrays_of(board), jax.tree.leaves(state.average), strict=True):
        np.testing.assert_array_equal(mine, average)
    assert not eqx.tree_equal(state.average, state.params)


@pytest.mark.slow
def test_the_configuration_is_whole(board):
    stored = json.loads((board / "config.json").read_text())
    assert stored.keys() == {"format", "train", "data", "ends", "provenance"}
    assert (stored["format"], stored["ends"]) == (2, [6])
    assert stored["train"] == {
        "data": "digits",
        "num_epochs": 2,
        "num_updates": None,
        "method": {
            "method": "ais",
            "num_samples": 2,
            "num_temperatures": 3,
            "kernel": "tuned",
            "num_leapfrog": 2,
            "schedule": None,
            "target_accept": None,
            "precondition": None,
            "momentum_refresh": None,
            "phi_objective": "elbo",
        },
        "model": {
            "model": "one-layer",
            "num_latents": 2,
            "num_hidden": 8,
            "likelihood": "auto",
            "network": None,
            "hidden": None,
            "activation": None,
            "init_from": None,
        },
        "observations": {
            "binarize": None,
            "grey": False,
            "columns": None,
            "condition": [],
            "exposure": None,
            "weights": None,
            "num_valid": None,
            "data_dir": None,
        },
        "optimizer": {
            "batch_size": 449,
            "optimizer": "adam",
            "learning_rate": None,
            "lr_schedule": "constant",
            "warmup_epochs": None,
            "ema": 0.9,
        },
        "run": {
            "seed": 0,
            "keep": "last",
            "patience": None,
            "validate_every": 1,
            "checkpoint_minutes": 5.0,
            "keep_checkpoints": 3,
            "tensorboard": True,
        },
    }
    known = {"name": "digits", "source": "scikit-learn", "shape": [8, 8]}
    digests = stored["data"].pop("digests")
    assert stored["data"] == known | {"num_train": 1350, "num_valid": 150, "num_test": 297}
    dataset = load("digits")
    assert digests == {name: getattr(dataset, name).digest() for name in digests}
    assert digests.keys() == {"train", "valid", "test"}
    packages = stored["provenance"]["packages"]
    assert {"aisle", "jax", "jaxlib", "equinox", "optax", "numpy"} <= packages.keys()
    assert packages == {name: importlib.metadata.version(name) for name in packages}
    commit = git_commit()
    assert stored["provenance"]["git_commit"] == commit
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}\+?", commit)


@pytest.mark.slow
def test_the_metrics_are_whole(board):
    records = records_of(board)
    updates = [record for record in records if "bound" in record]
    assert [record["update"] for record in updates] == [1, 2, 3, 4, 5, 6]
    for record in updates:
        assert record["epoch"] == pytest.approx(record["update"] / 3)
        assert -100 < record["bound"] < 0
        assert len(record["acceptance"]) == len(record["step_size"]) == 3
        assert all(0 < value <= 1 for value in record["acceptance"])
        assert 1 <= record["effective_sample_size"] <= 2
        assert (record["num_nonfinite"], record["is_skipped"]) == (0, False)
        assert record["decoder_gradients"] == record["update"] * AIS_GRADIENTS
    assert updates[0]["step_size"] == pytest.approx([0.5] * 3)
    # Steps grow where more moves are accepted than wanted, and shrink elsewhere.
    sizes, rates = (
        np.array([record[name] for record in updates]) for name in ("step_size", "acceptance")
    )
    np.testing.assert_array_equal(np.diff(sizes, axis=0) > 0, rates[:-1] > 0.8)
    held_out = [record for record in records if "held_out_bound" in record]
    assert [record["update"] for record in held_out] == [3, 6]
    for record in held_out:
        assert -100 < record["held_out_bound"] < 0
        assert 0 < record["held_out_standard_error"] < 1
        assert record["held_out_examples"] == 150
        assert record["decoder_gradients"] == record["update"] * AIS_GRADIENTS
    assert checkpoints.updates(board) == [6]


@pytest.mark.slow
def test_tensorboard_reads_the_same_numbers(board):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of its own imports.
        from tensorboard.backend.event_processing import event_accumulator
    events = event_accumulator.EventAccumulator(str(board / "tensorboard"))
    events.Reload()
    updates = [record for record in records_of(board) if "bound" in record]
    for tag, values in {
        "bound": [record["bound"] for record in updates],
        "step_size/2": [record["step_size"][2] for record in updates],
        "acceptance/0": [record["acceptance"][0] for record in updates],
    }.items():
        scalars = events.Scalars(tag)
        assert [scalar.step for scalar in scalars] == [1, 2, 3, 4, 5, 6]
        np.testing.assert_allclose([scalar.value for scalar in scalars], values, rtol=1e-6)
    assert [scalar.step for scalar in events.Scalars("held_out_bound")] == [3, 6]


@pytest.mark.slow
def test_a_warm_up_is_cheap_and_counted_as_such(capsys, tmp_path):
    folder = tmp_path / "run"
    options = ("--warmup-epochs", 1, "--epochs", 2, "--out", folder)
    code, out, err = run(capsys, "train", "digits", *AIS, *options)
    assert code == 0
    updates = [record for record in records_of(folder) if "bound" in record]
    spent = np.diff([0, *(record["decoder_gradients"] for record in updates)])
    assert spent.tolist() == [449] * 3 + [AIS_GRADIENTS] * 3
    assert f"{3 * (449 + AIS_GRADIENTS):,} decoder gradients" in out
    assert [record["phase"] for record in updates] == [0] * 3 + [1] * 3
    assert [len(record["step_size"]) for record in updates] == [0] * 3 + [3] * 3
    assert [len(record["acceptance"]) for record in updates] == [0] * 3 + [3] * 3
    assert updates[3]["step_size"] == pytest.approx([0.5] * 3)
    # Not a terminal: plain lines only.
    assert "\x1b" not in out + err and "\r" not in out + err
    line = r"epoch \d\.\d/2  bound -\d+\.\d\d(  [\d,]+ examples/s)?(  \d+ s left)?"
    assert all(re.fullmatch(line, a) for a in err.splitlines())
    assert err.splitlines()[-1].startswith("epoch 2.0/2 ")


@pytest.mark.slow
@pytest.mark.parametrize("is_exported", [False, True])
def test_weights_of_another_run_are_the_first_ones(
    capsys, tmp_path, board, plain, first_weights, is_exported
):
    folder, source = tmp_path / "run", board
    if is_exported:
        source = tmp_path / "board.safetensors"
        assert run(capsys, "export", board, source)[0] == 0
    options = ("--init-from", source, "--seed", "1", "--out", folder)
    found = first_weights("digits", *VAE, *options)
    for mine, theirs in zip(jax.tree.leaves(found), arrays_of(board), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    # Which is no small thing: those of another run are elsewhere.
    for theirs, others in zip(arrays_of(board), arrays_of(plain), strict=True):
        assert np.max(np.abs(theirs - others)) > 1e-6


@pytest.mark.slow
def test_the_run_that_it_started_from_is_named(capsys, tmp_path, plain):
    options = (*VAE, "--epochs", 1, "--init-from", plain, "--out", tmp_path / "run")
    assert run(capsys, "train", "digits", *options)[0] == 0
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["train"]["model"]["init_from"] == str(plain)
    # It may be gone by now.
    stored["train"]["model"]["init_from"] = str(tmp_path / "gone")
    (tmp_path / "run" / "config.json").write_text(json.dumps(stored))
    assert run(capsys, "train", "--resume", tmp_path / "run")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("model", ["one-layer", "two-layer"])
@pytest.mark.parametrize("method", ["vae", "iwae", "dreg", "mh-hmc", "ais"])
def test_every_method_trains_every_model(capsys, tmp_path, method, model):
    folder = tmp_path / "run"
    chains = ("-T", "3", "-L", "2") if method in ("mh-hmc", "ais") else ()
    options = ("-K", "2", *chains, *TINY, "--epochs", 1, "--out", folder)
    result = run(capsys, "train", "digits", "--method", method, "--model", model, *options)
    assert result[0] == 0
    assert f"3 updates, kept in {folder}" in result[1].replace("\n", "")
    *updates, held_out = records_of(folder)
    assert len(updates) == 3
    assert not any(record["is_skipped"] for record in updates)
    gradients = {"vae": 2, "iwae": 2, "dreg": 4, "mh-hmc": 17, "ais": 17}[method]
    assert held_out["decoder_gradients"] == 3 * 449 * gradients
    assert -60 < held_out["held_out_bound"] < -20


@pytest.mark.slow
def test_a_terminal_gets_a_bar(tmp_path, compiled_once, plain):
    folder = tmp_path / "run"
    arguments = ["train", "digits", *VAE, "--epochs", "1", "--out", str(folder)]
    environment = {k: v for k, v in compiled_once.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    terminal, inside = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=inside,
    ) as process:
        os.close(inside)
        shown = read_all(terminal)
        out = process.stdout.read().decode()
    os.close(terminal)
    assert process.returncode == 0
    assert "\x1b[" in shown
    assert "━" in shown
    assert "epoch" in shown and "1.0/1" in shown and "examples/s" in shown
    assert "Traceback" not in shown
    assert "3 updates, kept in" in out and "\x1b" not in out


def read_all(terminal):
    chunks = []
    try:
        while chunk := os.read(terminal, 4096):
            chunks.append(chunk)
    except OSError:  # How Linux says that the other end is closed.
        pass
    return b"".join(chunks).decode(errors="replace")


def test_an_existing_run_is_not_overwritten(capsys, digits):
    before = contents(digits)
    result = run(capsys, "train", "digits", *VAE, "--epochs", 2, "--out", digits)
    assert_mistake(result, f"{digits} holds a run already: resume it, or choose another folder")
    assert contents(digits) == before


def test_a_folder_with_other_files_is_left_alone(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    result = run(capsys, "train", "digits", *VAE, "--out", tmp_path)
    assert_mistake(result, "files that are not of a run: choose another folder")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("out", ["file", "file/run"])
def test_a_file_in_the_way(capsys, tmp_path, out):
    (tmp_path / "file").write_text("mine")
    result = run(capsys, "train", "digits", *VAE, "--out", tmp_path / out)
    assert_mistake(result, "cannot write")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "options",
    [
        ["--num-latents", "3"],
        ["--model", "two-layer"],
        pytest.param(["--num-hidden", "9"], marks=pytest.mark.slow),
        pytest.param(["--likelihood", "gaussian"], marks=pytest.mark.slow),
    ],
    ids=lambda a: "".join(a[:2]),
)
@pytest.mark.parametrize("is_exported", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_weights_of_other_networks_are_refused(
    capsys, tmp_path, digits, no_training, options, is_exported
):
    source, folder = digits, tmp_path / "run"
    if is_exported:
        source = tmp_path / "digits.safetensors"
        assert run(capsys, "export", digits, source)[0] == 0
    arguments = (*VAE, *options, "--init-from", source, "--out", folder)
    assert_mistake(run(capsys, "train", "digits", *arguments), str(source), " tensor ")
    assert not folder.exists()


def test_a_failure_has_an_exit_code_of_its_own(capsys, tmp_path, monkeypatch):
    def diverged(*_, **__):
        raise TrainingError("training diverged: the last bound is nan; lower the learning rate")

    monkeypatch.setattr(training, "train", diverged)
    code, out, err = run(capsys, "train", "digits", "--out", tmp_path / "run")
    assert (code, out) == (1, "")
    assert err == "aisle: training diverged: the last bound is nan; lower the learning rate\n"


@pytest.mark.slow
def test_a_diverged_run_is_a_failure(capsys, tmp_path):
    """Weights that are far too large after the first update, and a last bound that is no number."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32))
    options = ("--likelihood", "gaussian", "--learning-rate", "1e30", "--updates", 3)
    arguments = (tmp_path / "x.npy", *VAE, *options, "--ema", 0, "--out", tmp_path / "run")
    code, out, err = run(capsys, "train", *arguments)
    assert code == 1
    assert "Traceback" not in err
    assert (
        len(re.findall("^aisle: training diverged: .*lower the learning rate.*$", err, re.M)) == 1
    )
    assert "kept in" not in out


def test_chains_of_a_method_that_has_none(capsys, tmp_path, no_training):
    result = run(capsys, "train", "digits", *VAE, "-L", 2, "--out", tmp_path / "run")
    assert_mistake(result, "--num-leapfrog is 2 but vae runs no chains: leave it out")


def test_lengths_exclude_each_other(capsys, tmp_path, no_training):
    result = run(capsys, "train", "digits", "--epochs", 2, "--updates", 3, "--out", tmp_path / "a")
    assert_mistake(result, "give one of --epochs, --updates and --hours")


@pytest.mark.slow
def test_hours_become_updates_that_the_run_keeps(capsys, tmp_path, compiled_once):
    folder = tmp_path / "run"
    options = (*VAE, "--hours", 1e-5, "--batch-size", 5000, "--out", folder)
    code, _, err = run(capsys, "train", "digits", *options)
    assert code == 0 and err.count("batch_size is 5000") == 1
    number = json.loads((folder / "config.json").read_text())["train"]["num_updates"]
    assert f"1e-05 hours are time for about {number:,} updates" in err
    assert records_of(folder)[-1]["update"] == number
