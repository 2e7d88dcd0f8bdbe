from pathlib import Path

from aisle.data import data_directory
from aisle.data.readers import checksum


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
