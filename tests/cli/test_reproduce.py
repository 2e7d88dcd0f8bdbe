import csv
import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from aisle.cli import table_files
from aisle.cli.output import csv_text
from aisle.experiments import cells, commands, estimating, figure1, tables
from aisle.experiments.figure1 import Outcome, Row
from aisle.statistics import Mean, summarise
from commands import assert_mistake, contents, run


def result(distance_of_ais):
    """Return an outcome of two budgets that cost nothing."""
    draws = np.random.default_rng(0).normal(size=(10, 500, 2))
    rows = [
        Row("target", 1, 1, 0, 0, 0, 0, -0.001, 0.002, 0.0, 1.0, 0.01),
        Row("proposal", 1, 1, 0, 0, 0, 0, 1.121, 0.002, 1.12, 0.05, 0.01),
        Row("is", 25, 25, 0, 0, 25, 0, 0.6, 0.003, None, 0.1, 0.01),
        Row("ais", 25, 1, 5, 5, 0, 26, distance_of_ais, 0.004, None, 0.7, 0.01),
        Row("is", 2750, 2750, 0, 0, 2750, 0, 0.3, 0.003, None, 0.2, 0.01),
        Row("ais", 2750, 50, 5, 11, 0, 2800, 0.01, 0.004, None, 0.8, 0.01),
    ]
    return Outcome(0.9, rows, list(draws[:6]), {(5, 5): [0.5] * 5, (5, 11): [0.4] * 11})


@pytest.fixture
def quick(monkeypatch):
    """Answer at once, and remember what was asked."""
    asked = []

    def answer(*given):
        asked.append(given)
        return result(0.07)

    monkeypatch.setattr(figure1, "run", answer)
    return asked


def test_figure1_writes_and_prints_the_same(capsys, quick, tmp_path):
    out = tmp_path / "new" / "folder"
    options = ("--seed", 3, "--draws", 12_000, "--correlation", 0.9)
    code, printed, _ = run(capsys, "reproduce", "figure1", "--out", out, *options)
    assert code == 0
    assert quick == [(3, 12_000, 0.9)]
    assert sorted(p.name for p in out.iterdir()) == ["figure1.json", "figure1.md", "figure1.png"]
    figures = json.loads((out / "figure1.json").read_text())
    page = (out / "figure1.md").read_text()
    outcome = result(0.07)
    assert figures["rows"] == [row._asdict() for row in outcome.rows]
    assert [c["closer"] for c in figures["comparisons"]] == ["AIS", "AIS"]
    assert (figures["seed"], figures["num_draws"], figures["correlation"]) == (3, 12_000, 0.9)
    assert [s["num_temperatures"] for s in figures["step_sizes"]] == [5, 11]
    assert figures["seconds"] >= 0
    assert figures["packages"]["jax"]
    for text in (printed, page):
        assert figures["verdict"] in text
        assert "0.0700 ± 0.0040" in text
        assert "2,800 gradients" in text
        assert "must be 1.1200, z = 0.5" in text
    assert "a correlation of 0.9;" in page
    assert "12,000 draws" in page
    for path in out.iterdir():
        assert str(path) in printed
    with Image.open(out / "figure1.png") as image:
        assert image.format == "PNG"
        assert image.width > 1000


@pytest.mark.parametrize(
    ("budget", "draws"), [("smoke", 10_000), ("cpu", 20_000), ("paper", 20_000)]
)
def test_figure1_has_budgets_too(capsys, quick, tmp_path, budget, draws):
    options = ("--out", tmp_path, "--budget", budget)
    assert run(capsys, "reproduce", "figure1", *options)[0] == 0
    assert [asked[1] for asked in quick] == [draws]


