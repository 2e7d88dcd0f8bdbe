import json
import math
import os
import sys
import threading

import pytest

from aisle.errors import InputError
from aisle.files import disk_errors, json_text, locked, remove_leftovers, replacing, writing


def test_replacing_puts_the_whole_file_in_place(tmp_path):
    path = tmp_path / "data.npz"
    path.write_bytes(b"old")
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    path, real = tmp_path / "data.npz", os.fsync
    synced = []

    def fsync(handle):
        synced.append((os.fstat(handle).st_size, path.exists()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
    assert synced == [(3, False)]


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
    words = f"{tmp_path} is in use: wait for it, or stop it first"
    with locked(tmp_path), pytest.raises(InputError, match=words), locked(tmp_path, "is in use"):
        pass
    with locked(tmp_path, "is in use"):
        pass


def test_a_system_without_locks_does_not_wait(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with locked(tmp_path), locked(tmp_path), locked(tmp_path, "is in use"):
        pass


def test_a_file_that_cannot_be_written_is_told_in_one_line(tmp_path):
    path = tmp_path / "absent" / "a.json"
    with pytest.raises(InputError) as caught, writing(path) as part:
        part.write_text("{}")
    assert str(caught.value) == (
        f"cannot write {path} (No such file or directory): make room, or choose a folder that "
        "exists and can be written to"
    )


def test_an_error_without_a_number_is_told_too(tmp_path):
    words = r"cannot write .* \(the disk is gone\): call for help"
    with pytest.raises(InputError, match=words), disk_errors(tmp_path, "call for help"):
        raise OSError("the disk is gone")


def test_json_has_null_for_what_is_not_finite():
    content = {"a": [1.5, math.inf, (2, -math.inf)], "b": {"c": math.nan, "d": "nan", "e": None}}
    found = json.loads(json_text(content), parse_constant=pytest.fail)
    assert found == {"a": [1.5, None, [2, None]], "b": {"c": None, "d": "nan", "e": None}}
