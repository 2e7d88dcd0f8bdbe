"""Cells are kept and checked, data are found, fetched and known again, and records are written."""

import json
from pathlib import Path

import numpy as np
import pytest
import requests
from matplotlib.figure import Figure

from aisle.errors import InputError
from aisle.statistics import Mean
from applications.core import files, study
from applications.core.cells import Cells
from applications.core.models import Budget, Scored, _Clock


def test_a_finished_cell_is_not_made_again(tmp_path, capsys):
    made = []

    def make():
        made.append(1)
        return {"value": np.float64(0.5), "bad": float("nan")}

    first = Cells(tmp_path, {"seed": 0})("a", {"rate": 1}, make)
    assert Cells(tmp_path, {"seed": 0})("a", {"rate": 1}, make) == first
    assert first == {"value": 0.5, "bad": None} and len(made) == 1
    assert capsys.readouterr().err == "a\n"


@pytest.mark.parametrize("settings", [{"rate": 2}, {}])
def test_a_cell_of_other_settings_is_refused(tmp_path, settings):
    Cells(tmp_path, {"seed": 0})("a", {"rate": 1}, dict)
    with pytest.raises(InputError, match="other settings: choose another --out"):
        Cells(tmp_path, {"seed": 0})("a", settings, dict)
    with pytest.raises(InputError, match="other settings"):
        Cells(tmp_path, {"seed": 1})("a", {"rate": 1}, dict)


def test_a_damaged_cell_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"settings"')
    with pytest.raises(InputError, match=r"a\.json is damaged .*: remove it"):
        Cells(tmp_path, {})("a", {}, dict)


def test_a_cell_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        Cells(tmp_path, {})("a", {}, lambda: {"value": 1 / 0})
    assert not list(tmp_path.iterdir())


def test_the_cost_is_that_of_the_cells_of_a_command_whenever_they_were_made(tmp_path):
    for name, seconds in (("a", 1.5), ("b", 2.0), ("c", 4.0)):
        Cells(tmp_path, {})(name, {}, dict)
        content = json.loads((tmp_path / f"{name}.json").read_text())
        content["processor_seconds"] = seconds
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    again = Cells(tmp_path, {})
    for name in "abb":
        again(name, {}, dict)
    assert again.seconds == 3.5


def test_weights_are_kept(tmp_path):
    cells = Cells(tmp_path, {})
    cells.save("a", {"w": np.arange(3.0)})
    assert cells.load("a", {"w": np.zeros(3)})["w"].tolist() == [0, 1, 2]


def test_data_are_found_or_asked_for_or_fetched(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="put it there, or name its folder by --data"):
        files.data_file("counts/a.npz", tmp_path)

    def fail(self, url, path, pooch):
        raise requests.ConnectionError

    monkeypatch.setattr(files.pooch.HTTPDownloader, "__call__", fail)
    with pytest.raises(InputError, match=r"cannot fetch http://x \(ConnectionError\)"):
        files.data_file("counts/a.npz", tmp_path, "http://x")
    assert not list(tmp_path.rglob("a.npz*"))
    monkeypatch.setattr(
        files.pooch.HTTPDownloader, "__call__", lambda s, url, path, p: Path(path).write_text(url)
    )
    assert files.data_file("counts/a.npz", tmp_path, "http://x").read_text() == "http://x"


def test_the_content_is_known_whatever_its_type():
    x = np.arange(6).reshape(2, 3)
    found = files.digest([x])
    assert files.digest([x.astype(np.uint8)]) == found
    assert files.digest([x.reshape(3, 2)]) != found and files.digest([x + 1]) != found
    files.check_content([x], found[:8], "a")
    with pytest.raises(InputError, match="a has the digest"):
        files.check_content([x + 1], found[:8], "a")


def test_splits_have_every_row_once():
    parts = files.split_rows(178)
    assert [len(part) for part in parts] == [142, 18, 18]
    assert sorted(np.concatenate(parts)) == list(range(178))


def test_a_clock_ends_training_when_its_time_is_over(monkeypatch):
    now = [5.0]
    monkeypatch.setattr("time.process_time", lambda: now[0])
    clock, answers = _Clock(10.0), []
    for time, bound in ((5.0, None), (14.9, None), (15.0, None), (16.0, -1.0), (17.0, None)):
        now[0] = time
        answers.append(clock(type("Look", (), {"held_out": bound}), None))
    # It starts at the first look, and ends at a bound, whose weights may be the best.
    assert answers == [False, False, False, True, False] and clock.spent == 12.0


def test_differences_are_paired():
    first = Scored(np.array([-1.0, -100.0]), None, {})
    second = Scored(np.array([-2.0, -101.0]), None, {})
    assert first.ahead_of(second) == Mean(1.0, 0.0, 2)


def test_a_command_writes_table_page_and_picture(tmp_path, capsys):
    table = study.Table(("a",), [{"a": "x", "b": Mean(1.0, 0.25, 3)}], "So it is.", "A note.")
    command = study.Command("some", "What is it?", Budget(), lambda _: (table, Figure()))
    assert command(["--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "some.json").read_text())
    assert record["rows"] == [{"a": "x", "b": Mean(1.0, 0.25, 3)._asdict()}]
    assert record["config"]["seed"] == 0 and record["machine"]["cores"] > 0
    page = (tmp_path / "some.md").read_text()
    assert "| --- | ---: |\n| x | 1.00 +- 0.25 |" in page and "So it is." in capsys.readouterr().out
    assert (tmp_path / "some.png").read_bytes().startswith(b"\x89PNG")


def test_a_mistake_has_one_line_and_code_2(tmp_path, capsys):
    def run(_):
        raise InputError("no data: give some")

    assert study.Command("some", "?", Budget(), run)(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "applications.some: no data: give some\n"
    assert not (tmp_path / "some.json").exists()


def test_sets_are_chosen_by_name():
    assert study.SetsOptions(sets=("b",)).chosen("abc") == ["b"]
    assert study.SetsOptions().chosen("abc") == ["a", "b", "c"]
    assert study.SetsOptions(budget="smoke").chosen("abc") == ["a"]
    with pytest.raises(InputError, match="--sets has 'd': choose from a, b, c"):
        study.SetsOptions(sets=("d",)).chosen("abc")
