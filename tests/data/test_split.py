import tracemalloc

import numpy as np
import pytest

from aisle.data import Split, spread
from aisle.data.split import CHUNK_BYTES


def test_take_flattens_copies_and_keeps_the_type():
    array = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    taken = Split(array).take(np.array([3, 0, 3]))
    np.testing.assert_array_equal(taken, array.reshape(4, 6)[[3, 0, 3]])
    assert taken.dtype == np.float32
    assert taken.flags.c_contiguous
    assert not np.shares_memory(taken, array)


def test_take_goes_through_rows():
    split = Split(np.arange(10, dtype=np.uint8).reshape(5, 2), np.array([4, 1]))
    assert len(split) == 2
    np.testing.assert_array_equal(split.take(np.array([1, 0])), [[2, 3], [8, 9]])
    with pytest.raises(IndexError):
        split.take(np.array([2]))


def test_take_of_nothing_is_an_empty_block():
    assert Split(np.zeros((3, 2, 2))).take(np.array([], int)).shape == (0, 4)


def test_bool_is_handed_out_as_black_and_white():
    split = Split(np.array([[True, False], [True, True]]))
    taken = split.take(np.array([0, 1]))
    assert taken.dtype == split.dtype == np.uint8
    np.testing.assert_array_equal(taken, [[255, 0], [255, 255]])
    np.testing.assert_allclose(split.mean(), [1.0, 0.5])


@pytest.mark.parametrize("order", ["C", "F"])
def test_foreign_byte_and_memory_orders_are_taken_as_native(order):
    array = np.asarray(np.arange(12.0).reshape(3, 4), ">f8", order=order)
    taken = Split(array).take(np.array([2, 1]))
    assert taken.dtype.isnative
    assert taken.flags.c_contiguous
    np.testing.assert_array_equal(taken, [[8, 9, 10, 11], [4, 5, 6, 7]])


@pytest.mark.parametrize("rows", [None, np.arange(0, 700, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64])
def test_mean_over_many_chunks_is_the_mean(monkeypatch, rows, dtype):
    array = (np.random.default_rng(0).random((700, 5)) * 255).astype(dtype)
    split = Split(array, rows)
    small = Split.chunks
    monkeypatch.setattr(Split, "chunks", lambda self: small(self, num_bytes=100))
    assert len(list(split.chunks())) > 5
    chosen = array[slice(None) if rows is None else rows].astype(np.float64)
    expected = chosen.mean(axis=0) / (255 if dtype == np.uint8 else 1)
    np.testing.assert_allclose(split.mean(), expected, rtol=1e-12)
    assert split.mean().shape == (5,)


def test_chunks_are_bounded_and_in_order():
    split = Split(np.arange(40, dtype=np.uint8).reshape(10, 4))
    blocks = list(split.chunks(num_bytes=12))
    assert [len(block) for block in blocks] == [3, 3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(blocks), split.array)


def test_chunks_of_examples_larger_than_a_chunk_are_single_examples():
    assert len(list(Split(np.zeros((3, 9))).chunks(num_bytes=1))) == 3


def test_fits_in_counts_the_rows_of_the_split_only():
    split = Split(np.zeros((10, 3, 2), np.float32), np.arange(5))
    assert split.fits_in(5 * 6 * 4)
    assert not split.fits_in(5 * 6 * 4 - 1)


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
