import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from aisle.data import Split
from aisle.data.readers import TEST_SEED, read_idx, read_mat, read_npz, read_sklearn, read_verified
from aisle.data.sources import SOURCES, DataFile, Form, Source

FIX = "delete it and run `aisle data fetch"


def pictures(kind, name, shape=(2, 3)):
    """A data set of 5 and 2 pictures whose file is not checked for its hash."""
    return Source("tiny", "", 5, 1, 2, shape, "", (Form(kind, (DataFile(name),)),))


def test_digits_are_scaled_and_split_the_same_way_every_time():
    source = SOURCES["digits"]
    train, test = read_sklearn(Path(), source.forms[0], source)
    assert train.shape == (1500, 8, 8)
    assert test.shape == (297, 8, 8)
    assert train.dtype == test.dtype == np.uint8
    levels = np.unique(np.concatenate([train, test]))
    np.testing.assert_array_equal(levels, np.rint(np.arange(17) * 255 / 16))


def test_digits_are_all_there_once():
    from sklearn.datasets import load_digits

    source = SOURCES["digits"]
    parts = np.concatenate(read_sklearn(Path(), source.forms[0], source)).reshape(-1, 64)
    originals = load_digits(return_X_y=True)[0]
    assert sorted(map(tuple, np.rint(parts * 16.0 / 255))) == sorted(map(tuple, originals))


def test_held_out_rows_never_change():
    train, test = Split(np.zeros((20, 1))).without(4, TEST_SEED)
    # Which examples are held out: with others, old results could not be compared with new ones.
    np.testing.assert_array_equal(test.rows, [4, 6, 9, 12])
    assert (np.diff(train.rows) > 0).all()


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_zipped_or_not(tiny, tmp_path, zipped):
    folder = tiny.write(tmp_path, tiny.zipped if zipped else tiny.raw)
    train, test = read_idx(folder, tiny.source.forms[0 if zipped else 1], tiny.source)
    np.testing.assert_array_equal(train, tiny.train)
    np.testing.assert_array_equal(test, tiny.test)


def test_the_content_decides_and_not_the_way_it_was_zipped(tiny, tmp_path):
    again = {f"{name}.gz": gzip.compress(raw, 1, mtime=1) for name, raw in tiny.raw.items()}
    assert again != tiny.zipped
    train, _ = read_idx(tiny.write(tmp_path, again), tiny.source.forms[0], tiny.source)
    np.testing.assert_array_equal(train, tiny.train)


def test_a_changed_pixel_is_refused_with_both_hashes(tiny, tmp_path, refused):
    raw = bytearray(tiny.raw["train.idx"])
    raw[-1] ^= 1
    folder = tiny.write(tmp_path, tiny.zipped | {"train.idx.gz": gzip.compress(raw)})
    file = tiny.source.forms[0].files[0]
    with refused(folder / file.name, f"should have {file.content} but has md5:", FIX):
        read_idx(folder, tiny.source.forms[0], tiny.source)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b[:5], lambda _: b"no", lambda _: b""]
)
def test_a_damaged_gzip_file_is_refused(tiny, tmp_path, refused, damage):
    content = damage(tiny.zipped["train.idx.gz"])
    folder = tiny.write(tmp_path, tiny.zipped | {"train.idx.gz": content})
    with refused(folder / "train.idx.gz", FIX):
        read_idx(folder, tiny.source.forms[0], tiny.source)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda tiny: b"\0\0\x08\1" + tiny.raw["train.idx"][4:], "magic number 2051"),
        (lambda tiny: tiny.raw["train.idx"][:9], "magic number 2051"),
        (lambda tiny: tiny.raw["train.idx"][:-1], "promises 36 pixels but 35 follow"),
        (lambda tiny: tiny.raw["test.idx"], "should hold (6, 2, 3) uint8 but holds (3, 2, 3)"),
    ],
)
def test_idx_files_of_another_form_are_refused(tiny, tmp_path, refused, content, words):
    source = tiny.with_checksums(False)
    folder = tiny.write(tmp_path, tiny.raw | {"train.idx": content(tiny)})
    with refused(folder / "train.idx", words, FIX):
        read_idx(folder, source.forms[1], source)