def test_figure1_reports_a_claim_that_does_not_hold(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(figure1, "run", lambda *_: result(0.7))
    code, printed, _ = run(capsys, "reproduce", "figure1", "--out", tmp_path)
    assert code == 0
    assert "IS, z = -20.0" in printed
    assert "the closer one is AIS at 2,750; IS at 25." in printed
    assert printed.count("as the paper says") == 0


@pytest.mark.slow
def test_figure1_from_end_to_end(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(figure1, "SPLITS", (figure1.Split(2, 1, 2), figure1.Split(2, 2, 2)))
    code, printed, progress = run(
        capsys, "reproduce", "figure1", "--out", tmp_path, "--draws", 10_000
    )
    assert code == 0
    assert "ais, cost 8" in progress
    assert "5 gradients" in printed
    assert len(json.loads((tmp_path / "figure1.json").read_text())["rows"]) == 6


def test_a_second_run_takes_the_place_of_the_first(capsys, quick, tmp_path):
    for seed in (1, 2):
        assert run(capsys, "reproduce", "figure1", "--out", tmp_path, "--seed", seed)[0] == 0
    assert len(list(tmp_path.iterdir())) == 3
    assert json.loads((tmp_path / "figure1.json").read_text())["seed"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--draws", "100"], "--draws is 100: it must be at least 10000"),
        (["--correlation", "1"], "--correlation is 1.0: it must be above 0 and below 1"),
        (["--seed", "-1"], "--seed is -1: it must be from 0 to 4294967295"),
        (["--draws", "many"], "--draws: invalid literal"),
    ],
)
def test_mistakes_are_told_before_the_work(capsys, quick, tmp_path, arguments, words):
    out = tmp_path / "results"
    assert_mistake(run(capsys, "reproduce", "figure1", "--out", out, *arguments), words)
    assert not quick
    assert not out.exists()


def test_folders_that_cannot_be_used(capsys, quick, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "figure1.json").mkdir(parents=True)
    before = contents(tmp_path)
    for folder, words in (
        ("file", "cannot write"),
        ("file/inside", "choose another --out"),
        ("taken", "figure1.json is a folder: give a file"),
    ):
        assert_mistake(run(capsys, "reproduce", "figure1", "--out", tmp_path / folder), words)
    assert not quick
    assert contents(tmp_path) == before


def test_what_to_reproduce_must_be_known(capsys):
    assert_mistake(run(capsys, "reproduce", "figure7"), "figure1")
    assert_mistake(run(capsys, "reproduce"), "figure1")


ROWS = {
    name: cells.Row(
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
        return cells.Finished(ROWS[cell.name], np.array(GAINS[cell.name]))

    def run_cell(cell, out):
        ran.append(cell.name)
        return finished(cell, out)

    monkeypatch.setattr(cells, "run_cell", run_cell)
    monkeypatch.setattr(cells, "finished", finished)
    monkeypatch.setattr(cells, "train_cell", lambda cell, out: started.append(cell.name))
    return ran, started


def test_a_table_of_the_cells_that_are_done(capsys, quick_cells, tmp_path):
    options = ("--out", tmp_path, "--cells", "mnist-dreg-K1", "mnist-dreg-K5*")
    code, printed, _ = run(capsys, "reproduce", "table1", *options)
    assert code == 0
    assert quick_cells == ([*ROWS], ["mnist-start", "mnist-annealed-start"])
    names = ["table1.csv", "table1.json", "table1.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    page = (tmp_path / "table1.md").read_text()
    for text in (printed, page):
        assert "-87.50 +- 0.50" in text
        assert "0.12 +- 0.06" in text
        assert "+0.90" in text
    assert "| mnist: K = 5 helps DReG over K = 1 | 1.50 +- 0.29 | holds |" in page
    assert "K = 50 helps DReG over K = 5 | -0.03 +- 0.03 | undecided |" in page
    figures = json.loads((tmp_path / "table1.json").read_text())
    assert figures["rows"] == [cells.as_plain(row) | means(row) for row in ROWS.values()]
    gain = summarise(np.array(GAINS["mnist-dreg-K5"]))
    five = {"claim": f"mnist: {FIVE}", "gain": gain._asdict(), "verdict": "holds"}
    assert figures["claims"][0] == five
    assert figures["packages"]["jax"]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "table1.csv").read_text())))
    assert [line["cell"] for line in lines] == [*ROWS]
    assert lines[1]["log_likelihood_mean"] == "-86.0"


def test_an_interruption_leaves_the_table_of_what_is_done(
    capsys, monkeypatch, quick_cells, tmp_path
):
    real = cells.run_cell

    def run_cell(cell, out):
        if cell.name == "mnist-dreg-K5":
            raise KeyboardInterrupt
        return real(cell, out)

    monkeypatch.setattr(cells, "run_cell", run_cell)
    code, _, _ = run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", "mnist-dreg-*")
    assert code == 130
    rows = json.loads((tmp_path / "table1.json").read_text())["rows"]
    assert [row["cell"] for row in rows] == ["mnist-dreg-K1"]


def means(row):
    return {"log_likelihood": row.log_likelihood._asdict(), "gap": row.gap._asdict()}


