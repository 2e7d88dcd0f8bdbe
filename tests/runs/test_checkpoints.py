import json
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors
import safetensors.numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aisle.errors import InputError
from aisle.runs import checkpoints
from aisle.runs.checkpoints import latest, save, updates
from aisle.runs.tensors import placed
from disks import full_disk


class Weights(NamedTuple):
    decoder: dict
    encoder: tuple | None


def make_state(seed=0, width=40):
    """A state with all that a training state has: optimiser, None, odd numbers, empty arrays."""
    normal = np.random.default_rng(seed).normal(size=(width, 30)).astype(np.float32)
    odd = np.array([np.nan, np.inf, -0.0, 1e-45], np.float32)
    odd.view(np.uint32)[0] |= seed + 1  # A NaN with a payload.
    decoder = {"weight": jnp.asarray(normal), "bias": jnp.asarray(odd)}
    weights = Weights(decoder, (None, jnp.zeros((0, 3))))
    return {
        "weights": weights,
        "optimiser": optax.adam(1e-3).init(weights),
        "key": jax.random.key_data(jax.random.key(seed)),
        "update": jnp.asarray(seed, jnp.int32),
        "is_warm": jnp.asarray([True, False]),
        "half": jnp.asarray(normal[0], jnp.bfloat16),
        "empty_half": jnp.zeros((2, 0), jnp.bfloat16),
    }


def assert_identical(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def fail(line):
    pytest.fail(f"reported: {line}")


def restore(folder, like, *, report):
    return checkpoints.restore(folder, lambda update: like, report=report)


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def file_of(folder, update):
    return folder / "checkpoints" / f"{update}.safetensors"


# Orbax, which the first edition used, could not find folders with such names.
@pytest.mark.parametrize("name", ["run", "a[1]*?"])
def test_a_state_comes_back_bit_for_bit(tmp_path, name):
    state = make_state()
    save(tmp_path / name, 7, state)
    for like in (state, jax.eval_shape(lambda: state), jax.tree.map(np.asarray, state)):
        found = restore(tmp_path / name, like, report=fail)
        assert found is not None and found[0] == 7
        assert_identical(found[1], state)
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found[1]))


def test_any_type_comes_back_bit_for_bit(tmp_path):
    bits = np.arange(256, dtype=np.uint8).repeat(8)
    types = "int8 uint8 int16 uint16 int32 uint32 float16 float32 bfloat16 float8_e4m3fn complex64"
    state = {name: jnp.asarray(bits.view(name)) for name in types.split()}
    state |= {"is": bits % 3 == 0, "column": np.asfortranarray(np.arange(6.0, dtype="f4")[None])}
    state |= {"turned": np.arange(6, dtype=np.int32).reshape(2, 3).T}
    save(tmp_path, 1, state)
    assert_identical(restore(tmp_path, state, report=fail)[1], state)


def test_a_type_that_a_file_cannot_hold(tmp_path):
    with pytest.raises(InputError, match=r"x is int4\[2\]: a file can hold bool, int8, "):
        save(tmp_path, 1, {"x": jnp.zeros(2, jnp.int4)})


def test_arrays_have_memory_of_their_own():
    # JAX shares memory of this alignment if it may, and could not donate it to a computation.
    memory = np.zeros(1016, np.float32)
    start = -memory.ctypes.data % 64 // 4
    content = memory[start : start + 1000]
    found = placed({"x": content}, {"x": jnp.ones(1000)})
    content[:] = 1
    np.testing.assert_array_equal(found["x"], 0)


@pytest.mark.parametrize("state", [{}, {"none": None}, jnp.ones((0,)), jnp.ones(())])
def test_unusual_states(tmp_path, state):
    save(tmp_path, 0, state)
    update, found = restore(tmp_path, state, report=fail)
    assert update == 0
    assert_identical(found, state)


def test_one_field_of_a_state(tmp_path):
    state = make_state()
    save(tmp_path, 7, {**state, "weights_before": jnp.ones(1)})

    def part(like, *parts):
        return checkpoints.restore(tmp_path, lambda update: like, parts=parts, report=fail)

    update, found = part(state["weights"], "weights")
    assert update == 7
    assert_identical(found, state["weights"])
    assert_identical(part(state["key"], "key")[1], state["key"])
    # The first part that is there.
    assert_identical(part(state["weights"], "average", "weights", "key")[1], state["weights"])
    assert_identical(part(state["weights"].decoder, "weights/decoder")[1], state["weights"].decoder)
    with pytest.raises(InputError, match="it has no tensor decoder/bias"):
        part(state["weights"], "average", "other")


def test_the_structure_may_depend_on_the_update(tmp_path):
    """Each phase of a run has states of its own."""
    for update in (1, 2):
        save(tmp_path, update, [jnp.ones(update)])
    asked = []

    def like(update):
        asked.append(update)
        return [jnp.zeros(update)]

    assert_identical(checkpoints.restore(tmp_path, like, report=fail)[1], [jnp.ones(2)])
    assert asked == [2]


