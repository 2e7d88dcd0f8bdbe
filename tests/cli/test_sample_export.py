"""`aisle sample` and `aisle export`, on runs of named data and of a user's own."""

import os
import re
import shutil

import equinox as eqx
import jax
import numpy as np
import pytest
from PIL import Image

from aisle.models import sample
from aisle.runs import folder as run_folder
from aisle.runs.opening import load, open_run
from commands import assert_mistake, call, contents, run

SETTINGS = (
    *("--method", "vae", "--optimizer", "adam", "--num-hidden", "8", "--num-latents", "2"),
    *("--epochs", "1", "--ema", "0.9", "--num-valid", "0", "--lr-schedule", "constant"),
)


def assert_identical(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.fixture(scope="module")
def digits(make_run):
    """Two runs that differ in nothing but their folders."""
    return [make_run("digits"), make_run("digits")]


@pytest.fixture(scope="module")
def real_values(tmp_path_factory, make_run):
    """Runs on real values: curves of 24 points, and pictures of 6 x 4."""
    home = tmp_path_factory.mktemp("real")
    values = 5 * np.random.default_rng(0).normal(size=(100, 24)).astype(np.float32) + 20
    np.save(home / "curves.npy", values)
    np.save(home / "pictures.npy", values.reshape(100, 6, 4))
    names = ("curves", "pictures")
    made = [make_run(str(home / f"{name}.npy"), likelihood="gaussian") for name in names]
    return dict(zip(names, made, strict=True)) | {"home": home}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, real_values):
    """A run of which the weights were trained."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    options = ("--likelihood", "gaussian", "--batch-size", "29", "--learning-rate", "0.1")
    data = real_values["home"] / "pictures.npy"
    assert call("train", data, *SETTINGS, *options, "--out", folder) == 0
    return folder


def assert_picture(path):
    with Image.open(path) as image:
        image.load()
        assert image.format == "PNG"
        width, height = image.size
        assert 500 < width < 4000 and 300 < height < 3000
        assert len(np.unique(np.asarray(image.convert("L")))) > 10


@pytest.mark.slow
def test_samples_are_a_picture(capsys, tmp_path, digits):
    path = tmp_path / "x.png"
    code, out, err = run(capsys, "sample", digits[0], "--num-samples", 8, "--out", path)
    assert (code, err) == (0, "")
    assert out == f"{path}: update 3 of {digits[0]}\n"
    assert_picture(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_one_sample_is_a_picture_too(capsys, tmp_path, digits):
    path = tmp_path / "x.png"
    assert run(capsys, "sample", digits[0], "--out", path, "--num-samples", 1)[0] == 0
    assert_picture(path)


@pytest.mark.slow
def test_the_seed_decides_what_is_drawn(capsys, tmp_path, digits):
    pictures = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        path = tmp_path / f"{name}.png"
        options = ("--seed", seed, "--num-samples", 8, "--out", path)
        assert run(capsys, "sample", digits[0], *options)[0] == 0
        with Image.open(path) as image:
            pictures.append(np.asarray(image).copy())
    np.testing.assert_array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0], pictures[2])


def test_samples_are_an_array(capsys, tmp_path, digits):
    path = tmp_path / "x.npy"
    code, out, err = run(
        capsys, "sample", digits[0], "--out", path, "--num-samples", 5, "--seed", 2
    )
    assert (code, err) == (0, "")
    assert out == f"{path}: update 3 of {digits[0]}\n"
    np.testing.assert_array_equal(np.load(path), sample(open_run(digits[0]).model, 5, seed=2))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), [("curves", (24,)), ("pictures", (6, 4))])
def test_a_model_of_real_values_is_drawn(capsys, tmp_path, real_values, name, shape):
    path = tmp_path / "x.png"
    assert run(capsys, "sample", real_values[name], "--num-samples", 8, "--out", path)[0] == 0
    assert_picture(path)
    assert open_run(real_values[name]).shape == shape


@pytest.mark.slow
def test_the_scales_of_real_values_are_learned(trained):
    # They begin at the deviations of the features, and have left them after 3 updates.
    likelihood = open_run(trained).model.likelihood
    assert np.all(np.asarray(likelihood.log_scale) != 0)


def test_equal_weights_give_equal_files(capsys, tmp_path, digits):
    # The second is no markup, though it looks like some.
    paths = [tmp_path / "one.safetensors", tmp_path / "two[bold].safetensors"]
    for folder, path in zip(digits, paths, strict=True):
        code, out, err = run(capsys, "export", folder, path)
        assert (code, err) == (0, "")
        assert out == f"{path}: update 3 of {folder}\n"
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_exported_weights_come_back_bit_for_bit(capsys, tmp_path, digits, real_values):
    for folder in (digits[0], real_values["pictures"]):
        path = tmp_path / "m.safetensors"
        assert run(capsys, "export", folder, path)[0] == 0
        opened = open_run(folder)
        loaded = load(path)
        arrays = [
            eqx.filter(w, eqx.is_inexact_array) for w in ((opened.model, opened.proposal), loaded)
        ]
        assert_identical(*arrays)
        assert len(jax.tree.leaves(arrays[0])) >= 12
        # And with them, all that is not an array: the model computes the same.
        z = jax.numpy.ones(2)
        assert_identical(opened.model.mean_observation(z), loaded[0].mean_observation(z))


SUFFIX = {"sample": ".png", "export": ".safetensors"}


def without_checkpoints(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    return tmp_path / "run"


@pytest.mark.parametrize("command", ["sample", "export"])
def test_a_run_without_a_checkpoint(capsys, tmp_path, digits, command):
    folder = without_checkpoints(digits[0], tmp_path)
    path = tmp_path / f"result{SUFFIX[command]}"
    arguments = {"sample": [folder, "--out", path], "export": [folder, path]}
    assert_mistake(run(capsys, command, *arguments[command]), f"{folder} has no checkpoint yet")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("command", ["sample", "export"])
@pytest.mark.parametrize("run_folder", ["nowhere", "."])
def test_no_run(capsys, tmp_path, monkeypatch, command, run_folder):
    monkeypatch.chdir(tmp_path)
    path = f"a{SUFFIX[command]}"
    arguments = {"sample": [run_folder, "--out", path], "export": [run_folder, path]}
    assert_mistake(run(capsys, command, *arguments[command]), "give the folder of a run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["sample", "export"])
@pytest.mark.parametrize("target", ["missing/a", "folder", "file/a", "data.npz"])
def test_an_impossible_target(capsys, tmp_path, monkeypatch, digits, command, target):
    monkeypatch.chdir(tmp_path)
    target += "" if target.endswith(".npz") else SUFFIX[command]
    if target.startswith("folder"):
        (tmp_path / target).mkdir()
    (tmp_path / "file").touch()
    arguments = {"sample": [digits[0], "--out", target], "export": [digits[0], target]}
    assert_mistake(run(capsys, command, *arguments[command]), target)
    assert {path.name for path in tmp_path.iterdir()} <= {"file", target}
    assert not (tmp_path / "data.npz").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("command", ["sample", "export"])
def test_an_unwritable_folder(capsys, tmp_path, digits, command):
    path = tmp_path / "locked" / f"a{SUFFIX[command]}"
    path.parent.mkdir(mode=0o500)
    arguments = {"sample": [digits[0], "--out", path], "export": [digits[0], path]}
    assert_mistake(run(capsys, command, *arguments[command]), "cannot write")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--num-samples", "0"], "--num-samples is 0"),
        (["--num-samples", "-4"], "--num-samples is -4"),
        (["--num-samples", "few"], "few"),
    ],
)
def test_a_bad_number_of_samples(capsys, tmp_path, digits, options, words):
    path = tmp_path / "x.png"
    assert_mistake(run(capsys, "sample", digits[0], "--out", path, *options), words)
    assert not path.exists()


@pytest.mark.slow
def test_data_that_are_gone_are_named(capsys, tmp_path, real_values):
    folder = tmp_path / "run"
    shutil.copytree(real_values["pictures"], folder)
    data = real_values["home"] / "pictures.npy"
    moved = data.rename(tmp_path / data.name)
    try:
        result = run(capsys, "sample", folder, "--out", tmp_path / "x.png")
        there = ("--data-dir", tmp_path)
        found = run(capsys, "sample", folder, "--out", tmp_path / "x.png", *there)
    finally:
        moved.rename(data)
    assert_mistake(
        result, f"{data}, which {folder} was trained on, is not there: put it back", "--data-dir"
    )
    assert found[0] == 0


@pytest.mark.slow
def test_a_run_is_resumed_where_its_data_are_now(capsys, tmp_path, real_values, trained):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    data = real_values["home"] / "pictures.npy"
    moved = data.rename(tmp_path / data.name)
    try:
        again = run(capsys, "train", "--resume", folder, "--epochs", 2, "--data-dir", tmp_path)
    finally:
        moved.rename(data)
    assert again[0] == 0


@pytest.mark.parametrize("command", ["sample", "evaluate", "resume"])
def test_data_that_have_changed_are_told(capsys, tmp_path, real_values, command):
    folder = tmp_path / "run"
    shutil.copytree(real_values["pictures"], folder)
    data = real_values["home"] / "pictures.npy"
    before, kept = np.load(data), contents(folder)
    np.save(data, before + 1)
    words = {"resume": ["train", "--resume", folder, "--epochs", 9]}
    try:
        result = run(capsys, *words.get(command, [command, folder]))
    finally:
        np.save(data, before)
    assert_mistake(result, f"{data} is not what {folder} was trained on: put the same data back")
    assert contents(folder) == kept


def test_a_configuration_that_was_edited_wrongly(capsys, tmp_path, digits):
    folder = tmp_path / "run"
    shutil.copytree(digits[0], folder)
    file = folder / "config.json"
    file.write_text(re.sub(r'"num_hidden": \d+', '"num_hidden": "x"', file.read_text()))
    assert_mistake(run(capsys, "sample", folder), "num_hidden is 'x'")


@pytest.mark.parametrize("command", ["sample", "evaluate", "export"])
def test_a_run_of_ones_own_model_needs_the_model(capsys, tmp_path, command):
    run_folder.create(tmp_path / "run", {"fit": {"method": "ais"}})
    place = [tmp_path / "w.safetensors"] if command == "export" else []
    result = run(capsys, command, tmp_path / "run", *place)
    assert_mistake(result, "is a run of aisle.fit", "--model MODULE:FUNCTION")
    result = run(capsys, command, tmp_path / "run", *place, "--model", "mine:build")
    assert_mistake(result, "--model needs --data")
