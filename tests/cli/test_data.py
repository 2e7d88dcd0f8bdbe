"""`aisle data`."""

import pytest

from commands import assert_mistake, run


def test_the_data_sets_are_listed(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("AISLE_DATA", str(tmp_path))
    code, out, err = run(capsys, "data", "list")
    assert (code, err) == (0, "")
    for words in ("digits", "mnist", "omniglot", "1,500", "aisle data fetch mnist"):
        assert words in " ".join(out.split())
    assert list(tmp_path.iterdir()) == []


def test_digits_need_no_fetching(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("AISLE_DATA", str(tmp_path))
    code, out, err = run(capsys, "data", "fetch", "digits")
    assert (code, err) == (0, "")
    assert "comes with scikit-learn" in out


def test_unknown_data_are_not_fetched(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("AISLE_DATA", str(tmp_path / "data"))
    assert_mistake(run(capsys, "data", "fetch", "nonsense"), "nonsense", "digits, mnist, omniglot")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["list"], ["fetch", "digits"]], ids=lambda a: a[0])
def test_the_folder_of_the_data_is_an_option(capsys, tmp_path, command):
    assert run(capsys, "data", *command, "--data-dir", tmp_path)[0] == 0