def test_other_programs_can_read_them(tmp_path):
    save(tmp_path, 7, {"params": [jnp.ones((2, 3))], "update": jnp.asarray(7)})
    tensors = safetensors.numpy.load_file(file_of(tmp_path, 7))
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "params/0": (2, 3),
        "update": (),
    }
    with safetensors.safe_open(file_of(tmp_path, 7), framework="numpy") as file:
        about = json.loads(file.metadata()["aisle"])
    assert (about["format"], about["update"], len(about["sha256"])) == (2, 7, 64)


def test_without_checkpoints(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        assert restore(folder, {}, report=fail) is None
        assert (latest(folder), updates(folder)) == (None, [])


def test_the_last_ones_are_kept_and_strangers_left_alone(tmp_path):
    for stranger in ("notes", "007", "9.safetensors"):
        (tmp_path / "stranger" / stranger).mkdir(parents=True)
    for stranger in ("5", "007.safetensors", "best.safetensors"):
        (tmp_path / "stranger" / stranger).touch()
    shutil.copytree(tmp_path / "stranger", tmp_path / "checkpoints")
    for update in (8, 10, 11, 12):
        save(tmp_path, update, make_state(update), keep=2)
    assert updates(tmp_path) == [11, 12]
    assert latest(tmp_path) == 12
    strangers = [path.name for path in (tmp_path / "stranger").iterdir()]
    assert names(tmp_path) == sorted([*strangers, "11.safetensors", "12.safetensors"])


def test_a_damaged_one_is_written_anew_when_the_run_comes_to_it_again(tmp_path):
    save(tmp_path, 7, make_state(7), keep=1)
    file_of(tmp_path, 9).touch()
    save(tmp_path, 8, make_state(8), keep=1)
    assert updates(tmp_path) == [8, 9]
    save(tmp_path, 9, make_state(9), keep=1)
    assert updates(tmp_path) == [9]
    assert_identical(restore(tmp_path, make_state(), report=fail)[1], make_state(9))


def mesh_of(num_devices):
    return Mesh(np.array(jax.devices()[:num_devices]), "batch")


@pytest.mark.parametrize("num_devices", [1, 8])
def test_a_state_of_two_devices_goes_where_it_is_wanted(tmp_path, num_devices):
    state = make_state()
    everywhere = NamedSharding(mesh_of(2), PartitionSpec())
    save(tmp_path, 7, jax.device_put(state, everywhere))
    wanted = NamedSharding(mesh_of(num_devices), PartitionSpec())
    structs = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=wanted), state)
    for like in (structs, jax.device_put(state, wanted)):
        _, found = restore(tmp_path, like, report=fail)
        assert_identical(found, state)
        assert all(leaf.sharding == wanted for leaf in jax.tree.leaves(found))


def test_an_array_that_was_free_to_move_stays_so(tmp_path):
    save(tmp_path, 7, jnp.ones(4))
    _, found = restore(tmp_path, jnp.ones(4), report=fail)
    spread = jax.device_put(jnp.ones(4), NamedSharding(mesh_of(2), PartitionSpec()))
    np.testing.assert_array_equal(found + spread, 2)


def flipped(content, position):
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def test_damage_anywhere_leads_to_the_checkpoint_before(tmp_path):
    for update in (1, 2):
        save(tmp_path, update, make_state(update, width=2))
    like = make_state(width=2)
    file = file_of(tmp_path, 2)
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    format_at = content.index(b'format\\": 2') + len(b'format\\": ')
    harms = [content[:size] for size in (0, 5, 8 + length, len(content) - 1)]
    harms.append(content.replace(b"sha256", b"sha257")[:-1] + b"\x01")
    # Some bytes of any field of the header, and of any tensor.
    harms += [flipped(content, i) for i in range(0, len(content), 13) if i != format_at]
    for harm in harms:
        file.write_bytes(harm)
        lines = []
        update, found = restore(tmp_path, like, report=lines.append)
        # Spaces and letters of JSON may differ and mean the same.
        assert (update, len(lines)) in ((1, 1), (2, 0))
        assert_identical(found, make_state(update, width=2))
        for line in lines:
            assert "\n" not in line
            assert f"{file} is damaged (" in line
            assert f"using {file_of(tmp_path, 1)} instead" in line
        assert lines or len(harm) == len(content)
    file.write_bytes(flipped(content, len(content) - 1))
    assert restore(tmp_path, like, report=lines.append)[0] == 1
    assert "checksum" in lines[-1]


def test_a_checkpoint_under_the_name_of_another_is_damage(tmp_path):
    save(tmp_path, 1, make_state(1))
    shutil.copy(file_of(tmp_path, 1), file_of(tmp_path, 2))
    lines = []
    assert restore(tmp_path, make_state(), report=lines.append)[0] == 1
    assert len(lines) == 1


