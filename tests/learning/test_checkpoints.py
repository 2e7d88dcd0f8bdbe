import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aisle.errors import InputError
from aisle.learning import checkpoints
from aisle.learning.checkpoints import latest, restore, save, updates


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
    }


def assert_identical(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def fail(line):
    pytest.fail(f"reported: {line}")


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_state_comes_back_bit_for_bit(tmp_path):
    state = make_state()
    save(tmp_path, 7, state)
    for like in (state, jax.eval_shape(lambda: state), jax.tree.map(np.asarray, state)):
        found = restore(tmp_path, like, report=fail)
        assert found is not None and found[0] == 7
        assert_identical(found[1], state)
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found[1]))


def test_a_restored_state_can_be_donated(tmp_path):
    save(tmp_path, 7, {"x": jnp.arange(1000.0)})
    _, state = restore(tmp_path, {"x": jnp.arange(1000.0)}, report=fail)
    double = jax.jit(lambda x: 2 * x, donate_argnums=0)
    np.testing.assert_array_equal(double(state["x"]), 2 * np.arange(1000.0))


@pytest.mark.parametrize("state", [{}, {"none": None}, jnp.ones((0,)), jnp.ones(())])
def test_unusual_states(tmp_path, state):
    save(tmp_path, 0, state)
    update, found = restore(tmp_path, state, report=fail)
    assert update == 0
    assert_identical(found, state)


def test_without_checkpoints(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        assert (restore(folder, {}, report=fail), latest(folder), updates(folder)) == (
            None,
            None,
            [],
        )


def test_the_last_ones_are_kept_and_strangers_left_alone(tmp_path):
    for stranger in ("notes", "007"):
        (tmp_path / "checkpoints" / stranger).mkdir(parents=True)
    (tmp_path / "checkpoints" / "5").touch()
    for update in (8, 9, 10, 11):
        save(tmp_path, update, make_state(update), keep=2)
    assert updates(tmp_path) == [10, 11]
    assert latest(tmp_path) == 11
    assert names(tmp_path) == ["007", "10", "11", "5", "notes"]


def test_saving_again_changes_nothing(tmp_path):
    def contents():
        return {path: path.read_bytes() for path in files(tmp_path)}

    save(tmp_path, 7, make_state(0))
    before = contents()
    save(tmp_path, 7, make_state(1))
    assert contents() == before


def test_a_damaged_one_is_written_anew_when_the_run_comes_to_it_again(tmp_path):
    save(tmp_path, 7, make_state(7), keep=1)
    (tmp_path / "checkpoints" / "9").mkdir()
    save(tmp_path, 8, make_state(8), keep=1)
    assert updates(tmp_path) == [8, 9]
    save(tmp_path, 9, make_state(9), keep=1)
    assert updates(tmp_path) == [9]
    assert_identical(restore(tmp_path, make_state(), report=fail)[1], make_state(9))


def mesh_of(num_devices):
    return Mesh(np.array(jax.devices()[:num_devices]), "batch")


@pytest.mark.parametrize("num_devices", [1, 2, 8])
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


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [Path.unlink, cut, empty, flip])
def test_harm_to_any_file_leads_to_the_right_values(tmp_path, harm):
    save(tmp_path / "good", 1, make_state(1))
    save(tmp_path / "good", 2, make_state(2))
    whole = files(tmp_path / "good" / "checkpoints" / "2")
    assert len(whole) > 8
    num_fallbacks = 0
    for index, path in enumerate(whole):
        folder = tmp_path / str(index)
        shutil.copytree(tmp_path / "good", folder)
        harm(folder / path.relative_to(tmp_path / "good"))
        lines = []
        update, found = restore(folder, make_state(), report=lines.append)
        assert_identical(found, make_state(update))
        assert len(lines) == 2 - update
        for line in lines:
            assert "\n" not in line
            assert f"{folder / 'checkpoints' / '2'} is damaged" in line
            assert f"using {folder / 'checkpoints' / '1'}" in line
        num_fallbacks += len(lines)
    assert num_fallbacks > 2


def test_other_values_of_the_same_shapes_are_damage(tmp_path):
    for update in (1, 2):
        save(tmp_path, update, make_state(update))
    save(tmp_path / "other", 2, make_state(3))
    state = tmp_path / "checkpoints" / "2" / "state"
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "other" / "checkpoints" / "2" / "state", state)
    lines = []
    assert restore(tmp_path, make_state(), report=lines.append)[0] == 1
    assert "checksum" in lines[0]


