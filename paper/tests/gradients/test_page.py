"""`aisle gradients`, from the arguments to its files."""

import csv
import functools
import json

import numpy as np
import pytest
from PIL import Image

from aisle.experiments import gradient_bench, gradients
from aisle.experiments.gradient_bench import Settings
from aisle.experiments.gradient_reference import Reference
from aisle.experiments.gradient_table import ESTIMATORS, KERNELS, Row, best_hybrid, verdict
from aisle.experiments.gradients import Outcome
from commands import assert_mistake, contents, run

FILES = {"gradients.json", "gradients.md", "gradients.csv", "gradients.png"}


def row(kernel, T, name, bias=0.04, noise=0.5, error=0.002, size=2.0):
    """Return a row of known squares."""
    weighted = ESTIMATORS[name].weighting != "equal"
    return Row(
        kernel,
        T,
        T if kernel == "paper" else 2 * T,
        5 if kernel == "paper" else 2,
        name,
        5 * (5 * T + 2),
        bias,
        error,
        noise,
        0.01,
        bias + noise,
        0.01,
        -1.25,
        0.5,
        size if weighted else 5.0,
        0.6,
    )


def table(at=None, temperatures=(5, 11)):
    """Return rows of all estimators; `at` has other (bias, noise) by kernel, T and name."""
    places = [(k, T, name) for k in KERNELS for T in temperatures for name in ESTIMATORS]
    return [row(*place, *(at or {}).get(place, ())) for place in places]


def outcome(settings, at=None):
    rows = table(at, settings.temperatures)
    rng, curve = np.random.default_rng(0), [row("paper", 2, "mh-hmc"), row("paper", 2, "ais")]
    reference = Reference(
        2 + 0.1 * rng.normal(size=(8, 50)), rng.normal(size=(8, 6)), rng.normal(size=6), np.ones(6)
    )
    return Outcome(rows, curve, "1/2 ais, then hmc", reference, settings)


