"""`python -m paper kernels`, from the arguments to the files of a result."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from aisle.statistics import Mean, summarise
from calling import assert_mistake, run
from commands import contents
from paper.core.chains import Preset
from paper.core.trained import Subject
from paper.kernels import page, study
from paper.kernels.study import Config, KernelResult, Study

VARIANTS = {
    "paper": Preset(2, "linear", 0.0, 1.0, 0.6),
    "tuned": Preset(1, "linear", 1.0, 0.6, 0.8),
}
CONFIG = Config(3, 4, (2, 3), 5, 4, 3)
FILES = ["kernels.csv", "kernels.json", "kernels.md"]
LOG_P = np.array([-20.0, -21.0, -22.5])
MEANS = np.array([[4.0, 6.0, 8.0], [2.0, 3.5, 4.0], [3.0, 5.0, 4.0], [1.0, 0.5, 1.5]])


def answer(name, steps, gaps):
    preset, number = VARIANTS[name], max(1, steps // VARIANTS[name].num_leapfrog)
    cost, gap = 1 + number * preset.num_leapfrog, summarise(gaps)
    weight = summarise(LOG_P - gaps)
    return KernelResult(name, preset, steps, number, cost, weight, gap, 0.5, 0, 1.25, gaps)


RESULTS = [
    answer(name, steps, gaps)
    for (steps, name), gaps in zip(
        [(steps, name) for steps in (2, 3) for name in VARIANTS], MEANS, strict=True
    )
]
FLOORS = [answer("tuned", steps, gaps / 2) for steps, gaps in zip((2, 3), MEANS[1::2], strict=True)]


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Answer at once; return what was asked, and the gap of the truth."""
    asked, gap = [], [Mean(0.0625, 0.03, 100)]

    def begin(path, config, *, out, data_dir):
        asked.append((path, config, out, data_dir))
        folder = tmp_path / "answer" if out is None else out
        folder.mkdir(exist_ok=True)
        indices, none = np.arange(3), np.zeros((3, 1), np.float32)
        command = "aisle train digits --epochs 1"
        subject = Subject(path, 7, None, None, command, indices, none, none)
        return Study._make((subject, config, folder, False))

    def truth(study):
        return SimpleNamespace(
            log_p=LOG_P,
            estimate=summarise(LOG_P),
            bdmc=SimpleNamespace(gap=gap[0]),
            num_chains=4,
            num_temperatures=5,
            seconds=2.5,
        )

    monkeypatch.setattr(study, "begin", begin)
    monkeypatch.setattr(study, "estimate_truth", truth)
    monkeypatch.setattr(study, "compare", lambda *_: iter(RESULTS))
    monkeypatch.setattr(study, "floors", lambda *_: iter(FLOORS))
    monkeypatch.setattr(page, "as_json", lambda _: {"seconds": 2.5, "betas": [0, 1]})
    return asked, gap


pytestmark = pytest.mark.usefixtures("as_users_have_it")


def test_the_arguments(capsys, quick, tmp_path):
    options = ("--num-examples", 24, "--chains", 4, "--steps", 2, 3, "--seed", 3)
    places = ("--out", tmp_path / "out", "--data-dir", tmp_path)
    long = ("--truth-temperatures", 5, "--truth-chains", 6)
    assert run(capsys, "kernels", "some/run", *options, *long, *places)[0] == 0
    assert run(capsys, "kernels", "some/run", "--budgets", 7)[0] == 0
    assert run(capsys, "kernels", "some/run")[0] == 0
    (path, config, out, data_dir), (_, other, *_), (_, usual, *nowhere) = quick[0]
    assert str(path) == "some/run"
    assert config == Config(24, 4, (2, 3), 5, 6, 3)
    assert (out, data_dir) == (tmp_path / "out", tmp_path)
    assert other.steps == (7,)
    assert usual == Config(256, 8, (22, 55, 220), 2000, 16, 0)
    assert nowhere == [None, None]


