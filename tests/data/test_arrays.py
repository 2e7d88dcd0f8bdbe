import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from aisle.data import load


def saved(path, *args, **arrays):
    np.savez(path, *args, **arrays) if path.suffix == ".npz" else np.save(path, *args)
    return str(path)


def all_of(split):
    return split.take(np.arange(len(split)))


@pytest.mark.parametrize(
    ("num_rows", "num_valid", "num_test"), [(3, 1, 1), (10, 1, 1), (57, 5, 5), (200, 18, 20)]
)
def test_an_npy_is_split_into_three_disjoint_parts(tmp_path, num_rows, num_valid, num_test):
    array = np.arange(num_rows * 6, dtype=np.float32).reshape(num_rows, 2, 3)
    data = load(saved(tmp_path / "mine.npy", array))
    assert (len(data.valid), len(data.test)) == (num_valid, num_test)
    every = np.concatenate([all_of(part) for part in (data.train, data.valid, data.test)])
    np.testing.assert_array_equal(every[np.argsort(every[:, 0, 0])], array)
    assert (data.name, data.shape) == ("mine", (2, 3))
    assert data.source == str(tmp_path / "mine.npy")
    # The test part is the same whatever is split off for validation.
    for number in (0, 2 if num_rows > 3 else 1):
        again = load(tmp_path / "mine.npy", num_valid=number)
        assert (len(again.valid) if number else again.valid) == (number or None)
        np.testing.assert_array_equal(again.test.rows, data.test.rows)
        assert len(again.train) == num_rows - num_test - number


def test_the_same_rows_are_held_out_every_time(tmp_path):
    path = saved(tmp_path / "x.npy", np.zeros((500, 2)))
    for part in ("train", "valid", "test"):
        first, second = (getattr(load(path), part).rows for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_an_npy_is_mapped_and_shared_by_all_parts(tmp_path):
    data = load(saved(tmp_path / "x.npy", np.zeros((20, 3))))
    assert isinstance(data.train.arrays, np.memmap)
    assert data.train.arrays is data.valid.arrays is data.test.arrays
    assert not isinstance(data.train.take(np.array([0, 1])), np.memmap)


def test_an_npy_larger_than_memory_opens_at_once(tmp_path):
    path = tmp_path / "huge.npy"
    shape = (400_000, 64, 256)  # 6.6 GB, of which the file system stores one row
    huge = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    huge[1:4] = 7
    huge.flush()
    del huge
    tracemalloc.start()
    start = time.perf_counter()
    try:
        data = load(str(path))
        taken = data.train.take(np.arange(50))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 5
    assert peak < 50e6
    assert taken.shape == (50, 64, 256)
    np.testing.assert_array_equal(taken[:, 0, 0], 7 * np.isin(data.train.rows[:50], [1, 2, 3]))


def test_an_npz_has_its_own_test_part(tmp_path):
    train, test = np.zeros((4, 3), np.uint8), np.full((1, 3), 9, np.uint8)
    data = load(saved(tmp_path / "x.npz", train=train, test=test, labels=np.arange(4)))
    assert (len(data.train), len(data.valid), len(data.test)) == (3, 1, 1)
    np.testing.assert_array_equal(all_of(data.test), test)
    assert not all_of(data.valid).any()
    whole = load(tmp_path / "x.npz", num_valid=0)
    assert (len(whole.train), whole.valid, len(whole.test)) == (4, None, 1)


@pytest.mark.parametrize("has_test", [True, False])
def test_an_npz_has_its_own_valid_part(tmp_path, refused, has_test):
    parts = {"train": np.arange(20)[:, None], "valid": np.array([[100], [101]])}
    if has_test:
        parts["test"] = np.array([[200]])
    path = saved(tmp_path / "x.npz", **parts)
    data = load(path)
    np.testing.assert_array_equal(all_of(data.valid), parts["valid"])
    trained, tested = all_of(data.train).ravel(), all_of(data.test).ravel()
    if has_test:
        assert (trained.tolist(), tested.tolist()) == (list(range(20)), [200])
    else:
        assert len(tested) == 2
        assert sorted([*trained, *tested]) == list(range(20))
    for number in (0, 3):
        with refused(f"num_valid is {number}", path, "valid", "leave it out"):
            load(path, num_valid=number)


@pytest.mark.parametrize("name", ["train", "anything", "test"])
def test_an_npz_of_one_array_is_split(tmp_path, name):
    data = load(saved(tmp_path / "x.npz", **{name: np.zeros((30, 4, 5))}))
    sizes = [len(part) for part in (data.train, data.valid, data.test)]
    assert (sizes, data.shape) == ([25, 2, 3], (4, 5))


def test_train_is_split_also_next_to_other_arrays(tmp_path):
    data = load(saved(tmp_path / "x.npz", train=np.zeros((30, 4)), labels=np.zeros(30)))
    assert [len(part) for part in (data.train, data.valid, data.test)] == [25, 2, 3]


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("num_valid", [-1, 27, 1.5])
def test_a_number_of_validation_examples_that_cannot_be_is_refused(tmp_path, refused, num_valid):
    path = saved(tmp_path / "x.npy", np.zeros((30, 4)))
    with refused(num_valid):
        load(path, num_valid=num_valid)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, int, np.float16, np.float64, ">f4"])
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_types_are_kept(tmp_path, dtype, ending):
    data = load(saved(tmp_path / f"x.{ending}", np.ones((3, 2), dtype)))
    assert data.train.take(np.array([0])).dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize("ending", ["npy", "npz"])
