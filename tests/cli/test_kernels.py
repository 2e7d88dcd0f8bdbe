"""`aisle kernels`, from the arguments to the files of a result."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from aisle.annealing.presets import Preset
from aisle.cli import kernels as command
from aisle.experiments import kernels
from aisle.experiments.kernels import Row
from aisle.statistics import Mean
from commands import assert_mistake, contents, run

pytestmark = pytest.mark.slow

SETTINGS = (
    *("--num-examples", 24, "--chains", 4, "--budgets", 2, 3, "--seed", 3),
    *("--truth-temperatures", 5, "--truth-chains", 4),
)
# The last two share their programs.
VARIANTS = {
    "paper": Preset(2, "linear", 0.0, 1.0, 0.0, 0.6),
    "tuned": Preset(1, "linear", 1.0, 0.6, 0.0, 0.8),
    "tuned, target 0.9": Preset(1, "linear", 1.0, 0.6, 0.0, 0.9),
}
FILES = ["kernels.csv", "kernels.json", "kernels.md"]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(kernels, "VARIANTS", VARIANTS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Where the comparison that nothing happened to is kept, once it is made."""
    return tmp_path_factory.mktemp("finished") / "out"


@pytest.fixture
def compared(capsys, digits, finished):
    """What the command prints, now or again."""
    code, out, _ = run(capsys, "kernels", digits, *SETTINGS, "--out", finished)
    assert code == 0
    return out


@pytest.fixture
def never(monkeypatch):
    """Fail instead of computing."""

    def computed(*_, **__):
        raise AssertionError("the work began")

    for name in ("estimate_truth", "_run"):
        monkeypatch.setattr(kernels, name, computed)


def test_the_files_and_the_table_agree(compared, finished):
    assert sorted(p.name for p in finished.iterdir()) == [*FILES, "rows", "settings.json", "truth"]
    content = json.loads((finished / "kernels.json").read_text())
    page = (finished / "kernels.md").read_text()
    with (finished / "kernels.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    rows = content["rows"]
    assert [(r["variant"], r["budget"]) for r in rows] == [(v, b) for b in (2, 3) for v in VARIANTS]
    assert [{k: str(v) for k, v in r.items()} for r in rows] == table
    with np.load(finished / "truth" / "examples.npz") as file:
        log_p = file["log_p"]
    for row in rows:
        name = f"{row['variant']}-{row['budget']}.npz".replace(", ", "-").replace(" ", "-")
        with np.load(finished / "rows" / name) as file:
            gaps = log_p - file["log_weight"].mean(1, dtype=float)
        assert row["gap"] == pytest.approx(gaps.mean(), rel=1e-12)
        assert row["gap_standard_error"] == pytest.approx(gaps.std(ddof=1) / 24**0.5, rel=1e-12)
        assert {f: row[f] for f in Preset._fields} == VARIANTS[row["variant"]]._asdict()
        assert row["gradients"] == row["num_temperatures"] * row["num_leapfrog"] + 1
        shown = f"{row['gap']:.3f} +- {row['gap_standard_error']:.3f}"
        assert compared.count(shown) >= 2
        assert f"| {shown} |" in page
    for line in page.splitlines():
        if line.startswith("- "):
            assert line[2:] in compared
    for name in FILES:
        assert str(finished / name) in compared


def test_the_headlines_come_from_the_rows(compared, finished):
    content = json.loads((finished / "kernels.json").read_text())
    gaps = {(r["variant"], r["budget"]): r["gap"] for r in content["rows"]}
    for found, budget in zip(content["tuned_by_paper"], (2, 3), strict=True):
        assert found["budget"] == budget
        ratio = gaps["tuned", budget] / gaps["paper", budget]
        assert found["ratio"] == pytest.approx(ratio, rel=1e-9)
        assert f"gap of tuned / gap of paper at {budget}: {ratio:.3f} +- " in compared
    (found,) = content["tuned_against_the_next_budget_of_paper"]
    assert (found["tuned_budget"], found["paper_budget"]) == (2, 3)
    difference = gaps["paper", 3] - gaps["tuned", 2]
    assert found["mean"] == pytest.approx(difference, rel=1e-9)
    assert f"tuned at 2 against paper at 3: its gap is smaller by {difference:.3f} +-" in compared


def test_the_json_file_says_what_was_measured_by_what(compared, digits, finished):
    content = json.loads((finished / "kernels.json").read_text())
    assert (content["run"], content["update"], content["seed"]) == ("run", 3, 3)
    assert content["training"].startswith("aisle train digits --epochs ")
    assert content["config"] == {
        "num_examples": 24,
        "chains": 4,
        "budgets": [2, 3],
        "truth_temperatures": 5,
        "truth_chains": 4,
        "seed": 3,
    }
    truth = content["truth"]
    assert truth["log_likelihood"]["num_examples"] == 24
    assert truth["bdmc"]["num_examples"] == 100
    assert truth["num_temperatures"] == 5
    assert "betas" not in truth
    assert content["seconds"] >= truth["seconds"] > 0
    assert content["machine"]["devices"]
    assert content["packages"]["jax"]


def test_a_line_for_each_row(compared):
    lines = compared.splitlines()
    assert lines[0].startswith("log p(x) >= -")
    assert "by 4 chains of 5 temperatures; gap of bidirectional Monte Carlo" in lines[0]
    rows = [line for line in lines if " gradients   gap " in line]
    assert len(rows) == 6
    assert rows[0].startswith("paper, 2:   T=1 L=2, 3 gradients   gap ")
    assert rows[-1].startswith("tuned, target 0.9, 3:   T=3 L=1, 4 gradients   gap ")


@pytest.mark.parametrize(("limit", "is_said"), [(1e-9, True), (1e9, False)])
def test_a_wide_gap_of_the_truth_is_said(
    capsys, monkeypatch, digits, finished, compared, limit, is_said
):
    monkeypatch.setattr(command, "_LARGEST_GAP", limit)
    _, out, _ = run(capsys, "kernels", digits, *SETTINGS, "--out", finished)
    content = json.loads((finished / "kernels.json").read_text())
    words = f"log p(x) is too low by up to {content['truth']['bdmc']['gap']:.3f}"
    assert (words in out) == is_said
    assert (words in (finished / "kernels.md").read_text()) == is_said


def test_the_same_command_shows_it_again(capsys, monkeypatch, digits, finished, compared, tmp_path):
    def computed(*_):
        raise AssertionError("the work began")

    before = contents(finished)
    monkeypatch.setattr(kernels, "_run", computed)
    monkeypatch.setattr("aisle.evaluation.work._compile", computed)
    code, out, err = run(capsys, "kernels", digits, *SETTINGS, "--out", finished)
    assert (code, out, err) == (0, compared, "")
    assert contents(finished) == before


def test_another_comparison_is_not_overwritten(capsys, digits, finished, compared, never):
    before = contents(finished)
    result = run(capsys, "kernels", digits, *SETTINGS, "--chains", 5, "--out", finished)
    assert_mistake(result, f"{finished} is", "with other chains: choose another --out")
    assert contents(finished) == before


def test_other_files_are_left_alone(capsys, tmp_path, digits, never):
    (tmp_path / "notes.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "notes.txt"):
        assert_mistake(run(capsys, "kernels", digits, "--out", out), str(out), "--out")
    assert contents(tmp_path) == {tmp_path / "notes.txt": b"mine"}


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch, tmp_path, digits):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels, "estimate_truth", interrupted)
    code, out, err = run(capsys, "kernels", digits, "--out", tmp_path / "out")
    assert (code, out) == (130, "")
    assert err == "aisle: interrupted: the same command goes on where it was\n"