def test_a_claim_that_does_not_hold(capsys, monkeypatch, quick_cells, tmp_path):
    monkeypatch.setitem(GAINS, "mnist-dreg-K5", [-1, -1.5, -2])
    run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", "mnist-dreg-K[15]")
    page = (tmp_path / "table1.md").read_text()
    assert "| mnist: K = 5 helps DReG over K = 1 | -1.50 +- 0.29 | does not hold |" in page


def test_a_cell_brings_all_that_it_starts_from(capsys, quick_cells, monkeypatch, tmp_path):
    monkeypatch.setitem(ROWS, "mnist-ais-T5-K5", ROWS["mnist-dreg-K5"])
    monkeypatch.setitem(ROWS, "mnist-ais-T5-K50", ROWS["mnist-dreg-K50"])
    for name in ("mnist-ais-T5-K5", "mnist-ais-T5-K50"):
        monkeypatch.setitem(GAINS, name, [0, 0, 0])
    run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", "mnist-ais-T5-K50")
    assert quick_cells == (
        ["mnist-ais-T5-K5", "mnist-ais-T5-K50"],
        ["mnist-start", "mnist-annealed-start"],
    )


def test_cells_that_are_done_need_no_start(capsys, quick_cells, tmp_path):
    ran, started = quick_cells
    ran.append("mnist-dreg-K1")
    code, _, _ = run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", "mnist-dreg-K1")
    assert (code, ran, started) == (0, ["mnist-dreg-K1"], [])
    assert "mnist-dreg-K1" in (tmp_path / "table1.md").read_text()
    run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", "mnist-start")
    assert started == ["mnist-start"]


def test_weights_that_are_there_are_not_trained_again(capsys, monkeypatch, quick_cells, tmp_path):
    weights = ["mnist-annealed-start"]
    monkeypatch.setattr(cells, "has_weights", lambda cell, out: cell.name in weights)
    run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", "mnist-dreg-K1")
    assert quick_cells == (["mnist-dreg-K1"], [])
    run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", *weights)
    assert quick_cells == (["mnist-dreg-K1"], [])
    # Asked for by name, it is trained from what it starts from.
    weights.clear()
    run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", "mnist-annealed-start")
    assert quick_cells[1] == ["mnist-start", "mnist-annealed-start"]


@pytest.fixture
def elsewhere(capsys, monkeypatch, quick_cells, tmp_path):
    """Return what runs cells of one table, each time in a place that has no other cells."""
    monkeypatch.setattr(commands, "train", lambda *_: "aisle train mnist")

    def run_there(*names):
        quick_cells[0].clear()
        run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", *names)
        found = json.loads((tmp_path / "table1.json").read_text())
        claims = {c["claim"].removeprefix("mnist: "): c["verdict"] for c in found["claims"]}
        return [row["cell"] for row in found["rows"]], claims

    return run_there


def test_what_was_found_elsewhere_stays_in_the_table(elsewhere):
    assert elsewhere("mnist-dreg-K5", "mnist-dreg-K1")[1] == {FIVE: "holds"}
    # The figures of examples that would decide the second claim are not here.
    assert elsewhere("mnist-dreg-K50") == ([*ROWS], {FIVE: "holds"})
    verdicts = {FIVE: "holds", FIFTY: "undecided"}
    assert elsewhere("mnist-dreg-K5", "mnist-dreg-K50") == ([*ROWS], verdicts)


def test_a_claim_goes_when_its_figures_do(elsewhere, monkeypatch):
    elsewhere("mnist-dreg-K5", "mnist-dreg-K1")
    other = ROWS["mnist-dreg-K5"]._replace(log_likelihood=Mean(-85.0, 0.5, 3))
    monkeypatch.setitem(ROWS, "mnist-dreg-K5", other)
    assert elsewhere("mnist-dreg-K5") == (["mnist-dreg-K1", "mnist-dreg-K5"], {})


def test_what_was_found_elsewhere_is_judged_anew(elsewhere, monkeypatch):
    elsewhere("mnist-dreg-K5", "mnist-dreg-K1")
    loose = ROWS["mnist-dreg-K1"]._replace(gap=Mean(1.75, 0.25, 100))
    monkeypatch.setitem(ROWS, "mnist-dreg-K1", loose)
    assert elsewhere("mnist-dreg-K1")[1] == {FIVE: "undecided: the gap may be larger"}


def test_a_row_of_other_settings_goes(elsewhere, monkeypatch):
    elsewhere("mnist-dreg-K1")
    monkeypatch.setattr(commands, "train", lambda *_: "aisle train mnist --epochs 7")
    assert elsewhere("mnist-dreg-K5") == (["mnist-dreg-K5"], {})


