"""Fetching, against a server on this machine that can misbehave."""

import errno
import gzip
import io
import os
import sys

import numpy as np
import pooch
import pytest

from aisle.data import fetch, load
from aisle.data.sources import SOURCES, DataFile, Form

FILES = ["test.idx.gz", "train.idx.gz"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_are_fetched_and_load(server, tiny, tmp_path):
    paths = fetch("mnist", tmp_path, mirrors=server.at("good"))
    assert paths == [tmp_path / "mnist" / "train.idx.gz", tmp_path / "mnist" / "test.idx.gz"]
    assert names(tmp_path / "mnist") == FILES
    np.testing.assert_array_equal(load("mnist", tmp_path).train.arrays, tiny.train)


def test_a_server_that_does_not_tell_the_size_will_do(server, tmp_path):
    fetch("mnist", tmp_path, mirrors=server.at("sizeless"))
    assert names(tmp_path / "mnist") == FILES


def test_the_known_mirrors_are_used_unless_others_are_given(server, tiny, tmp_path, monkeypatch):
    (zipped, raw) = tiny.source.forms
    forms = (zipped._replace(mirrors=tuple(server.at("absent", "good"))), raw)
    monkeypatch.setitem(SOURCES, "mnist", tiny.source._replace(forms=forms))
    fetch("mnist", tmp_path)
    assert names(tmp_path / "mnist") == FILES


def test_others_can_read_what_was_fetched(server, tmp_path):
    if os.name != "posix":
        pytest.skip("permissions are those of POSIX")
    old = os.umask(0o022)
    try:
        paths = fetch("mnist", tmp_path, mirrors=server.at("good"))
    finally:
        os.umask(old)
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in paths)


@pytest.mark.parametrize("first", ["absent", "wrong", "cut"])
def test_the_next_mirror_is_tried(server, tmp_path, first):
    fetch("mnist", tmp_path, mirrors=server.at(first, "good"))
    assert [manner for manner, _ in server.requests] == [first, "good"] * 2
    assert names(tmp_path / "mnist") == FILES


@pytest.mark.parametrize(
    ("manner", "reason"),
    [("absent", "404"), ("wrong", "it should have md5:"), ("cut", "the connection was cut")],
)
def test_a_failure_leaves_nothing_and_says_why(server, tmp_path, refused, manner, reason):
    with refused("cannot fetch mnist", *server.at(manner), reason, "by hand"):
        fetch("mnist", tmp_path, mirrors=server.at(manner))
    assert names(tmp_path / "mnist") == []


def test_a_wrong_hash_is_told_with_both_hashes(server, tiny, tmp_path, refused):
    expected = tiny.source.forms[0].files[0].checksum
    with refused(f"it should have {expected} but has md5:"):
        fetch("mnist", tmp_path, mirrors=server.at("wrong"))


def test_every_mirror_that_failed_is_named_with_its_reason(server, tmp_path, refused):
    dead = "http://127.0.0.1:9"
    absent, cut = (f"{folder}train.idx.gz (" for folder in server.at("absent", "cut"))
    with refused(f"{absent}404", f"{cut}the connection", f"{dead}/train.idx.gz (no connection"):
        fetch("mnist", tmp_path, mirrors=[*server.at("absent", "cut"), dead])


def test_an_address_that_is_none_is_refused(tmp_path, tiny, refused):
    with refused("nonsense/train.idx.gz", "MissingSchema"):
        fetch("mnist", tmp_path, mirrors=["nonsense"])


def test_a_server_that_falls_silent_is_given_up(server, tmp_path, refused, monkeypatch):
    monkeypatch.setattr("aisle.data.download.TIMEOUT", 0.2)
    with refused("slow/train.idx.gz (", "0.2 seconds"):
        fetch("mnist", tmp_path, mirrors=server.at("slow"))
    assert names(tmp_path / "mnist") == []


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    first = fetch("mnist", tmp_path, mirrors=server.at("good"))
    count = len(server.requests)
    assert fetch("mnist", tmp_path, mirrors=server.at("good")) == first
    assert len(server.requests) == count == 2


def test_only_the_missing_file_is_fetched(server, tiny, tmp_path):
    tiny.write(tmp_path, {"train.idx.gz": tiny.zipped["train.idx.gz"]})
    fetch("mnist", tmp_path, mirrors=server.at("good"))
    assert server.requests == [("good", "test.idx.gz")]