class StopError(Exception):
    pass


def test_the_defaults(monkeypatch, digits):
    asked = []

    def begin(*arguments, **options):
        asked.append((arguments, options))
        raise StopError

    monkeypatch.setattr(kernels, "begin", begin)
    from aisle.cli import main

    with pytest.raises(StopError):
        main(["kernels", str(digits)])
    config = kernels.Config(256, 8, (22, 55, 220), 2000, 16, 0)
    assert asked == [((digits, config), {"out": None, "data_dir": None})]


def test_a_figure_that_is_not_finite_is_null(monkeypatch, tmp_path, compared, finished):
    """A single example has no standard error, and JSON no NaN."""
    mean = Mean(-9.5, float("nan"), 1)
    row = Row("paper", VARIANTS["paper"], 2, 1, 3, mean, mean, 0.5, 0, 1.0, np.array([-9.5]))
    monkeypatch.setattr(command, "_content", lambda *_: {"rows": [command._record(row)]})
    monkeypatch.setattr(command, "_page", lambda *_: "")
    figures, _, _ = command._save(SimpleNamespace(folder=tmp_path), None, [row])
    [record] = json.loads(figures.read_text(), parse_constant=pytest.fail)["rows"]
    assert record["gap"] == -9.5
    assert record["gap_standard_error"] is record["log_weight_standard_error"] is None
    text = (finished / "kernels.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["rows"][0].keys() == record.keys()


BAD_OPTIONS = [
    (["--budgets", "0"], "--budgets is (0,): it must be one or more numbers, each at least 1"),
    (["--budgets", "22", "-5"], "-5"),
    (["--budgets"], "budgets"),
    (["--budgets", "many"], "many"),
    (["--chains", "0"], "--chains is 0: it must be at least 1"),
    (["--num-examples", "0"], "--num-examples is 0"),
    (["--truth-temperatures", "1"], "--truth-temperatures is 1: it must be at least 2"),
    (["--truth-chains", "0"], "--truth-chains is 0"),
    (["--seed", "-1"], "--seed is -1"),
    (["--no-such-option"], "--no-such-option"),
]


@pytest.mark.parametrize(
    ("options", "words"), BAD_OPTIONS, ids=lambda a: " ".join(a) if isinstance(a, list) else ""
)
def test_a_bad_option_costs_one_line_and_leaves_nothing(
    capsys, tmp_path, digits, never, options, words
):
    before = contents(digits)
    assert_mistake(run(capsys, "kernels", digits, *options), words)
    assert contents(digits) == before
    assert not (digits / "kernels").exists()