def test_when_all_are_damaged(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for update in (1, 2):
        file_of(tmp_path, update).write_text("damage")
    message = r"no checkpoint in .* can be read \(2\.safetensors: .*; 1\.safetensors: "
    with pytest.raises(InputError, match=message) as caught:
        restore(tmp_path, make_state(), report=fail)
    assert "\n" not in str(caught.value)


def test_a_later_format_is_not_damage(tmp_path):
    about = {"format": 3, "update": 2, "sha256": "of another kind"}
    save(tmp_path, 1, {"x": np.ones(1)})
    safetensors.numpy.save_file({}, file_of(tmp_path, 2), {"aisle": json.dumps(about)})
    with pytest.raises(InputError, match=r"has format 3.* up to 2: install a newer aisle"):
        restore(tmp_path, {"x": np.ones(1)}, report=fail)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"half": jnp.ones(3)}, r"half is bfloat16\[30\], and float32\[3\] is needed"),
        ({"extra": jnp.ones(2)}, "it has no tensor extra"),
        ({"update": jnp.ones((), bool)}, r"update is int32\[\], and bool\[\] is needed"),
        ({"key": None}, "its tensor key is not needed"),
    ],
)
def test_another_model_is_not_damage(tmp_path, change, message):
    for update in (1, 2):
        save(tmp_path, update, make_state())
    with pytest.raises(InputError, match=message) as caught:
        restore(tmp_path, make_state() | change, report=fail)
    assert f"{file_of(tmp_path, 2)} is of another model or optimiser" in str(caught.value)
    assert "--" not in str(caught.value)


def test_leaves_are_found_by_name_and_not_by_place(tmp_path):
    class Before(NamedTuple):
        a: jax.Array
        b: jax.Array

    class After(NamedTuple):
        b: jax.Array
        a: jax.Array

    save(tmp_path, 1, Before(a=jnp.ones(2), b=jnp.zeros(2)))
    _, found = restore(tmp_path, After(a=jnp.ones(2), b=jnp.ones(2)), report=fail)
    assert_identical(found, After(a=jnp.ones(2), b=jnp.zeros(2)))


def test_a_disk_that_fails_costs_only_the_new_checkpoint(tmp_path, capfd):
    save(tmp_path, 1, make_state(1))
    with full_disk(100_000), pytest.raises(InputError, match="File too large") as caught:
        save(tmp_path, 2, make_state(2, width=4000), keep=1)
    assert "the one of update 1 is untouched" in str(caught.value)
    assert f"then resume {tmp_path}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["1.safetensors"]
    assert_identical(restore(tmp_path, make_state(), report=fail)[1], make_state(1))
    assert capfd.readouterr() == ("", "")


def test_an_impossible_folder(tmp_path):
    (tmp_path / "file").touch()
    for use in (
        lambda folder: save(folder, 1, {}),
        lambda folder: restore(folder, {}, report=fail),
    ):
        with pytest.raises(InputError, match="Not a directory") as caught:
            use(tmp_path / "file")
        assert "\n" not in str(caught.value)
    (tmp_path / "checkpoints" / "1.safetensors").mkdir(parents=True)
    with pytest.raises(InputError, match=r"Is a directory\): there is none yet"):
        save(tmp_path, 1, {})


SAVER = """
import itertools, pathlib, sys
import numpy as np
from aisle.runs.checkpoints import save
for update in itertools.count(1):
    save(pathlib.Path(sys.argv[1]), update, {"x": np.full((300, 1000), update, np.int32)}, keep=2)
    print(update, flush=True)
"""


def kill_while_saving(folder, seconds):
    """Kill a process some time after its second checkpoint; return the last one it completed."""
    command = [sys.executable, "-c", SAVER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lines = [process.stdout.readline() for _ in range(2)]
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        assert process.stderr.read() == b""
    return int(lines[-1])


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_leaves_the_last_checkpoint_and_nothing_for_long(tmp_path, seed):
    last = kill_while_saving(tmp_path, np.random.default_rng(seed).uniform(0, 0.1))
    update, found = restore(tmp_path, {"x": jnp.zeros((300, 1000), int)}, report=fail)
    assert update in (last, last + 1)
    np.testing.assert_array_equal(found["x"], update)
    save(tmp_path, update + 1, found, keep=2)
    assert names(tmp_path) == sorted(f"{at}.safetensors" for at in (update, update + 1))


def test_leftovers_are_no_checkpoints_and_go_with_the_next_one(tmp_path):
    save(tmp_path, 1, make_state(1))
    shutil.copy(file_of(tmp_path, 1), tmp_path / "checkpoints" / ".2.safetensors.123.partial")
    assert updates(tmp_path) == [1]
    save(tmp_path, 2, make_state(2))
    assert names(tmp_path) == ["1.safetensors", "2.safetensors"]