def test_files_and_screen_say_the_same(capsys, quick, tmp_path):
    code, printed, _ = run(capsys, "kernels", "some/run", "--out", tmp_path, "--seed", 3)
    assert code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == FILES
    content = json.loads((tmp_path / "kernels.json").read_text())
    text = (tmp_path / "kernels.md").read_text()
    with (tmp_path / "kernels.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    rows = content["rows"]
    assert [(r["variant"], r["steps"]) for r in rows] == [(r.variant, r.steps) for r in RESULTS]
    assert [{k: str(v) for k, v in r.items()} for r in rows] == table
    for row, result in zip(rows, RESULTS, strict=True):
        assert (row["gap"], row["gap_standard_error"]) == result.gap[:2]
        assert {name: row[name] for name in Preset._fields} == result.preset._asdict()
        shown = f"{row['gap']:.3f} +- {row['gap_standard_error']:.3f}"
        assert printed.count(shown) >= 2
        assert f"| {shown} |" in text
    for line in text.splitlines():
        if line.startswith("- "):
            assert line[2:] in printed
    for name in FILES:
        assert str(tmp_path / name) in printed


def test_the_headlines_come_from_the_results(capsys, quick, tmp_path):
    _, printed, _ = run(capsys, "kernels", "some/run", "--out", tmp_path)
    content = json.loads((tmp_path / "kernels.json").read_text())
    first, second = content["tuned_by_paper"]
    assert (first["steps"], second["steps"]) == (2, 3)
    assert first["ratio"] == pytest.approx(9.5 / 18)
    assert "gap of tuned / gap of paper at 2: 0.528 +- " in printed
    (saving,) = content["tuned_against_more_steps_of_paper"]
    assert (saving["tuned_steps"], saving["paper_steps"]) == (2, 3)
    assert saving["mean"] == pytest.approx(2.5 / 3)
    assert "tuned at 2 against paper at 3: its gap is smaller by 0.833 +-" in printed
    assert "times more: a gap of 0.500 +- " in printed
    assert [floor["gap"] for floor in content["many_moves"]] == [
        pytest.approx(19 / 12),
        pytest.approx(0.5),
    ]


def test_the_json_file_says_what_was_measured_by_what(capsys, quick, tmp_path):
    run(capsys, "kernels", "some/run", "--out", tmp_path, "--seed", 3)
    content = json.loads((tmp_path / "kernels.json").read_text())
    assert (content["run"], content["update"], content["seed"]) == ("run", 7, 3)
    assert content["training"] == "aisle train digits --epochs 1"
    assert content["config"]["steps"] == [22, 55, 220]
    # What has an entry for each temperature is left to the truth's own folder.
    assert content["truth"] == {"seconds": 2.5}
    assert content["seconds"] == 2.5 + 6 * 1.25
    assert content["machine"]["devices"]
    assert content["packages"]["jax"]


def test_a_line_for_each_result(capsys, quick, tmp_path):
    _, printed, _ = run(capsys, "kernels", "some/run", "--out", tmp_path)
    lines = printed.splitlines()
    assert lines[0].startswith("log p(x) >= -21.167")
    assert "by 4 chains of 5 temperatures; gap of bidirectional Monte Carlo" in lines[0]
    rows = [line for line in lines if " gradients   gap " in line]
    assert rows[0].startswith("paper, 2:   T=1 L=2, 3 gradients   gap 6.000 +- ")
    assert rows[-1].startswith("tuned, 3:   T=3 L=1, 4 gradients   gap 1.000 +- ")


@pytest.mark.parametrize(("gap", "is_said"), [(0.0999, False), (0.25, True), (float("nan"), True)])
def test_a_wide_gap_of_the_truth_is_said(capsys, quick, tmp_path, gap, is_said):
    quick[1][0] = Mean(gap, 0.03, 100)
    _, printed, _ = run(capsys, "kernels", "some/run", "--out", tmp_path)
    words = f"log p(x) is too low by up to {gap:.3f}"
    for text in (printed, (tmp_path / "kernels.md").read_text()):
        assert (words in text) == is_said


def test_a_number_that_is_not_finite_is_null(capsys, quick, monkeypatch, tmp_path):
    """A single example has no standard error, and JSON no NaN."""
    mean = Mean(-9.5, float("nan"), 1)
    bare = [result._replace(gap=mean, log_weight=mean) for result in RESULTS]
    monkeypatch.setattr(study, "compare", lambda *_: iter(bare))
    run(capsys, "kernels", "some/run", "--out", tmp_path)
    text = (tmp_path / "kernels.json").read_text()
    row = json.loads(text, parse_constant=pytest.fail)["rows"][0]
    assert row["gap"] == -9.5
    assert row["gap_standard_error"] is row["log_weight_standard_error"] is None


@pytest.mark.slow
def test_from_end_to_end(capsys, monkeypatch, digits, tmp_path):
    monkeypatch.setattr(study, "VARIANTS", VARIANTS)
    settings = ("--num-examples", 24, "--chains", 4, "--steps", 2, "--seed", 3)
    options = (*settings, "--truth-temperatures", 5, "--truth-chains", 4)
    code, printed, _ = run(capsys, "kernels", digits, *options)
    assert code == 0
    folder = digits / "kernels"
    assert sorted(p.name for p in folder.iterdir()) == [*FILES, "rows", "settings.json", "truth"]
    before = contents(folder)

    def computed(*_, **__):
        raise AssertionError("the work began")

    monkeypatch.setattr(study, "_run_chains", computed)
    monkeypatch.setattr("aisle.evaluation.work._compile", computed)
    assert run(capsys, "kernels", digits, *options) == (0, printed, "")
    assert contents(folder) == before
    result = run(capsys, "kernels", digits, *options, "--chains", 5)
    assert_mistake(result, f"{folder} is", "with other chains: choose another folder")
    assert contents(folder) == before


@pytest.fixture
def never(monkeypatch):
    """Fail instead of computing."""

    def computed(*_, **__):
        raise AssertionError("the work began")

    for name in ("estimate_truth", "_run_chains"):
        monkeypatch.setattr(study, name, computed)


def test_other_files_are_left_alone(capsys, untrained, never):
    notes = untrained.parent / "notes.txt"
    notes.write_text("mine")
    for out in (notes.parent, notes):
        assert_mistake(
            run(capsys, "kernels", untrained, "--out", out), str(out), "choose another folder"
        )
    assert contents(untrained.parent) == {notes: b"mine"}


def test_ctrl_c_says_how_to_resume(capsys, monkeypatch, quick):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "estimate_truth", interrupted)
    code, out, err = run(capsys, "kernels", "some/run")
    assert (code, out) == (130, "")
    assert err == "paper: interrupted: the same command resumes\n"


BAD_OPTIONS = [
    (["--steps", "0"], "--steps is (0,): it must be one or more numbers, each at least 1"),
    (["--steps", "22", "-5"], "-5"),
    (["--steps"], "steps"),
    (["--steps", "many"], "many"),
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
def test_a_bad_option_costs_one_line_and_leaves_nothing(capsys, untrained, never, options, words):
    assert_mistake(run(capsys, "kernels", untrained, *options), words)
    assert not list(untrained.iterdir())