def test_when_all_are_damaged(tmp_path):
    for update in (1, 2):
        (tmp_path / "checkpoints" / str(update)).mkdir(parents=True)
    with pytest.raises(InputError, match=r"no checkpoint in .* can be read \(2: .*; 1: ") as caught:
        restore(tmp_path, make_state(), report=fail)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (make_state(width=41), r"decoder/weight float32\[40,30\] where this one has .*\[41,30\]"),
        (make_state() | {"extra": jnp.ones(2)}, r"where this one has extra float32\[2\]"),
        (make_state() | {"update": jnp.ones((), bool)}, r"update int32\[\] where this .* bool\[\]"),
        (make_state() | {"key": None}, r"it has key uint32\[2\]"),
        ({}, "where this one has nothing more"),
    ],
)
def test_another_model_is_not_damage(tmp_path, like, message):
    for update in (1, 2):
        save(tmp_path, update, make_state())
    with pytest.raises(InputError, match=message) as caught:
        restore(tmp_path, like, report=fail)
    assert str(tmp_path / "checkpoints" / "2") in str(caught.value)


def test_arrays_that_changed_places_are_another_model(tmp_path):
    class Before(NamedTuple):
        a: jax.Array
        b: jax.Array

    class After(NamedTuple):
        b: jax.Array
        a: jax.Array

    save(tmp_path, 1, Before(jnp.ones(2), jnp.zeros(2)))
    with pytest.raises(InputError, match="another model"):
        restore(tmp_path, After(jnp.ones(2), jnp.ones(2)), report=fail)


@pytest.fixture
def small_files_only():
    """Make the system refuse to write much into a file, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_fails_costs_only_the_new_checkpoint(tmp_path, small_files_only, capfd):
    save(tmp_path, 1, make_state(1))
    with pytest.raises(InputError, match="File too large") as caught:
        save(tmp_path, 2, [make_state(2, width=4000)] * 9)
    assert f"{tmp_path / 'checkpoints' / '1'}, is intact" in str(caught.value)
    assert f"--resume {tmp_path}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["1"]
    assert_identical(restore(tmp_path, make_state(), report=fail)[1], make_state(1))
    assert capfd.readouterr() == ("", "")


def test_an_impossible_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"Not a directory\): there is no earlier checkpoint"):
        save(tmp_path / "file", 1, make_state())
    with pytest.raises(InputError, match="Not a directory"):
        restore(tmp_path / "file", make_state(), report=fail)


def test_a_fault_of_the_program_is_not_called_one_of_the_disk(tmp_path, monkeypatch):
    def fault(path, contents):
        raise ValueError("a fault")

    monkeypatch.setattr(checkpoints, "_write", fault)
    with pytest.raises(ValueError, match=r"^a fault$"):
        save(tmp_path, 1, make_state())


@pytest.mark.parametrize(("update", "keep"), [(-1, 1), (0, 0)])
def test_numbers_out_of_range(tmp_path, update, keep):
    with pytest.raises(InputError, match="at least"):
        save(tmp_path, update, make_state(), keep=keep)


SAVER = """
import itertools, pathlib, sys
import jax.numpy as jnp
from aisle.learning.checkpoints import save
for update in itertools.count(1):
    save(pathlib.Path(sys.argv[1]), update, {"x": jnp.full((300, 1000), update)}, keep=2)
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


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_leaves_the_last_checkpoint_and_nothing_for_long(tmp_path, seed):
    last = kill_while_saving(tmp_path, np.random.default_rng(seed).uniform(0, 0.3))
    update, found = restore(tmp_path, {"x": jnp.zeros((300, 1000), int)}, report=fail)
    assert update in (last, last + 1)
    np.testing.assert_array_equal(found["x"], update)
    save(tmp_path, update + 1, found, keep=2)
    assert names(tmp_path) == sorted([str(update), str(update + 1)])


def test_leftovers_are_no_checkpoints_and_go_with_the_next_one(tmp_path):
    save(tmp_path, 1, make_state(1))
    home = tmp_path / "checkpoints"
    for leftover in ("2.orbax-checkpoint-tmp", "2.orbax-checkpoint-tmp-123", "0.removed"):
        shutil.copytree(home / "1", home / leftover)
    assert updates(tmp_path) == [1]
    save(tmp_path, 2, make_state(2))
    assert names(tmp_path) == ["1", "2"]
