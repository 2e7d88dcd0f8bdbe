"""Folders that are no runs, given to commands that take one."""

import shutil

import pytest

from commands import assert_mistake, contents, run


def without_checkpoints(folder):
    shutil.rmtree(folder / "checkpoints")


def without_config(folder):
    (folder / "config.json").unlink()


@pytest.mark.parametrize("command", ["evaluate", "sample", "export"])
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
    suffix = {"sample": ".png", "export": ".safetensors"}.get(command, "")
    shutil.copytree(digits, folder)
    harm(folder)
    before = contents(tmp_path)
    place = [out.with_suffix(suffix)] if command == "export" else ["--out", out.with_suffix(suffix)]
    assert_mistake(run(capsys, command, folder, *place), words)
    assert contents(tmp_path) == before
    assert not out.exists()
