import json
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from aisle.errors import InputError
from aisle.runs.weights import export, load, read_metadata
from disks import full_disk


class Pair(NamedTuple):
    model: eqx.Module
    scale: jax.Array | None


def make_weights(seed=0):
    network = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(seed))
    return Pair(eqx.filter(network, eqx.is_array), jnp.asarray(seed, jnp.int32))


@pytest.fixture
def file(tmp_path):
    export(tmp_path / "w.safetensors", make_weights(), {"method": "ais"})
    return tmp_path / "w.safetensors"


def assert_identical(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert isinstance(a, jax.Array)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_weights_come_back(file):
    assert_identical(load(file, make_weights(1)), make_weights())
    assert_identical(load(file, jax.eval_shape(make_weights)), make_weights())


def test_other_programs_can_read_them(file):
    tensors = safetensors.numpy.load_file(file)
    assert tensors.keys() == {
        "model/layers/0/weight",
        "model/layers/0/bias",
        "model/layers/1/weight",
        "model/layers/1/bias",
        "scale",
    }
    np.testing.assert_array_equal(
        tensors["model/layers/0/weight"], make_weights().model.layers[0].weight
    )


def test_arrays_in_any_order_of_memory(tmp_path):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = {
        "turned": matrix.T,
        "reversed": matrix[::-1],
        "empty": matrix[:0],
        "one": matrix[0, 0],
        "half": jnp.asarray(matrix, jnp.bfloat16),
    }
    export(tmp_path / "w", weights, {})
    found = load(tmp_path / "w", weights)
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name], array)


def test_metadata_come_back(tmp_path):
    metadata = {"config": {"width": 200}, "note": "début", "list": [1, None, 0.1]}
    export(tmp_path / "w", make_weights(), metadata)
    assert read_metadata(tmp_path / "w") == {**metadata, "format": 2}


def test_metadata_that_json_changes(tmp_path):
    export(tmp_path / "w", {}, {"by_number": {10: "b", 9: "a"}, "pair": (1, 2)})
    assert read_metadata(tmp_path / "w") == {
        "by_number": {"10": "b", "9": "a"},
        "pair": [1, 2],
        "format": 2,
    }


def test_equal_weights_make_equal_files(tmp_path):
    arrays = {f"array{i}": np.full(i, i, np.float32) for i in range(20)}
    numbers = {f"number{i}": i for i in range(20)}
    contents = set()
    for order in (1, -1, 1):
        numbers = dict(list(numbers.items())[::order])
        arrays = dict(list(arrays.items())[::order])
        export(tmp_path / "w", arrays, numbers)
        contents.add((tmp_path / "w").read_bytes())
    assert len(contents) == 1
    export(tmp_path / "w", arrays, numbers | {"number0": 1})
    assert (tmp_path / "w").read_bytes() not in contents


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (make_weights()._replace(scale=None), "its tensor scale is not needed"),
        (make_weights()._replace(scale=jnp.ones(2, int)), r"scale is int32\[\], and int32\[2\]"),
        (make_weights()._replace(scale=jnp.ones(())), r"scale is int32\[\], and float32\[\]"),
        ({"other": jnp.ones(1)}, "it has no tensor other"),
    ],
)
def test_weights_of_another_model(file, like, message):
    with pytest.raises(InputError, match=message) as caught:
        load(file, like)
    assert f"{file} does not fit the model" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_leaves_of_one_name(tmp_path):
    with pytest.raises(ValueError, match="two leaves are both called a/b"):
        export(tmp_path / "w", {"a/b": jnp.ones(1), "a": {"b": jnp.zeros(1)}}, {})


@pytest.mark.parametrize("read", [read_metadata, lambda path: load(path, make_weights())])
def test_files_that_are_no_weights(file, read):
    content = file.read_bytes()
    for bad in (b"", b"abc", b"\xff" * 100, content[:-1], content[:50]):
        file.write_bytes(bad)
        with pytest.raises(InputError, match="not a safetensors file, or cut short") as caught:
            read(file)
        assert "\n" not in str(caught.value)
    for bad in (content[:-1] + b"\x01", content.replace(b"ais\\", b"vae\\")):
        assert bad != content
        file.write_bytes(bad)
        with pytest.raises(InputError, match="checksum"):
            read(file)
    with pytest.raises(InputError, match="absent does not exist"):
        read(file.with_name("absent"))
    with pytest.raises(InputError, match="Is a directory"):
        read(file.parent)


@pytest.mark.parametrize("header", [None, {"format": "pt"}, {"aisle": "{"}, {"aisle": "[1]"}])
def test_a_file_of_another_program_has_no_metadata(file, header):
    safetensors.numpy.save_file({"a": np.ones(1, np.float32)}, file, header)
    with pytest.raises(InputError, match="has no metadata of aisle"):
        read_metadata(file)
    np.testing.assert_array_equal(load(file, {"a": jnp.zeros(1)})["a"], 1)


@pytest.mark.parametrize("stored", [3, "2", None])
def test_a_later_format_is_refused(file, stored):
    safetensors.numpy.save_file({}, file, {"aisle": json.dumps({"format": stored})})
    for read in (read_metadata, lambda path: load(path, {})):
        with pytest.raises(InputError, match=f"has format {stored!r}, .*: install a newer aisle"):
            read(file)


def test_targets_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for target in (tmp_path, tmp_path / "absent" / "w", tmp_path / "file" / "w"):
        with pytest.raises(InputError, match=f"cannot write {target}"):
            export(target, make_weights(), {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_file(file):
    before = file.read_bytes()
    with full_disk(1000), pytest.raises(InputError, match="File too large"):
        export(file, {"large": np.ones(1000)}, {})
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]
