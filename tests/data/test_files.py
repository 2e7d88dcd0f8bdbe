import sys
import threading
from pathlib import Path

import pytest

from aisle.data import data_directory
from aisle.data.files import checksum, locked, remove_leftovers, replacing


def test_the_folder_is_the_argument_then_the_environment_then_the_cache(monkeypatch):
    monkeypatch.setenv("AISLE_DATA", "/from/environment")
    assert data_directory("/from/argument") == Path("/from/argument")
    assert data_directory(Path("/from/argument")) == Path("/from/argument")
    assert data_directory() == Path("/from/environment")
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("AISLE_DATA")
        else:
            monkeypatch.setenv("AISLE_DATA", unset)
        assert data_directory().name == "aisle"
        assert data_directory().is_absolute()


def test_the_home_folder_is_written_as_usual(monkeypatch):
    monkeypatch.setenv("AISLE_DATA", "~/data")
    assert data_directory() == Path.home() / "data"


def test_checksum_of_nothing():
    assert checksum(b"", "md5") == "md5:d41d8cd98f00b204e9800998ecf8427e"
    assert checksum(b"", "sha256").startswith("sha256:e3b0c44298fc1c149afbf4c8996fb924")


def test_replacing_puts_the_whole_file_in_place(tmp_path):
    path = tmp_path / "data.npz"
    path.write_bytes(b"old")
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("interruption", [OSError, KeyboardInterrupt])
def test_replacing_leaves_nothing_after_an_error(tmp_path, interruption):
    path = tmp_path / "data.npz"
    with pytest.raises(interruption), replacing(path) as temporary:
        temporary.write_bytes(b"half")
        raise interruption
    assert not list(tmp_path.iterdir())


def test_leftovers_are_removed_and_nothing_else_is(tmp_path):
    kept = {tmp_path / name for name in ("data.npz", ".hidden", "notes.partial")}
    for path in (*kept, tmp_path / ".data.npz.123.partial"):
        path.write_bytes(b"")
    remove_leftovers(tmp_path)
    assert set(tmp_path.iterdir()) == kept


def test_a_second_one_waits_for_the_lock(tmp_path):
    pytest.importorskip("fcntl")
    entered = threading.Event()

    def enter():
        with locked(tmp_path):
            entered.set()

    other = threading.Thread(target=enter)
    with locked(tmp_path):
        other.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    other.join()


def test_without_patience_a_lock_that_is_taken_is_an_error(tmp_path):
    pytest.importorskip("fcntl")
    with locked(tmp_path), pytest.raises(BlockingIOError), locked(tmp_path, is_patient=False):
        pass
    with locked(tmp_path, is_patient=False):
        pass


def test_a_system_without_locks_does_not_wait(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with locked(tmp_path), locked(tmp_path), locked(tmp_path, is_patient=False):
        pass
