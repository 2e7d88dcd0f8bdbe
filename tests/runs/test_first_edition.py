"""Files of the first edition are read: see tests/fixtures/first_edition."""

import json
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy

from aisle.errors import InputError
from aisle.runs import checkpoints
from aisle.runs.checkpoints import latest, save, updates
from aisle.runs.folder import last_metrics, read_config
from aisle.runs.weights import load, read_metadata

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "fixtures" / "first_edition"
EXPECTED = json.loads((FILES / "expected.json").read_text())


def fail(line):
    pytest.fail(f"reported: {line}")


def restore(folder, like, *, report, part):
    return checkpoints.restore(folder, lambda update: like, parts=[part], report=report)


def network(*sizes):
    """The shapes of a network as a first edition's run has it, in containers that need no aisle."""
    layers = zip(sizes[1:], sizes[:-1], strict=True)
    shape = jax.ShapeDtypeStruct
    return {
        "layers": [
            {"weight": shape((n, m), np.float32), "bias": shape((n,), np.float32)}
            for n, m in layers
        ]
    }


def weights(num_features=64, num_hidden=8, num_latents=2):
    hidden = (num_hidden, num_hidden)
    model = {"decoder": network(num_latents, *hidden, num_features)}
    proposal = {"network": network(num_features, *hidden, 2 * num_latents)}
    return model, proposal


def output(network, x):
    for layer in network["layers"][:-1]:
        x = np.tanh(np.asarray(layer["weight"], np.float64) @ x + layer["bias"])
    last = network["layers"][-1]
    return np.asarray(last["weight"], np.float64) @ x + last["bias"]


def assert_expected(found, expected):
    """Compare weights with what the first edition computed from them."""
    model, proposal = found
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(found)]
    assert sum(leaf.size for leaf in leaves) == expected["num_weights"]
    assert sum(leaf.sum() for leaf in leaves) == pytest.approx(expected["sum_of_weights"], 1e-12)
    squares = sum((leaf**2).sum() for leaf in leaves)
    assert squares == pytest.approx(expected["sum_of_squares"], 1e-12)
    x, z = np.array(EXPECTED["x"]), np.array(EXPECTED["z"])
    logits = output(model["decoder"], z)
    likelihood = np.sum(x * logits - np.logaddexp(0, logits))
    assert likelihood == pytest.approx(expected["log_likelihood"], rel=1e-6)
    loc, log_scale = np.split(output(proposal["network"], x), 2)
    normal = -0.5 * ((z - loc) / np.exp(log_scale)) ** 2 - log_scale - 0.5 * np.log(2 * np.pi)
    assert normal.sum() == pytest.approx(expected["log_proposal"], rel=1e-6)


@pytest.mark.parametrize(
    ("run", "part", "key"),
    [
        ("averaged", "average", "averaged"),
        ("averaged", "params", "averaged, last weights"),
        ("plain", "params", "plain"),
    ],
)
def test_weights_of_a_run(run, part, key, capfd):
    update, found = restore(FILES / run, weights(), report=fail, part=part)
    assert update == latest(FILES / run) == EXPECTED[key]["update"]
    assert updates(FILES / run) == [update]
    assert_expected(found, EXPECTED[key])
    assert capfd.readouterr() == ("", "")


def test_a_run_in_a_folder_of_any_name(tmp_path):
    shutil.copytree(FILES / "plain", tmp_path / "a[1]*?")
    _, found = restore(tmp_path / "a[1]*?", weights(), report=fail, part="params")
    assert_expected(found, EXPECTED["plain"])


def test_an_exported_file():
    like = dict(zip(("model", "proposal"), weights(), strict=True))
    found = load(FILES / "averaged.safetensors", like)
    assert_expected((found["model"], found["proposal"]), EXPECTED["averaged.safetensors"])
    metadata = read_metadata(FILES / "averaged.safetensors")
    assert metadata["format"] == 1
    assert metadata["shape"] == [8, 8]
    assert metadata["model"]["num_hidden"] == 8


def test_exported_weights_of_the_tables():
    files = sorted((ROOT / "results" / "tables" / "cells").glob("*.safetensors"))
    assert files
    for file in files:
        assert read_metadata(file)["shape"] == [28, 28]
        # Their names serve as the structure.
        expected = safetensors.numpy.load_file(file)
        found = load(file, expected)
        for name, tensor in expected.items():
            np.testing.assert_array_equal(found[name], tensor)


def test_settings_and_history_of_a_run():
    config = read_config(FILES / "averaged")
    assert config["format"] == 1
    assert config["train"]["optimizer"]["ema"] == 0.9
    assert last_metrics(FILES / "averaged")["update"] == 22


def test_an_average_that_a_run_does_not_have():
    with pytest.raises(InputError, match="it has no tensor 0/decoder/layers/0/bias"):
        restore(FILES / "plain", weights(), report=fail, part="average")


def test_a_run_cannot_be_resumed():
    with pytest.raises(InputError, match=r"written by aisle 0\.1: .* cannot resume it"):
        checkpoints.restore(FILES / "plain", lambda update: weights(), report=fail)


def test_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(InputError, match=r"pip install 'aisle\[legacy\]'$"):
        restore(FILES / "plain", weights(), report=fail, part="params")


def test_harm_to_any_file_is_found(tmp_path):
    source = FILES / "plain" / "checkpoints" / "11"
    num_damaged = 0
    for index, file in enumerate(path for path in source.rglob("*") if path.is_file()):
        run = tmp_path / str(index)
        shutil.copytree(source, run / "checkpoints" / "11")
        harmed = run / "checkpoints" / "11" / file.relative_to(source)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        harmed.write_bytes(content)
        try:
            _, found = restore(run, weights(), report=fail, part="params")
        except InputError as error:
            assert "no checkpoint in" in str(error) and "\n" not in str(error)
            num_damaged += 1
        else:
            # Not all files that Orbax wrote are needed.
            assert_expected(found, EXPECTED["plain"])
    assert num_damaged > 3


def test_checkpoints_of_both_editions_side_by_side(tmp_path):
    shutil.copytree(FILES / "plain", tmp_path / "run")
    state = {"params": {"x": np.ones(2, np.float32)}}
    for update in (12, 13):
        save(tmp_path / "run", update, state, keep=1)
    assert updates(tmp_path / "run") == [11, 13]
    assert restore(tmp_path / "run", state["params"], report=fail, part="params")[0] == 13
    (tmp_path / "run" / "checkpoints" / "13.safetensors").write_bytes(b"damage")
    lines = []
    update, found = restore(tmp_path / "run", weights(), report=lines.append, part="params")
    assert (update, len(lines)) == (11, 1)
    assert_expected(found, EXPECTED["plain"])
