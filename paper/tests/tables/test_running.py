"""`python -m paper table1`, from the arguments to the files of a table."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from aisle.statistics import Mean, summarise
from calling import assert_mistake, run
from commands import contents
from paper.core import runs
from paper.output import csv_text
from paper.tables import cells, files
from paper.tables.contents import make_table

RECORD = Path(__file__).parents[3] / "results" / "tables"

RESULTS = {
    name: cells.CellResult(
        name,
        "mnist",
        "dreg",
        1,
        None,
        None,
        None,
        "mnist-start",
        10,
        2_000,
        3.0,
        Mean(mean, 0.5, 3),
        Mean(0.125, 0.0625, 3),
        -86.9,
        mean + 86.9,
        4.0,
        0,
        "",
        "aisle train mnist",
    )
    for name, mean in (("mnist-dreg-K1", -87.5), ("mnist-dreg-K5", -86.0), ("mnist-dreg-K50", -86))
}
FIVE, FIFTY = "K = 5 helps DReG over K = 1", "K = 50 helps DReG over K = 5"
GAINS = {"mnist-dreg-K1": [0, 0, 0], "mnist-dreg-K5": [1, 1.5, 2], "mnist-dreg-K50": [1, 1.5, 1.9]}


@pytest.fixture
def quick_cells(monkeypatch):
    """Finish each cell at once, and remember which were asked for."""
    ran, started = [], []

    def finished(cell, out):
        if cell.name not in ran:
            return None
        return cells.FinishedCell(RESULTS[cell.name], np.array(GAINS[cell.name]))

    def run_cell(cell, out):
        ran.append(cell.name)
        return finished(cell, out)

    monkeypatch.setattr(cells, "run_cell", run_cell)
    monkeypatch.setattr(cells, "finished", finished)
    monkeypatch.setattr(cells, "train_cell", lambda cell, out: started.append(cell.name))
    return ran, started


@pytest.mark.slow
def test_a_table_of_the_cells_that_are_done(capsys, quick_cells, tmp_path):
    options = ("--out", tmp_path, "--cells", "mnist-dreg-K1", "mnist-dreg-K5*")
    code, printed, _ = run(capsys, "table1", *options)
    assert code == 0
    assert quick_cells == ([*RESULTS], ["mnist-start", "mnist-annealed-start"])
    names = ["table1.csv", "table1.json", "table1.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    page = (tmp_path / "table1.md").read_text()
    for text in (printed, page):
        assert "-87.50 +- 0.50" in text
        assert "0.12 +- 0.06" in text
        assert "+0.90" in text
    assert "| mnist: K = 5 helps DReG over K = 1 | 1.50 +- 0.29 | holds |" in page
    assert "K = 50 helps DReG over K = 5 | -0.03 +- 0.03 | undecided |" in page
    numbers = json.loads((tmp_path / "table1.json").read_text())
    assert numbers["rows"] == [cells.as_plain(result) for result in RESULTS.values()]
    gain = summarise(np.array(GAINS["mnist-dreg-K5"]))
    five = {"claim": f"mnist: {FIVE}", "gain": gain._asdict(), "verdict": "holds"}
    assert numbers["claims"][0] == five
    assert numbers["packages"]["jax"]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "table1.csv").read_text())))
    assert [line["cell"] for line in lines] == [*RESULTS]
    assert lines[1]["log_likelihood_mean"] == "-86.0"


@pytest.mark.slow
def test_an_interruption_leaves_the_table_of_what_is_done(
    capsys, monkeypatch, quick_cells, tmp_path
):
    real = cells.run_cell

    def run_cell(cell, out):
        if cell.name == "mnist-dreg-K5":
            raise KeyboardInterrupt
        return real(cell, out)

    monkeypatch.setattr(cells, "run_cell", run_cell)
    code, _, _ = run(capsys, "table1", "--out", tmp_path, "--cells", "mnist-dreg-*")
    assert code == 130
    rows = json.loads((tmp_path / "table1.json").read_text())["rows"]
    assert [row["cell"] for row in rows] == ["mnist-dreg-K1"]


def test_a_claim_that_does_not_hold(capsys, monkeypatch, quick_cells, tmp_path):
    monkeypatch.setitem(GAINS, "mnist-dreg-K5", [-1, -1.5, -2])
    run(capsys, "table1", "--out", tmp_path, "--cells", "mnist-dreg-K[15]")
    page = (tmp_path / "table1.md").read_text()
    assert "| mnist: K = 5 helps DReG over K = 1 | -1.50 +- 0.29 | does not hold |" in page


def test_a_cell_brings_all_that_it_starts_from(capsys, quick_cells, monkeypatch, tmp_path):
    monkeypatch.setitem(RESULTS, "mnist-ais-T5-K5", RESULTS["mnist-dreg-K5"])
    monkeypatch.setitem(RESULTS, "mnist-ais-T5-K50", RESULTS["mnist-dreg-K50"])
    for name in ("mnist-ais-T5-K5", "mnist-ais-T5-K50"):
        monkeypatch.setitem(GAINS, name, [0, 0, 0])
    run(capsys, "table1", "--out", tmp_path, "--cells", "mnist-ais-T5-K50")
    assert quick_cells == (
        ["mnist-ais-T5-K5", "mnist-ais-T5-K50"],
        ["mnist-start", "mnist-annealed-start"],
    )


def test_cells_that_are_done_need_no_start(capsys, quick_cells, tmp_path):
    ran, started = quick_cells
    ran.append("mnist-dreg-K1")
    code, _, _ = run(capsys, "table1", "--out", tmp_path, "--cells", "mnist-dreg-K1")
    assert (code, ran, started) == (0, ["mnist-dreg-K1"], [])
    assert "mnist-dreg-K1" in (tmp_path / "table1.md").read_text()
    run(capsys, "table1", "--out", tmp_path, "--cells", "mnist-start")
    assert started == ["mnist-start"]


def test_weights_that_are_there_are_not_trained_again(capsys, monkeypatch, quick_cells, tmp_path):
    weights = ["mnist-annealed-start"]
    monkeypatch.setattr(cells, "has_weights", lambda cell, out: cell.name in weights)
    run(capsys, "table1", "--out", tmp_path, "--cells", "mnist-dreg-K1")
    assert quick_cells == (["mnist-dreg-K1"], [])
    run(capsys, "table1", "--out", tmp_path, "--cells", *weights)
    assert quick_cells == (["mnist-dreg-K1"], [])
    # Asked for by name, it is trained from what it starts from.
    weights.clear()
    run(capsys, "table1", "--out", tmp_path, "--cells", "mnist-annealed-start")
    assert quick_cells[1] == ["mnist-start", "mnist-annealed-start"]


@pytest.fixture
def elsewhere(capsys, monkeypatch, quick_cells, tmp_path):
    """Return what runs cells of one table, each time in a place that has no other cells."""
    monkeypatch.setattr(runs, "command", lambda *_: "aisle train mnist")

    def run_there(*names):
        quick_cells[0].clear()
        run(capsys, "table1", "--out", tmp_path, "--cells", *names)
        found = json.loads((tmp_path / "table1.json").read_text())
        claims = {c["claim"].removeprefix("mnist: "): c["verdict"] for c in found["claims"]}
        return [row["cell"] for row in found["rows"]], claims

    return run_there


def test_what_was_found_elsewhere_stays_in_the_table(elsewhere):
    assert elsewhere("mnist-dreg-K5", "mnist-dreg-K1")[1] == {FIVE: "holds"}
    # The log p(x) of each example that would decide the second claim are not here.
    assert elsewhere("mnist-dreg-K50") == ([*RESULTS], {FIVE: "holds"})
    verdicts = {FIVE: "holds", FIFTY: "undecided"}
    assert elsewhere("mnist-dreg-K5", "mnist-dreg-K50") == ([*RESULTS], verdicts)


def test_a_claim_goes_when_its_numbers_do(elsewhere, monkeypatch):
    elsewhere("mnist-dreg-K5", "mnist-dreg-K1")
    other = RESULTS["mnist-dreg-K5"]._replace(log_likelihood=Mean(-85.0, 0.5, 3))
    monkeypatch.setitem(RESULTS, "mnist-dreg-K5", other)
    assert elsewhere("mnist-dreg-K5") == (["mnist-dreg-K1", "mnist-dreg-K5"], {})


def test_what_was_found_elsewhere_is_judged_anew(elsewhere, monkeypatch):
    elsewhere("mnist-dreg-K5", "mnist-dreg-K1")
    loose = RESULTS["mnist-dreg-K1"]._replace(gap=Mean(1.75, 0.25, 100))
    monkeypatch.setitem(RESULTS, "mnist-dreg-K1", loose)
    assert elsewhere("mnist-dreg-K1")[1] == {FIVE: "undecided: the gap may be larger"}


def test_a_line_of_other_settings_goes(elsewhere, monkeypatch):
    elsewhere("mnist-dreg-K1")
    monkeypatch.setattr(runs, "command", lambda *_: "aisle train mnist --epochs 7")
    assert elsewhere("mnist-dreg-K5") == (["mnist-dreg-K5"], {})


def test_a_table_that_cannot_be_read_is_reported_before_the_work(capsys, quick_cells, tmp_path):
    for text in ("{", "[]", '{"claims": []}', '{"claims": [], "rows": [{"cell": "a"}]}'):
        (tmp_path / "table1.json").write_text(text)
        result = run(capsys, "table1", "--out", tmp_path)
        assert_mistake(result, "table1.json is not a table of this version", "choose another --out")
    assert quick_cells == ([], [])


def test_cells_that_do_not_exist(capsys, tmp_path):
    result = run(capsys, "table1", "--out", tmp_path, "--cells", "mnist-iwae*")
    assert_mistake(result, "--cells mnist-iwae* matches no cell: choose from mnist-start, mnist-")


def test_the_plan_of_a_table(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "time_updates", lambda plan: runs.Timing(7, 1_234, 90.0))
    out = tmp_path / "none"
    options = ("--plan", "--out", out, "--cells", "mnist-dreg-K1")
    code, printed, _ = run(capsys, "table1", *options)
    assert code == 0
    assert "1,234" in printed
    assert "aisle train mnist --epochs 22" in " ".join(printed.split())
    assert not out.exists()


def test_nothing_is_run_where_only_the_table_is_asked_for(capsys, quick_cells, tmp_path):
    ran, started = quick_cells
    ran.append("mnist-dreg-K1")
    assert run(capsys, "table1", "--out", tmp_path, "--write-only")[0] == 0
    assert (ran, started) == (["mnist-dreg-K1"], [])
    rows = json.loads((tmp_path / "table1.json").read_text())["rows"]
    assert [row["cell"] for row in rows] == ["mnist-dreg-K1"]
    both = run(capsys, "table1", "--out", tmp_path, "--write-only", "--plan")
    assert_mistake(both, "--plan and --write-only exclude each other: give one of them")


def of_a_gone_encoder(text):
    return "mnist-full-" in text or "mnist-flow-" in text


@pytest.mark.parametrize("name", ["table1", "table2", "beyond", "recipes"])
def test_the_tables_on_record_are_made_of_the_cells_on_record(capsys, tmp_path, name):
    """With the same numbers, without training; lines of cells from elsewhere are kept."""
    shutil.copytree(RECORD, tmp_path / "tables")
    assert run(capsys, name, "--out", tmp_path / "tables", "--write-only")[0] == 0
    made, known = (
        json.loads((folder / f"{name}.json").read_text())
        for folder in (tmp_path / "tables", RECORD)
    )
    # The command is that of this version.
    lines, before = ([row | {"command": ""} for row in rows["rows"]] for rows in (made, known))
    assert lines == [row for row in before if not of_a_gone_encoder(row["cell"])]
    claims = [claim for claim in known["claims"] if not of_a_gone_encoder(claim["claim"])]
    assert made["claims"] == claims
    spec = {cell.name: cell for cell in make_table(name, "cpu", 0).cells}
    assert [row["command"] for row in made["rows"]] == [
        spec[row["cell"]].command for row in made["rows"]
    ]
    texts = (tmp_path / "tables" / f"{name}.md").read_text()
    assert all(f"| {Mean(**row['log_likelihood'])} |" in texts for row in lines)
    files = {file.stem for file in (RECORD / "cells").glob("*.json")}
    assert files & {row["cell"] for row in lines}


def evaluated(out, name):
    """Return the cells of a table of the smoke budget, which all have a number."""
    found = json.loads((out / f"{name}.json").read_text())
    assert all(np.isfinite(row["log_likelihood"]["mean"]) for row in found["rows"])
    return [row["cell"] for row in found["rows"]], [claim["claim"] for claim in found["claims"]]


@pytest.mark.slow
def test_cells_from_end_to_end(capsys, quick_compilation, tmp_path):
    chosen = ("--cells", "mnist-ais-T5-K50")
    options = ("--budget", "smoke", "--out", tmp_path / "out", *chosen)
    assert run(capsys, "table1", *options)[0] == 0
    names = ["mnist-ais-T5-K5", "mnist-ais-T5-K50"]
    claim = "mnist: K = 50 helps AIS, T = 5, over K = 5"
    assert evaluated(tmp_path / "out", "table1") == (names, [claim])
    before = contents(tmp_path)
    assert run(capsys, "table1", *options)[0] == 0
    assert contents(tmp_path) == before
    # What was found is enough, without the runs.
    shutil.copytree(tmp_path / "out" / "cells", tmp_path / "other" / "cells")
    again = ("--budget", "smoke", "--out", tmp_path / "other", *chosen)
    assert run(capsys, "table1", *again)[0] == 0
    for end in ("md", "csv", "json"):
        made, other = (tmp_path / folder / f"table1.{end}" for folder in ("out", "other"))
        assert made.read_text() == other.read_text()
    assert not (tmp_path / "other" / names[0]).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("beyond", "mnist-two-layer-ais-tuned-T27-K1"),
        ("recipes", "mnist-short-recipe-averaged"),
        ("defaults", "mnist-default-new"),
    ],
)
def test_other_networks_and_recipes_from_end_to_end(
    capsys, quick_compilation, tmp_path, name, cell
):
    options = ("--budget", "smoke", "--out", tmp_path, "--cells", cell)
    assert run(capsys, name, *options)[0] == 0
    assert evaluated(tmp_path, name) == ([cell], [])


def test_a_number_that_only_some_cells_have_is_in_the_csv_file():
    bare, *_ = RESULTS.values()
    rows = [bare, bare._replace(short=Mean(-90.0, 0.5, 3))]
    first, second = csv.DictReader(csv_text(list(map(files.flat, rows))).splitlines())
    assert (first["short_mean"], second["short_mean"]) == ("", "-90.0")
    assert "short" not in first and first["cell"] == bare.cell