def test_a_table_that_cannot_be_read_is_told_before_the_work(capsys, quick_cells, tmp_path):
    for text in ("{", "[]", '{"claims": []}', '{"claims": [], "rows": [{"cell": "a"}]}'):
        (tmp_path / "table1.json").write_text(text)
        result = run(capsys, "reproduce", "table1", "--out", tmp_path)
        assert_mistake(result, "table1.json is not a table of this version", "choose another --out")
    assert quick_cells == ([], [])


def test_cells_that_do_not_exist(capsys, tmp_path):
    result = run(capsys, "reproduce", "table1", "--out", tmp_path, "--cells", "mnist-iwae*")
    assert_mistake(result, "--cells mnist-iwae* matches no cell: choose from mnist-start, mnist-")


def test_the_plan_of_a_table(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(estimating, "estimate", lambda cell: estimating.Estimate(7, 1_234, 90.0))
    out = tmp_path / "none"
    options = ("--plan", "--out", out, "--cells", "mnist-dreg-K1")
    code, printed, _ = run(capsys, "reproduce", "table1", *options)
    assert code == 0
    assert "1,234" in printed
    assert "aisle train mnist --epochs 22" in " ".join(printed.split())
    assert not out.exists()


def test_an_estimate_is_that_of_the_whole_cell():
    spec = tables.named("table1", "smoke", 0)
    found = estimating.estimate(next(c for c in spec.cells if c.name == "mnist-dreg-K5"))
    assert (found.updates, found.decoder_gradients) == (15, 15 * 100 * 10)
    assert 0 < found.seconds < 60


def assert_whole(out, name):
    """See to it that a table of the smoke budget has all its figures and claims."""
    spec = tables.named(name, "smoke", 0)
    found = json.loads((out / f"{name}.json").read_text())
    wanted = [cell.name for cell in spec.cells if cell.evaluation]
    assert [row["cell"] for row in found["rows"]] == wanted
    assert all(np.isfinite(row["log_likelihood"]["mean"]) for row in found["rows"])
    assert [claim["claim"] for claim in found["claims"]] == [c.text for c in spec.claims]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ramp", "recipes"])
def test_tables_beyond_the_paper_from_end_to_end(capsys, tmp_path, name):
    assert run(capsys, "reproduce", name, "--budget", "smoke", "--out", tmp_path)[0] == 0
    assert_whole(tmp_path, name)


@pytest.mark.slow
def test_the_paper_s_tables_from_end_to_end(capsys, tmp_path):
    options = ("--budget", "smoke", "--out", tmp_path)
    for name in ("table1", "table2"):
        assert run(capsys, "reproduce", name, *options)[0] == 0
        assert_whole(tmp_path, name)
    before = {name: text for name, text in contents(tmp_path).items() if "table2" not in name.name}
    assert run(capsys, "reproduce", "table2", *options)[0] == 0
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_two_layers_from_end_to_end(capsys, tmp_path):
    options = ("--budget", "smoke", "--out", tmp_path, "--cells", "mnist-two-layer-*")
    assert run(capsys, "reproduce", "beyond", *options)[0] == 0
    found = json.loads((tmp_path / "beyond.json").read_text())
    names = ["mnist-two-layer-dreg-K5", "mnist-two-layer-ais-tuned-T27-K1"]
    assert [row["cell"] for row in found["rows"]] == names
    assert [claim["claim"] for claim in found["claims"]] == [
        "mnist: with two layers, AIS beats DReG"
    ]
    # What was found is enough, without the runs.
    shutil.copytree(tmp_path / "cells", tmp_path / "other" / "cells")
    again = ("--budget", "smoke", "--out", tmp_path / "other", "--cells", "mnist-two-layer-*")
    assert run(capsys, "reproduce", "beyond", *again)[0] == 0
    assert json.loads((tmp_path / "other" / "beyond.json").read_text()) == found
    assert not (tmp_path / "other" / names[0]).exists()


def test_a_figure_that_only_some_cells_have_is_in_the_csv_file():
    bare, *_ = ROWS.values()
    rows = [bare, bare._replace(short=Mean(-90.0, 0.5, 3))]
    first, second = csv.DictReader(csv_text(list(map(table_files._flat, rows))).splitlines())
    assert (first["short_mean"], second["short_mean"]) == ("", "-90.0")
    assert "short" not in first and first["cell"] == bare.cell
