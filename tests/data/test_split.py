import tracemalloc

import jax
import numpy as np
import pytest

from aisle.data import Split, View, spread
from aisle.data.split import CHUNK_BYTES


def test_take_copies_and_keeps_shape_and_type():
    array = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    taken = Split(array).take(np.array([3, 0, 3]))
    np.testing.assert_array_equal(taken, array[[3, 0, 3]])
    assert taken.dtype == np.float32
    assert taken.flags.c_contiguous
    assert not np.shares_memory(taken, array)


def test_examples_may_be_pytrees():
    arrays = {"x": np.arange(12).reshape(4, 3), "is_missing": np.eye(4, dtype=bool)}
    split = Split(arrays, np.array([3, 1]))
    assert len(split) == 2
    assert split.bytes_per_example == 3 * 8 + 4
    taken = split.take(np.array([0]))
    np.testing.assert_array_equal(taken["x"], [[9, 10, 11]])
    np.testing.assert_array_equal(taken["is_missing"], [[False, False, False, True]])
    assert jax.tree.map(lambda a: a.shape, split.example) == {"x": (3,), "is_missing": (4,)}


def test_take_goes_through_rows():
    split = Split(np.arange(10, dtype=np.uint8).reshape(5, 2), np.array([4, 1]))
    assert len(split) == 2
    np.testing.assert_array_equal(split.take(np.array([1, 0])), [[2, 3], [8, 9]])
    with pytest.raises(IndexError):
        split.take(np.array([2]))


def test_take_of_nothing_is_an_empty_block():
    assert Split(np.zeros((3, 2, 2))).take(np.array([], int)).shape == (0, 2, 2)


@pytest.mark.parametrize("order", ["C", "F"])
def test_foreign_byte_and_memory_orders_are_taken_as_native(order):
    array = np.asarray(np.arange(12.0).reshape(3, 4), ">f8", order=order)
    taken = Split(array).take(np.array([2, 1]))
    assert taken.dtype.isnative
    assert taken.flags.c_contiguous
    np.testing.assert_array_equal(taken, [[8, 9, 10, 11], [4, 5, 6, 7]])


@pytest.mark.parametrize("rows", [None, np.arange(0, 700, 3)])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.float16, np.float64])
def test_mean_over_many_chunks_is_the_mean(monkeypatch, rows, dtype):
    array = (np.random.default_rng(0).random((700, 5)) * 255).astype(dtype)
    split = Split(array, rows)
    small = Split.chunks
    monkeypatch.setattr(Split, "chunks", lambda self: small(self, num_bytes=100))
    assert len(list(split.chunks())) > 5
    chosen = array[slice(None) if rows is None else rows].astype(np.float64)
    np.testing.assert_allclose(split.mean(), chosen.mean(axis=0), rtol=1e-12)
    assert split.mean().shape == (5,)


def test_the_mean_is_that_of_what_the_model_sees():
    array = np.uint8([[[0, 255], [51, 0]], [[255, 255], [153, 0]]])
    seen = Split(array, None, View(is_grey=True, is_flat=True)).mean()
    np.testing.assert_allclose(seen, [0.5, 1.0, 0.4, 0.0])


def test_chunks_are_bounded_and_in_order():
    split = Split(np.arange(40, dtype=np.uint8).reshape(10, 4))
    blocks = list(split.chunks(num_bytes=12))
    assert [len(block) for block in blocks] == [3, 3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(blocks), split.arrays)


def test_chunks_of_examples_larger_than_a_chunk_are_single_examples():
    assert len(list(Split(np.zeros((3, 9))).chunks(num_bytes=1))) == 3


@pytest.mark.slow
def test_mean_does_not_hold_the_data_in_memory(tmp_path):
    path = tmp_path / "zeros.npy"
    shape = (6 * CHUNK_BYTES // 1024, 1024)
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape).flush()
    split = Split(np.load(path, mmap_mode="r"), np.arange(1, shape[0]))
    tracemalloc.start()
    try:
        assert not split.mean().any()
        assert tracemalloc.get_traced_memory()[1] < 4 * CHUNK_BYTES
    finally:
        tracemalloc.stop()


def test_a_digest_tells_other_examples_and_not_other_places():
    array = np.random.default_rng(0).normal(size=(3000, 4))
    whole = Split(array).digest()
    assert whole == Split(array.copy()).digest()
    assert whole == Split(np.concatenate([array[:1], array]), np.arange(1, 3001)).digest()
    assert Split(array.astype(bool)).digest() == Split(np.uint8(255 * (array != 0))).digest()
    others = [array + 1e-9, array[:-1], array.reshape(6000, 2), array.astype(np.float32)]
    assert len({whole, *(Split(other).digest() for other in others)}) == 5


@pytest.mark.parametrize(
    ("available", "wanted", "indices"),
    [(10, 3, [0, 3, 6]), (10, 10, range(10)), (10, 99, range(10)), (7, 1, [0]), (3, 2, [0, 1])],
)
def test_examples_are_spread_over_the_split(available, wanted, indices):
    assert spread(available, wanted).tolist() == list(indices)


@pytest.mark.parametrize("rows", [None, np.arange(40, 10, -1)])
def test_examples_that_are_split_off_are_the_same_ones_every_time(rows):
    whole = Split(np.arange(50)[:, None], rows, View(is_flat=True))
    rest, taken = whole.without(7)
    numbers = np.concatenate([rest.rows, taken.rows])
    assert (len(rest), len(taken)) == (len(whole) - 7, 7)
    assert sorted(numbers) == sorted(whole.numbers(np.arange(len(whole))))
    assert rest.view == taken.view == whole.view
    np.testing.assert_array_equal(taken.rows, whole.without(7)[1].rows)


def test_which_examples_are_split_off_never_changes():
    # With others, old results could not be compared with new ones.
    _, taken = Split(np.zeros((20, 1))).without(4)
    assert taken.rows.tolist() == [3, 9, 10, 19]


@pytest.mark.parametrize("number", [0, 20, 21, -1])
def test_all_examples_cannot_be_split_off(refused, number):
    with refused(f"{number} of 20", "at least 1"):
        Split(np.zeros((20, 1))).without(number)
