import os

import numpy as np
import pytest

from aisle.errors import InputError
from aisle.evaluation import parts
from aisle.evaluation.parts import Part

PART = Part(
    np.array([20, 3, 7]),
    {
        "log_weight": np.array([[-1.5, 2.0], [np.nan, -np.inf], [0.1, 1e30]], np.float32),
        "num_nonfinite": np.array([0, 4, 1], np.int32),
    },
    {"mean_acceptance": np.array([0.1, 2.9])},
    1.25,
)
OTHER = PART._replace(indices=np.array([4, 5, 6]), seconds=3.0)
NAME, OTHER_NAME = "00000020.npz", "00000004.npz"


def assert_identical(left, right):
    assert left.seconds == right.seconds
    pairs = [(left.indices, right.indices)]
    for mine, theirs in ((left.kept, right.kept), (left.sums, right.sums)):
        assert mine.keys() == theirs.keys()
        pairs += [(mine[name], theirs[name]) for name in mine]
    for a, b in pairs:
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.fixture
def folder(tmp_path):
    """Two parts, in a folder that was not there before."""
    for part in (PART, OTHER):
        parts.write(tmp_path / "new" / "parts", part)
    return tmp_path / "new" / "parts"


def test_parts_come_back_bit_for_bit(folder):
    assert sorted(path.name for path in folder.iterdir()) == [OTHER_NAME, NAME]
    found = parts.read(folder)
    assert len(found) == 2
    assert_identical(found[0], OTHER)
    assert_identical(found[1], PART)


def test_there_may_be_nothing_yet(tmp_path):
    assert parts.read(tmp_path) == []
    assert parts.read(tmp_path / "nowhere") == []
    assert parts.load_arrays(tmp_path / "nowhere.npz") is None


def test_a_part_that_is_cut_short_is_as_good_as_not_there(folder):
    whole = (folder / NAME).read_bytes()
    for length in range(0, len(whole), 7):
        (folder / NAME).write_bytes(whole[:length])
        (found,) = parts.read(folder)
        assert_identical(found, OTHER)


# In the header of the file's directory: what it needs to be read, how it is packed, and its name.
@pytest.mark.parametrize("place", [6, 8, 10, 46], ids=["version", "flags", "packing", "name"])
def test_so_is_one_with_a_wrong_byte(folder, place):
    content = bytearray((folder / NAME).read_bytes())
    content[content.index(b"PK\x01\x02") + place] ^= 0xFF
    (folder / NAME).write_bytes(content)
    (found,) = parts.read(folder)
    assert_identical(found, OTHER)


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x04N."], ids=["empty", "text", "pickle"])
def test_so_is_one_that_is_no_part_at_all(folder, content):
    (folder / NAME).write_bytes(content)
    np.savez(folder / "00000099.npz", indices=np.arange(3))
    (found,) = parts.read(folder)
    assert_identical(found, OTHER)


def test_what_a_killed_process_was_writing_goes_away(folder):
    leftover = folder / f".{NAME}.4242.partial"
    leftover.write_bytes((folder / NAME).read_bytes()[:100])
    assert len(parts.read(folder)) == 2
    assert sorted(path.name for path in folder.iterdir()) == [OTHER_NAME, NAME]


def test_a_write_that_fails_leaves_what_was_there(folder, monkeypatch):
    before = (folder / NAME).read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(InputError, match=r"No space left on device.*: make room"):
        parts.write(folder, PART._replace(seconds=9.0))
    assert (folder / NAME).read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == [OTHER_NAME, NAME]


def test_a_file_in_the_way_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot write .*: make room"):
        parts.write(tmp_path / "file" / "parts", PART)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(InputError, match="cannot write"):
        parts.write(tmp_path / "locked", PART)