UNBIASED = ("paper", 5, "ais")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Answer at once, and remember what was asked."""
    asked = []

    def answer(path, settings, *, out, data_dir):
        asked.append((path, settings, out, data_dir))
        folder = tmp_path / "answer" if out is None else out
        folder.mkdir(parents=True, exist_ok=True)
        return outcome(settings, {UNBIASED: (-0.001, 1.0)}), folder

    monkeypatch.setattr(gradients, "run", answer)
    return asked


def test_the_arguments(capsys, quick, tmp_path):
    options = ("--num-examples", 32, "--repeats", 8, "-K", 7, "--temperatures", 3, 5, 20, "-L", 4)
    places = ("--seed", 6, "--out", tmp_path / "out", "--data-dir", tmp_path)
    assert run(capsys, "gradients", "some/run", *options, *places)[0] == 0
    assert run(capsys, "gradients", "some/run")[0] == 0
    (path, settings, out, data_dir), (_, usual, no_out, no_data) = quick
    assert str(path) == "some/run"
    assert settings == Settings(32, 8, 7, (3, 5, 20), 4, 6)
    assert (out, data_dir) == (tmp_path / "out", tmp_path)
    assert (usual, no_out, no_data) == (Settings(), None, None)
    assert (usual.num_examples, usual.repeats, usual.temperatures) == (128, 32, (5, 11))


def test_files_and_screen_say_the_same(capsys, quick, tmp_path):
    code, printed, _ = run(capsys, "gradients", "some/run", "--out", tmp_path / "out")
    assert code == 0
    folder = tmp_path / "out"
    assert {path.name for path in folder.iterdir()} == FILES
    figures = json.loads((folder / "gradients.json").read_text())
    found = outcome(Settings(), {UNBIASED: (-0.001, 1.0)})
    assert figures["rows"] == [r._asdict() for r in found.rows]
    assert figures["curve"] == [r._asdict() for r in found.curve]
    assert figures["config"]["repeats"] == 32
    assert figures["seed"] == 0
    assert figures["reference"]["norm"] == pytest.approx(2 * 50**0.5, rel=0.05)
    assert figures["packages"]["jax"]
    with (folder / "gradients.csv").open(newline="") as file:
        stored = list(csv.DictReader(file))
    assert len(stored) == 2 * 2 * len(ESTIMATORS) + 2
    assert float(stored[0]["squared_bias"]) == found.rows[0].squared_bias
    page = (folder / "gradients.md").read_text()
    for text in (printed, page):
        assert "paper kernel, 5 transitions of 5 steps, 135 gradients" in text
        assert "tuned kernel, 22 transitions of 2 steps, 285 gradients" in text
        # The root of 0.04 +- 0.002, and what lies two errors above a square that is not there.
        assert "0.200 +- 0.005" in text
        assert "< 0.055" in text
        assert "-1.25 +- 0.50" in text
        assert all(name in text for name in ESTIMATORS)
        assert all(line in text for line in figures["verdict"])
        assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for name in FILES:
        assert str(folder / name) in printed
    with Image.open(folder / "gradients.png") as image:
        assert image.format == "PNG"
        assert image.width > 1500


def test_two_costs_that_are_called_alike_are_both_shown(capsys, monkeypatch, tmp_path):
    found = outcome(Settings())
    alike = [r._replace(num_transitions=5, gradients=99) for r in found.rows]
    monkeypatch.setattr(gradients, "run", lambda *_, **__: (found._replace(rows=alike), tmp_path))
    assert run(capsys, "gradients", "some/run")[0] == 0
    page = (tmp_path / "gradients.md").read_text()
    assert page.count("## paper kernel, 5 transitions of 5 steps, 99 gradients") == 2


def test_figures_that_are_not_finite_are_null(capsys, monkeypatch, tmp_path):
    found = outcome(Settings())
    rows = [r._replace(log_joint_error=float("nan")) for r in found.rows]
    monkeypatch.setattr(gradients, "run", lambda *_, **__: (found._replace(rows=rows), tmp_path))
    assert run(capsys, "gradients", "some/run")[0] == 0
    figures = json.loads((tmp_path / "gradients.json").read_text(), parse_constant=pytest.fail)
    assert figures["rows"][0]["log_joint_error"] is None


# ---- what the rows say


def test_the_verdict_tells_who_is_less_biased():
    rows = table(
        at={
            ("paper", 5, "ais"): (0.02, 2.5),
            ("paper", 11, "ais"): (0.039, 2.5),
            ("tuned", 5, "ais"): (0.09, 0.5),
            ("tuned", 11, "ais"): (0.02, 0.4),
        }
    )
    lines = verdict(rows)
    assert lines[0] == (
        "paper kernel, 5 transitions of 5 steps: the less biased is ais (ais 0.141, mh-hmc 0.200, "
        "z = 7.1). Without its weights ais has 0.200; with them 2.0 of 5 chains count, and its "
        "noise is 1.58, mh-hmc's 0.71. Its error is the smaller one in an average over 100 "
        "updates or more."
    )
    assert ": the less biased is neither (ais 0.197, mh-hmc 0.200, z = 0.4)" in lines[1]
    assert ": the less biased is mh-hmc (ais 0.300, mh-hmc 0.200, z = -17.7)" in lines[2]
    assert lines[2].startswith("tuned kernel, 10 transitions of 2 steps")
    assert "the less biased is ais" in lines[3]
    assert not any("updates or more" in line for line in lines[1:])


def test_the_verdict_tells_what_neither_beats():
    """At any T: the better of both has a square of 0.04, and its rivals' errors are 0.002."""
    high = {
        (kernel, 5, name): (0.2, 0.5)
        for kernel in KERNELS
        for name in ESTIMATORS
        if name not in ("ais", "mh-hmc")
    }
    some = {
        # Worse by 1.8 standard errors of the difference at one T, and by 3.5 at the other.
        ("paper", 5, "1/2 ais, then hmc"): (0.045, 0.5),
        ("paper", 5, "3/4 ais, then hmc"): (0.045, 0.5),
        ("paper", 11, "3/4 ais, then hmc"): (0.05, 0.5),
        # Not beaten in bias only, and in both.
        ("tuned", 5, "1/4 ais, then hmc"): (0.01, 0.6),
        ("tuned", 5, "1/2 ais, then hmc"): (0.01, 0.4),
        ("paper", 5, "mh-hmc"): (0.06, 0.5),
    }
    lines = verdict(table(at=high | some))[4:8]
    assert [line.split(": ")[1] for line in lines] == [
        "ais; 1/2 ais, then hmc.",
        "ais; 1/2 ais, then hmc.",
        "mh-hmc; ais; 1/4 ais, then hmc; 1/2 ais, then hmc.",
        "mh-hmc; ais; 1/2 ais, then hmc.",
    ]
    everything = verdict(table())
    assert everything[4].endswith("at any T: all.")
    nothing = {("tuned", 5, name): (9.0, 0.5) for name in ESTIMATORS}
    assert verdict(table(at=nothing))[6].endswith("at any T: none.")