@pytest.mark.parametrize("again", ["zipped again", "unzipped"])
def test_the_same_content_in_another_container_is_not_fetched(server, tiny, tmp_path, again):
    zipped = {f"{name}.gz": gzip.compress(raw, 1, mtime=1) for name, raw in tiny.raw.items()}
    tiny.write(tmp_path, zipped if again == "zipped again" else tiny.raw)
    fetch("mnist", tmp_path, mirrors=server.at("good"))
    assert server.requests == []


def test_a_damaged_file_is_replaced(server, tiny, tmp_path):
    folder = tiny.write(tmp_path, tiny.zipped | {"train.idx.gz": b"damaged"})
    fetch("mnist", tmp_path, mirrors=server.at("good"))
    assert (folder / "train.idx.gz").read_bytes() == tiny.zipped["train.idx.gz"]


def test_a_damaged_file_stays_if_no_mirror_has_a_better_one(server, tiny, tmp_path, refused):
    folder = tiny.write(tmp_path, tiny.zipped | {"train.idx.gz": b"damaged"})
    with refused("404"):
        fetch("mnist", tmp_path, mirrors=server.at("absent"))
    assert (folder / "train.idx.gz").read_bytes() == b"damaged"


def test_an_interruption_in_this_process_leaves_nothing(server, tmp_path, monkeypatch):
    def interrupt(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("aisle.data.download.checksum", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch("mnist", tmp_path, mirrors=server.at("good"))
    assert names(tmp_path / "mnist") == []


def test_a_folder_that_cannot_be_made_is_refused(server, tmp_path, refused):
    (tmp_path / "file").write_bytes(b"")
    with refused(tmp_path / "file" / "mnist", "cannot write", "AISLE_DATA"):
        fetch("mnist", tmp_path / "file", mirrors=server.at("good"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_takes_no_more_is_refused(server, tmp_path, refused, monkeypatch, number):
    def fail(self, url, output_file, pooch):
        with open(output_file, "wb") as file:  # noqa: PTH123
            file.write(b"half")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", fail)
    with refused(tmp_path / "mnist", os.strerror(number), "choose another folder"):
        fetch("mnist", tmp_path, mirrors=server.at("good", "good"))
    assert names(tmp_path / "mnist") == []


def test_digits_need_no_fetching(tmp_path):
    assert fetch("digits", tmp_path) == []
    assert names(tmp_path) == []


def test_an_unknown_name_is_refused(tmp_path, refused):
    with refused("'cifar'", "digits, mnist, omniglot"):
        fetch("cifar", tmp_path)


@pytest.fixture
def two_forms(tiny, monkeypatch):
    """The data set with a form of one file, before the form of two."""
    first = DataFile("first.mat", "md5:d41d8cd98f00b204e9800998ecf8427e")
    forms = (Form("mat", (first,), mirrors=("http://x",)), tiny.source.forms[0])
    monkeypatch.setitem(SOURCES, "mnist", tiny.source._replace(forms=forms))


@pytest.mark.usefixtures("two_forms")
def test_the_first_form_is_enough(server, tmp_path):
    server.files["first.mat"] = b""
    assert fetch("mnist", tmp_path, mirrors=server.at("good")) == [tmp_path / "mnist/first.mat"]


@pytest.mark.usefixtures("two_forms")
def test_the_second_form_is_fetched_if_no_mirror_has_the_first(server, tmp_path):
    paths = fetch("mnist", tmp_path, mirrors=server.at("good"))
    assert sorted(path.name for path in paths) == FILES == names(tmp_path / "mnist")


@pytest.mark.usefixtures("two_forms")
def test_the_failures_of_both_forms_are_told(server, tmp_path, refused):
    with refused("no first.mat from", "no train.idx.gz from"):
        fetch("mnist", tmp_path, mirrors=server.at("absent"))


def test_nothing_is_shown_where_nobody_watches(server, tmp_path, capfd):
    fetch("mnist", tmp_path, mirrors=server.at("absent", "good"))
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_the_file_and_its_size(server, tiny, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", terminal)
    fetch("mnist", tmp_path, mirrors=server.at("absent", "good"))
    size = len(tiny.zipped["train.idx.gz"])
    assert "train.idx.gz" in terminal.getvalue()
    assert f"{size}/{size} bytes" in terminal.getvalue()