def test_mat_pictures_are_turned_upright(tmp_path):
    rng = np.random.default_rng(0)
    train, test = rng.random((5, 2, 3)), rng.random((2, 2, 3))
    columns = {  # as MATLAB does with X(:), one picture after another
        key: np.stack([picture.ravel(order="F") for picture in array], axis=1)
        for key, array in (("data", train), ("testdata", test))
    }
    savemat(tmp_path / "chars.mat", columns)
    source = pictures("mat", "chars.mat")
    read = read_mat(tmp_path, source.forms[0], source)
    for found, expected in zip(read, (train, test), strict=True):
        np.testing.assert_array_equal(found, np.rint(255 * expected))
        assert found.dtype == np.uint8
        assert found.flags.c_contiguous


def mat_bytes(**arrays):
    file = io.BytesIO()
    savemat(file, arrays, do_compression=True)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        mat_bytes(data=np.zeros((6, 5)), testdata=np.zeros((6, 2)))[:-30],
        mat_bytes(data=np.zeros((6, 5))),
        mat_bytes(data=np.zeros((7, 5)), testdata=np.zeros((7, 2))),
        b"MATLAB 5.0",
        b"",
    ],
)
def test_damaged_mat_files_are_refused(tmp_path, refused, content):
    (tmp_path / "chars.mat").write_bytes(content)
    source = pictures("mat", "chars.mat")
    with refused(tmp_path / "chars.mat", "`data` and `testdata`", FIX):
        read_mat(tmp_path, source.forms[0], source)


def test_a_mat_file_with_other_counts_is_refused(tmp_path, refused):
    (tmp_path / "chars.mat").write_bytes(
        mat_bytes(data=np.zeros((6, 4)), testdata=np.zeros((6, 2)))
    )
    source = pictures("mat", "chars.mat")
    with refused(tmp_path / "chars.mat", "(5, 2, 3)", "(4, 2, 3)", FIX):
        read_mat(tmp_path, source.forms[0], source)


def npz_bytes(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


WHOLE = {"train": np.ones((5, 2, 3), np.uint8), "test": np.ones((2, 2, 3), np.uint8)}


def test_npz_files_are_read(tmp_path):
    (tmp_path / "x.npz").write_bytes(npz_bytes(**WHOLE, other=np.zeros(3)))
    source = pictures("npz", "x.npz")
    train, test = read_npz(tmp_path, source.forms[0], source)
    np.testing.assert_array_equal(train, WHOLE["train"])
    np.testing.assert_array_equal(test, WHOLE["test"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (npz_bytes(**WHOLE)[:-40], "not an npz file"),
        (npz_bytes(train=WHOLE["train"]), "not an npz file with `train` and `test`"),
        (b"", "not an npz file"),
        (npz_bytes(train=np.array([None]), test=WHOLE["test"]), "not an npz file"),
        (npz_bytes(train=WHOLE["test"], test=WHOLE["test"]), "holds (2, 2, 3) uint8"),
        (npz_bytes(train=WHOLE["train"] * 1.0, test=WHOLE["test"]), "float64"),
    ],
)
def test_npz_files_of_another_form_are_refused(tmp_path, refused, content, words):
    (tmp_path / "x.npz").write_bytes(content)
    source = pictures("npz", "x.npz")
    with refused(tmp_path / "x.npz", words, FIX):
        read_npz(tmp_path, source.forms[0], source)


def test_a_plain_array_in_the_place_of_an_npz_is_refused(tmp_path, refused):
    with (tmp_path / "x.npz").open("wb") as file:
        np.save(file, WHOLE["train"])
    source = pictures("npz", "x.npz")
    with refused(tmp_path / "x.npz", "not an npz file", FIX):
        read_npz(tmp_path, source.forms[0], source)


def test_a_file_that_cannot_be_read_is_refused(tmp_path, refused):
    with refused(tmp_path, "cannot read"):
        read_verified(tmp_path, DataFile("x"), pictures("npz", "x.npz"))