def test_the_verdict_tells_where_a_part_of_the_transitions_is_none():
    """A quarter of 5, rounded, is the one transition that reaches the posterior."""
    assert verdict(table())[8:] == [
        "With 5 transitions these anneal nothing, and all moves are those of mh-hmc: 1/4 ais, then "
        "hmc; 1/4 ais, then hmc, equal weights."
    ]
    assert len(verdict(table(temperatures=(11,)))) == 6


def test_a_bias_that_is_not_a_number_is_not_good():
    rows = table(at={("tuned", 5, name): (float("nan"), 0.5) for name in ESTIMATORS})
    assert verdict(rows)[6].endswith("at any T: none.")


def test_the_best_hybrid_is_the_least_biased_with_the_papers_kernel():
    at = {
        ("paper", 5, "mh-hmc"): (0.0, 0.5),
        ("tuned", 5, "1/4 ais, then hmc"): (0.0, 0.5),
        ("paper", 5, "1/2 ais, then hmc"): (0.01, 0.5),
        ("paper", 11, "3/4 ais, then hmc, equal weights"): (0.005, 0.5),
    }
    assert best_hybrid(table(at=at)) == "3/4 ais, then hmc, equal weights"


# ---- from end to end


@pytest.fixture
def small(monkeypatch):
    """A reference of seconds, and no curve."""
    fewer = functools.partial(
        Settings, reference_temperatures=3, reference_chains=1, reference_stops=2, reference_moves=1
    )
    monkeypatch.setattr(gradient_bench, "Settings", fewer)
    monkeypatch.setattr(gradients, "CURVE", ())


FEW = ("--num-examples", 4, "--repeats", 3, "-K", 2, "--temperatures", 2, 2, "-L", 2)


@pytest.mark.slow
def test_a_run_is_measured_and_the_same_command_shows_it_again(capsys, small, digits):
    code, first, progress = run(capsys, "gradients", digits, *FEW)
    assert code == 0
    assert "reference" in progress and "tuned-T2-ramp75" in progress
    folder = digits / "gradients"
    assert {path.name for path in folder.iterdir()} == FILES | {"parts", "settings.json"}
    figures = json.loads((folder / "gradients.json").read_text())
    assert len(figures["rows"]) == 2 * len(ESTIMATORS)
    assert figures["config"]["temperatures"] == [2]
    assert figures["config"]["reference_temperatures"] == 3
    assert figures["training"].startswith("aisle train digits --epochs ")
    assert all(np.isfinite(r["squared_bias"]) for r in figures["rows"])
    before = {path: path.stat().st_mtime_ns for path in (folder / "parts").iterdir()}
    code, again, progress = run(capsys, "gradients", digits, *FEW)
    assert (code, again, progress) == (0, first, "")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # Another number of repeats is another measurement.
    kept = contents(folder)
    result = run(capsys, "gradients", digits, *FEW, "--repeats", 4)
    assert_mistake(result, "is an evaluation with other repeats: choose another --out")
    assert contents(folder) == kept


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch, digits, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(gradients, "measure", interrupted)
    code, out, err = run(capsys, "gradients", digits, "--out", tmp_path / "out")
    assert (code, out) == (130, "")
    assert err == "aisle: interrupted: the same command goes on where it was\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--repeats", 2], "--repeats is 2: it must be at least 3"),
        (["--num-examples", 0], "--num-examples is 0: it must be at least 1"),
        (["-K", 0], "--num-samples is 0: it must be at least 1"),
        (["-L", 0], "--num-leapfrog is 0: it must be at least 1"),
        (["--temperatures", 5, 0], "--temperatures is (5, 0): it must be one or more numbers"),
        (["--seed", -1], "--seed is -1: it must be from 0 to 4294967295"),
        (["--repeats", "many"], "--repeats"),
    ],
)
def test_mistakes_are_told_before_the_work(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.setattr(gradients, "measure", pytest.fail)
    out = tmp_path / "results"
    assert_mistake(run(capsys, "gradients", tmp_path / "run", "--out", out, *arguments), words)
    assert not out.exists()


def test_folders_that_cannot_be_used(capsys, monkeypatch, digits, tmp_path):
    monkeypatch.setattr(gradients, "measure", pytest.fail)
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").touch()
    before = contents(tmp_path)
    for folder, words in (
        ("file", "choose another --out"),
        ("taken", "holds other files: choose another --out"),
    ):
        assert_mistake(run(capsys, "gradients", digits, "--out", tmp_path / folder), words)
    assert contents(tmp_path) == before
    assert_mistake(run(capsys, "gradients", tmp_path / "no run"), "no run")