@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.float32(3), ["shape ()", "(N, D)"]),
        (np.zeros(5), ["shape (5,)", "(N, D)"]),
        (np.zeros((1, 5)), ["shape (1, 5)", "at least 2 rows"]),
        (np.zeros((0, 5)), ["shape (0, 5)", "at least 2 rows"]),
        (np.zeros((5, 0)), ["shape (5, 0)", "one value in a row"]),
        (np.zeros((5, 2), complex), ["complex128", "np.float32"]),
        (np.zeros((5, 2), object), ["object", "np.float32"]),
        (np.zeros((5, 2), "U3"), ["U3", "np.float32"]),
        (np.zeros((5, 2), [("\u03b2", "f4")]), ["f4"]),
    ],
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_arrays_that_cannot_be_used_are_refused(tmp_path, refused, ending, array, words):
    path = saved(tmp_path / f"bad.{ending}", array)
    with refused(path, *words):
        load(path)


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [
        (np.zeros((5, 2)), np.zeros((5, 3)), ["(2,)", "(3,)", "same shape"]),
        (np.zeros((5, 2)), np.zeros((5, 2), np.uint8), ["float64", "uint8", "same type"]),
        (np.zeros((5, 2)), np.zeros((0, 2)), ["test in", "at least 1 row "]),
        (np.zeros((1, 2)), np.zeros((3, 2)), ["train in", "at least 2 rows"]),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(tmp_path, refused, train, test, words):
    path = saved(tmp_path / "x.npz", train=train, test=test)
    with refused(path, *words):
        load(path)


def test_an_npz_without_a_clear_array_is_refused(tmp_path, refused):
    path = saved(tmp_path / "x.npz", x=np.zeros((5, 2)), y=np.zeros((5, 2)))
    with refused(path, "x, y", "train"):
        load(path)


def test_an_npz_without_arrays_is_refused(tmp_path, refused):
    path = saved(tmp_path / "x.npz")
    with refused(path, "no arrays", "train"):
        load(path)


@pytest.mark.parametrize("ending", ["npy", "npz"])
@pytest.mark.parametrize("keep", [0, 3, 40, 200, -60])
def test_truncated_files_are_refused(tmp_path, refused, ending, keep):
    path = tmp_path / f"x.{ending}"
    saved(path, np.random.default_rng(0).random((50, 20)))
    path.write_bytes(path.read_bytes()[:keep])
    with refused(path, "cut short", "save it again"):
        load(str(path))


def test_a_flipped_bit_in_an_npz_is_refused(tmp_path, refused):
    path = tmp_path / "x.npz"
    saved(path, np.zeros((50, 20)))
    content = bytearray(path.read_bytes())
    content[2000] ^= 4
    path.write_bytes(content)
    with refused(path, "CRC", "save it again"):
        load(str(path))


@pytest.mark.parametrize(("given", "real"), [("npy", "npz"), ("npz", "npy")])
def test_a_file_with_the_wrong_ending_is_refused(tmp_path, refused, given, real):
    saved(tmp_path / f"x.{real}", np.zeros((5, 2)))
    path = (tmp_path / f"x.{real}").rename(tmp_path / f"x.{given}")
    with refused(path, "not a NumPy file"):
        load(str(path))


def test_pickles_are_never_opened(tmp_path, refused):
    import pickle

    path = tmp_path / "x.npy"
    path.write_bytes(pickle.dumps([[1.0, 2.0]] * 5))
    with refused(path, "not a NumPy file"):
        load(str(path))


def test_a_file_that_is_not_there_is_refused(tmp_path, refused):
    with refused(tmp_path / "no.npy", "is not a file"):
        load(str(tmp_path / "no.npy"))
    with refused(tmp_path, "is not a file"):
        load(str(tmp_path))


def test_a_file_of_another_kind_is_refused(tmp_path, refused):
    (tmp_path / "x.txt").write_text("1,2")
    with refused(
        tmp_path / "x.txt",
        "is neither a table (.csv, .tsv, .parquet, .h5ad) nor .npy or .npz",
        "np.save",
    ):
        load(str(tmp_path / "x.txt"))


def test_a_file_without_permission_is_refused(tmp_path, refused, monkeypatch):
    def fail(*_args):
        raise PermissionError(13, "Permission denied")

    path = saved(tmp_path / "x.npy", np.zeros((5, 2)))
    monkeypatch.setattr(Path, "open", fail)
    with refused(path, "cannot read", "permissions"):
        load(path)


def test_an_npz_larger_than_memory_points_to_npy(tmp_path, refused, monkeypatch):
    def fail(*_args, **_options):
        raise MemoryError

    path = saved(tmp_path / "x.npz", np.zeros((5, 2)))
    monkeypatch.setattr(np.lib.format, "read_array", fail)
    with refused(path, "memory", ".npy"):
        load(path)
