"""A trained run as the subject of a study."""

import json
import shutil

import jax
import numpy as np
import pytest

from aisle.data import load, spread
from calling import assert_mistake, run
from commands import contents
from paper.core import trained


@pytest.mark.slow
def test_a_subject_has_held_out_examples_and_others_to_tune_on(digits):
    subject = trained.open_subject(digits, 40, None)
    dataset = load("digits", num_valid=0)
    assert (subject.path, subject.update) == (digits, 3)
    np.testing.assert_array_equal(subject.indices, spread(len(dataset.test), 40))
    np.testing.assert_array_equal(subject.x, dataset.test.observe(subject.indices))
    others = spread(len(dataset.train), 64)
    np.testing.assert_array_equal(subject.pilot_x, dataset.train.observe(others))
    assert subject.model.sample_prior(jax.random.key(0)).shape == (2,)
    assert subject.proposal(subject.x[0]).sample(jax.random.key(0)).shape == (2,)


def test_the_command_of_a_subject_names_no_folder(digits, tmp_path):
    shutil.copytree(digits, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    config["train"]["model"]["init_from"] = str(tmp_path / "first")
    file.write_text(json.dumps(config))
    assert trained.open_subject(tmp_path / "run", 2, None).command == (
        "aisle train digits --epochs 1 --method vae --num-samples 1 --num-latents 2 "
        "--num-hidden 8 --init-from first --num-valid 0 --batch-size 499 --optimizer adam "
        "--lr-schedule iwae-study --keep last"
    )


def without_checkpoints(folder):
    shutil.rmtree(folder / "checkpoints")


def without_config(folder):
    (folder / "config.json").unlink()


@pytest.mark.parametrize("command", ["kernels", "gradients"])
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (without_checkpoints, "has no checkpoint yet"),
        (without_config, "is not a run"),
        (shutil.rmtree, "does not exist"),
    ],
)
def test_a_folder_that_is_no_run(capsys, tmp_path, digits, command, harm, words):
    folder, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(digits, folder)
    harm(folder)
    before = contents(tmp_path)
    assert_mistake(run(capsys, command, folder, "--out", out), words)
    assert contents(tmp_path) == before
    assert not out.exists()
