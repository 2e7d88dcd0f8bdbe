import os

import numpy as np
import pytest

from aisle.errors import InputError
from aisle.evaluation.folders import load_arrays
from aisle.evaluation.work import Outcome, read_tiles, write_tile

TILE = Outcome(
    np.array([20, 3, 7]),
    {
        "log_weight": np.array([[-1.5, 2.0], [np.nan, -np.inf], [0.1, 1e30]], np.float32),
        "num_nonfinite": np.array([0, 4, 1], np.int32),
        "mean_acceptance": np.array([[0.1, 2.9]]),
    },
    1.25,
)
OTHER = TILE._replace(indices=np.array([4, 5, 6]), seconds=3.0)
NAME, OTHER_NAME = "00000020.npz", "00000004.npz"


def assert_identical(left, right):
    assert left.seconds == right.seconds
    pairs = [(left.indices, right.indices)]
    assert left.numbers.keys() == right.numbers.keys()
    pairs += [(left.numbers[name], right.numbers[name]) for name in left.numbers]
    for a, b in pairs:
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.fixture
def folder(tmp_path):
    """Two tiles, in a folder that was not there before."""
    for tile in (TILE, OTHER):
        write_tile(tmp_path / "new" / "tiles", tile)
    return tmp_path / "new" / "tiles"


def test_tiles_come_back_bit_for_bit(folder):
    assert sorted(path.name for path in folder.iterdir()) == [OTHER_NAME, NAME]
    found = read_tiles(folder)
    assert len(found) == 2
    assert_identical(found[0], OTHER)
    assert_identical(found[1], TILE)


def test_there_may_be_nothing_yet(tmp_path):
    assert read_tiles(tmp_path) == []
    assert read_tiles(tmp_path / "nowhere") == []
    assert load_arrays(tmp_path / "nowhere.npz") is None


def test_a_tile_that_is_cut_short_is_as_good_as_not_there(folder):
    whole = (folder / NAME).read_bytes()
    for length in range(0, len(whole), 7):
        (folder / NAME).write_bytes(whole[:length])
        (found,) = read_tiles(folder)
        assert_identical(found, OTHER)


# In the header of the file's directory: what it needs to be read, how it is packed, and its name.
@pytest.mark.parametrize("place", [6, 8, 10, 46], ids=["version", "flags", "packing", "name"])
def test_so_is_one_with_a_wrong_byte(folder, place):
    content = bytearray((folder / NAME).read_bytes())
    content[content.index(b"PK\x01\x02") + place] ^= 0xFF
    (folder / NAME).write_bytes(content)
    (found,) = read_tiles(folder)
    assert_identical(found, OTHER)


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x04N."], ids=["empty", "text", "pickle"])
def test_so_is_one_that_is_no_tile_at_all(folder, content):
    (folder / NAME).write_bytes(content)
    np.savez(folder / "00000099.npz", index=np.arange(3))
    (found,) = read_tiles(folder)
    assert_identical(found, OTHER)


def test_what_a_killed_process_was_writing_goes_away(folder):
    leftover = folder / f".{NAME}.4242.partial"
    leftover.write_bytes((folder / NAME).read_bytes()[:100])
    assert len(read_tiles(folder)) == 2
    assert sorted(path.name for path in folder.iterdir()) == [OTHER_NAME, NAME]


def test_a_write_that_fails_leaves_what_was_there(folder, monkeypatch):
    before = (folder / NAME).read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(InputError, match=r"No space left on device.*: make room"):
        write_tile(folder, TILE._replace(seconds=9.0))
    assert (folder / NAME).read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == [OTHER_NAME, NAME]


def test_a_file_in_the_way_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot write .*: make room"):
        write_tile(tmp_path / "file" / "tiles", TILE)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(InputError, match="cannot write"):
        write_tile(tmp_path / "locked", TILE)
