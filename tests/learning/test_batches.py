import threading

import jax
import numpy as np
import pytest

from aisle.data import Split
from aisle.learning.batches import STREAMED_BYTES, Chunk, Feeder

NUM_EXAMPLES, BATCH_SIZE, CAPACITY = 23, 4, 6
UPDATES_PER_EPOCH = 5  # and three examples are left over


@pytest.fixture
def array():
    """Examples of shape (2, 1) that say which one they are."""
    index = np.arange(NUM_EXAMPLES, dtype=np.float32)
    return np.stack([index, -index], axis=1)[:, :, None]


@pytest.fixture
def feeder(array):
    """Makes feeders, and closes them."""
    made = []

    def make(data=array, seed=0, num_devices=1, **options):
        mesh = jax.sharding.Mesh(jax.devices()[:num_devices], ("batch",))
        made.append(Feeder(Split(data), BATCH_SIZE, seed, mesh, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def readers(monkeypatch):
    """The threads that have read examples, in order."""
    names, take = [], Split.take

    def recorded(self, indices):
        names.append(threading.current_thread().name)
        return take(self, indices)

    monkeypatch.setattr(Split, "take", recorded)
    return names


def seen(feeder, first, number, following=None, capacity=CAPACITY):
    """Return the indices of a chunk, after checking that its examples are the ones they name."""
    batches = feeder.batches(Chunk(first, number), following, capacity)
    assert batches.positions.shape == batches.indices.shape == (capacity, BATCH_SIZE)
    indices = np.asarray(batches.indices)[:number]
    rows = np.asarray(batches.examples)[np.asarray(batches.positions)[:number]]
    np.testing.assert_array_equal(rows[..., 0], np.stack([indices, -indices], axis=-1))
    return indices


def epoch(feeder, number):
    return seen(feeder, number * UPDATES_PER_EPOCH, UPDATES_PER_EPOCH)


def test_no_example_comes_twice_in_an_epoch(feeder):
    one = feeder()
    assert one.updates_per_epoch == UPDATES_PER_EPOCH
    for number in range(20):
        found = epoch(one, number).ravel()
        assert len(set(found)) == UPDATES_PER_EPOCH * BATCH_SIZE
        assert set(found) <= set(range(NUM_EXAMPLES))


def test_all_examples_come_when_the_batches_divide_them(feeder, array):
    found = epoch(feeder(array[:20]), 0)
    assert sorted(found.ravel()) == list(range(20))


def test_the_examples_left_over_vary(feeder):
    one, everyone = feeder(), set(range(NUM_EXAMPLES))
    left = [frozenset(everyone - set(epoch(one, number).ravel())) for number in range(40)]
    assert all(len(some) == 3 for some in left)
    assert len(set(left)) > 30
    assert frozenset().union(*left) == everyone


def test_epochs_and_seeds_have_their_own_orders(feeder):
    orders = [tuple(epoch(feeder(seed=s), n).ravel()) for s in (0, 1, 2) for n in (0, 1, 2)]
    assert len(set(orders)) == 9
    assert orders[4] == tuple(epoch(feeder(seed=1), 1).ravel())


@pytest.mark.parametrize("resident_bytes", [0, 1 << 30], ids=["streamed", "resident"])
def test_the_order_does_not_depend_on_chunks(feeder, resident_bytes):
    one = feeder(resident_bytes=resident_bytes)
    wanted = epoch(one, 3)
    for lengths in ([1] * 5, [2, 3], [4, 1]):
        starts = np.cumsum([0, *lengths[:-1]]) + 3 * UPDATES_PER_EPOCH
        parts = [seen(one, int(s), n) for s, n in zip(starts, lengths, strict=True)]
        np.testing.assert_array_equal(np.concatenate(parts), wanted)
    np.testing.assert_array_equal(seen(one, 15, 5, capacity=9), wanted)


@pytest.mark.parametrize("num_devices", [1, 2])
def test_streamed_examples_are_the_resident_ones(feeder, array, tmp_path, num_devices):
    np.save(tmp_path / "x.npy", array)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    resident = feeder(num_devices=num_devices)
    others = [feeder(data, num_devices=num_devices, resident_bytes=0) for data in (array, mapped)]
    for number in range(3):
        wanted = epoch(resident, number)
        for other in others:
            np.testing.assert_array_equal(epoch(other, number), wanted)


def test_resident_examples_are_read_once_and_streamed_ones_by_need(feeder, array, readers):
    resident = feeder(resident_bytes=array.nbytes)
    for number in range(3):
        epoch(resident, number)
    assert len(readers) == 1
    streamed = feeder(resident_bytes=array.nbytes - 1)
    assert len(readers) == 1
    batches = streamed.batches(Chunk(0, 2), None, CAPACITY)
    assert len(readers) == 2
    assert batches.examples.shape == (CAPACITY * BATCH_SIZE, 2, 1)


def test_batches_are_spread_over_the_devices(feeder):
    for resident_bytes in (0, 1 << 30):
        batches = feeder(num_devices=4, resident_bytes=resident_bytes).batches(
            Chunk(0, 2), None, CAPACITY
        )
        assert batches.positions.sharding.shard_shape(batches.positions.shape) == (CAPACITY, 1)
        assert batches.indices.sharding == batches.positions.sharding
        assert batches.examples.sharding.is_fully_replicated


def test_the_announced_chunk_is_read_ahead(feeder, readers):
    one, wanted = feeder(resident_bytes=0), epoch(feeder(), 0)
    del readers[:]
    seen(one, 0, 2, following=Chunk(2, 3))
    np.testing.assert_array_equal(seen(one, 2, 3), wanted[2:])
    assert len(readers) == 2
    assert readers[0] == "MainThread"
    assert readers[1].startswith("aisle-feeder")


def test_another_chunk_than_announced_is_read_anew(feeder):
    one, wanted = feeder(resident_bytes=0), epoch(feeder(), 0)
    seen(one, 0, 1, following=Chunk(1, 4))
    np.testing.assert_array_equal(seen(one, 1, 2, following=Chunk(3, 2)), wanted[1:3])
    np.testing.assert_array_equal(seen(one, 0, 2, following=Chunk(2, 1)), wanted[:2])
    np.testing.assert_array_equal(seen(one, 2, 1), wanted[2:3])


def test_a_failure_while_reading_ahead_is_reported(feeder, monkeypatch):
    one = feeder(resident_bytes=0)
    seen(one, 0, 1)

    def fail(self, indices):
        raise OSError("the disk is gone")

    monkeypatch.setattr(Split, "take", fail)
    one._ahead = (Chunk(1, 1), one._worker.submit(one._load, Chunk(1, 1), CAPACITY))
    with pytest.raises(OSError, match="the disk is gone"):
        one.batches(Chunk(1, 1), None, CAPACITY)


@pytest.mark.parametrize("resident_bytes", [0, 1 << 30], ids=["streamed", "resident"])
def test_closing_twice_is_harmless_and_ends_the_thread(feeder, resident_bytes):
    one = feeder(resident_bytes=resident_bytes)
    seen(one, 0, 1, following=Chunk(1, 1))
    one.close()
    one.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("aisle-feeder") for name in names)


def test_chunks_of_large_examples_are_short():
    split = Split(np.zeros((4, 1 << 20), np.float32))
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("batch",))
    streamed = Feeder(split, 2, 0, mesh, resident_bytes=0)
    assert streamed.largest_chunk(64) == STREAMED_BYTES // (2 * 4 << 20)
    assert Feeder(split, 2, 0, mesh).largest_chunk(64) == 64


@pytest.mark.parametrize("resident_bytes", [0, 1 << 30], ids=["streamed", "resident"])
def test_each_array_of_a_tree_keeps_its_type(feeder, array, resident_bytes):
    tree = {"index": np.arange(NUM_EXAMPLES, dtype=np.uint8), "row": array}
    batches = feeder(tree, resident_bytes=resident_bytes).batches(Chunk(0, 2), None, CAPACITY)
    assert batches.examples["index"].dtype == np.uint8
    rows = np.asarray(batches.examples["row"])[:, 0, 0]
    np.testing.assert_array_equal(batches.examples["index"], rows)
    chosen = np.asarray(batches.positions)[:2]
    np.testing.assert_array_equal(rows[chosen], np.asarray(batches.indices)[:2])


def test_examples_of_a_split_keep_their_numbers(feeder, array):
    """Their draws derive from these, whichever other examples were set aside."""
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("batch",))
    split = Split(array, np.arange(1, NUM_EXAMPLES, 2))
    one = Feeder(split, BATCH_SIZE, 0, mesh)
    found = seen(one, 0, 2)
    one.close()
    assert set(found.ravel()) <= set(range(1, NUM_EXAMPLES, 2))
