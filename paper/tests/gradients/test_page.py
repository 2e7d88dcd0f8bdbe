"""`python -m paper gradients`, from the arguments to its files."""

import csv
import functools
import json

import numpy as np
import pytest
from PIL import Image

from calling import assert_mistake, run
from commands import contents
from known_results import result, table
from paper.gradients import bench, page, study
from paper.gradients.bench import Settings
from paper.gradients.estimators import ESTIMATORS
from paper.gradients.reference import Reference
from paper.gradients.study import GradientStudy

FILES = {"gradients.json", "gradients.md", "gradients.csv", "gradients.png"}


def answer(settings, at=None):
    results = table(at, settings.temperatures)
    rng, curve = np.random.default_rng(0), [result("paper", 2, name) for name in ("mh-hmc", "ais")]
    reference = Reference(
        2 + 0.1 * rng.normal(size=(8, 50)), rng.normal(size=(8, 6)), rng.normal(size=6), np.ones(6)
    )
    return GradientStudy(results, curve, "1/2 ais, then hmc", reference, settings)


UNBIASED = ("paper", 5, "ais")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Answer at once, and remember what was asked."""
    asked = []

    def measure_run(path, settings, *, out, data_dir):
        asked.append((path, settings, out, data_dir))
        folder = tmp_path / "answer" if out is None else out
        folder.mkdir(parents=True, exist_ok=True)
        return answer(settings, {UNBIASED: (-0.001, 1.0)}), folder

    monkeypatch.setattr(study, "measure_run", measure_run)
    return asked


@pytest.fixture
def undrawn(monkeypatch):
    """Leave the picture out, which takes seconds."""
    monkeypatch.setattr(page, "save_gradients", lambda path, *_: path.touch())


def test_the_arguments(capsys, quick, tmp_path, undrawn):
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


@pytest.mark.slow
def test_files_and_screen_say_the_same(capsys, quick, tmp_path):
    code, printed, _ = run(capsys, "gradients", "some/run", "--out", tmp_path / "out")
    assert code == 0
    folder = tmp_path / "out"
    assert {path.name for path in folder.iterdir()} == FILES
    numbers = json.loads((folder / "gradients.json").read_text())
    found = answer(Settings(), {UNBIASED: (-0.001, 1.0)})
    assert numbers["rows"] == [r._asdict() for r in found.results]
    assert numbers["curve"] == [r._asdict() for r in found.curve]
    assert numbers["config"]["repeats"] == 32
    assert numbers["seed"] == 0
    assert numbers["reference"]["norm"] == pytest.approx(2 * 50**0.5, rel=0.05)
    assert numbers["packages"]["jax"]
    with (folder / "gradients.csv").open(newline="") as file:
        stored = list(csv.DictReader(file))
    assert len(stored) == 2 * 2 * len(ESTIMATORS) + 2
    assert float(stored[0]["squared_bias"]) == found.results[0].squared_bias
    text_page = (folder / "gradients.md").read_text()
    for text in (printed, text_page):
        assert "paper kernel, 5 transitions of 5 steps, 135 gradients" in text
        assert "tuned kernel, 22 transitions of 2 steps, 285 gradients" in text
        # The root of 0.04 +- 0.002, and what lies two errors above a square that is not there.
        assert "0.200 +- 0.005" in text
        assert "< 0.055" in text
        assert "-1.25 +- 0.50" in text
        assert all(name in text for name in ESTIMATORS)
        assert all(line in text for line in numbers["verdict"])
        assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for name in FILES:
        assert str(folder / name) in printed
    with Image.open(folder / "gradients.png") as image:
        assert image.format == "PNG"
        assert image.width > 1500


def test_two_costs_that_are_called_alike_are_both_shown(capsys, monkeypatch, tmp_path, undrawn):
    found = answer(Settings())
    alike = [r._replace(num_transitions=5, gradients=99) for r in found.results]
    monkeypatch.setattr(
        study, "measure_run", lambda *_, **__: (found._replace(results=alike), tmp_path)
    )
    assert run(capsys, "gradients", "some/run")[0] == 0
    text_page = (tmp_path / "gradients.md").read_text()
    assert text_page.count("## paper kernel, 5 transitions of 5 steps, 99 gradients") == 2


def test_a_number_that_is_not_finite_is_null(capsys, monkeypatch, tmp_path, undrawn):
    found = answer(Settings())
    bare = [r._replace(log_joint_error=float("nan")) for r in found.results]
    monkeypatch.setattr(
        study, "measure_run", lambda *_, **__: (found._replace(results=bare), tmp_path)
    )
    assert run(capsys, "gradients", "some/run")[0] == 0
    numbers = json.loads((tmp_path / "gradients.json").read_text(), parse_constant=pytest.fail)
    assert numbers["rows"][0]["log_joint_error"] is None


@pytest.fixture
def small(monkeypatch):
    """A reference of seconds, and no curve."""
    fewer = functools.partial(
        Settings, reference_temperatures=3, reference_chains=1, reference_stops=2, reference_moves=1
    )
    monkeypatch.setattr(bench, "Settings", fewer)
    monkeypatch.setattr(study, "CURVE", ())


FEW = ("--num-examples", 4, "--repeats", 3, "-K", 2, "--temperatures", 2, 2, "-L", 2)


@pytest.mark.slow
def test_a_run_is_measured_and_the_same_command_shows_it_again(capsys, small, digits):
    code, first, progress = run(capsys, "gradients", digits, *FEW)
    assert code == 0
    assert "reference" in progress and "tuned-T2-ramp75" in progress
    folder = digits / "gradients"
    assert {path.name for path in folder.iterdir()} == FILES | {"parts", "settings.json"}
    numbers = json.loads((folder / "gradients.json").read_text())
    assert len(numbers["rows"]) == 2 * len(ESTIMATORS)
    assert numbers["config"]["temperatures"] == [2]
    assert numbers["config"]["reference_temperatures"] == 3
    assert numbers["training"].startswith("aisle train digits --epochs ")
    assert all(np.isfinite(r["squared_bias"]) for r in numbers["rows"])
    before = {path: path.stat().st_mtime_ns for path in (folder / "parts").iterdir()}
    code, again, progress = run(capsys, "gradients", digits, *FEW)
    assert (code, again, progress) == (0, first, "")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # Another number of repeats is another measurement.
    kept = contents(folder)
    result = run(capsys, "gradients", digits, *FEW, "--repeats", 4)
    assert_mistake(result, "is an evaluation with other repeats: choose another folder")
    assert contents(folder) == kept


def test_ctrl_c_says_how_to_resume(capsys, monkeypatch, tmp_path, untrained):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "measure", interrupted)
    code, out, err = run(capsys, "gradients", untrained, "--out", tmp_path / "out")
    assert (code, out) == (130, "")
    assert err == "paper: interrupted: the same command resumes\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--repeats", 2], "--repeats is 2: it must be at least 3"),
        (["--num-examples", 0], "--num-examples is 0: it must be at least 1"),
        (["-K", 0], "--num-samples is 0: it must be at least 1"),
        (["-L", 0], "--num-leapfrog is 0: it must be at least 1"),
        (["--temperatures", 5, 0], "--temperatures is (5, 0): it must be one or more numbers"),
        (["--seed", -1], "--seed is -1: it must be at least 0"),
        (["--repeats", "many"], "--repeats"),
    ],
)
def test_mistakes_are_reported_before_the_work(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.setattr(study, "measure", pytest.fail)
    out = tmp_path / "results"
    assert_mistake(run(capsys, "gradients", tmp_path / "run", "--out", out, *arguments), words)
    assert not out.exists()


def test_folders_that_cannot_be_used(capsys, monkeypatch, tmp_path, untrained):
    monkeypatch.setattr(study, "measure", pytest.fail)
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").touch()
    before = contents(tmp_path)
    for folder, words in (
        ("file", "choose another folder"),
        ("taken", "holds other files: choose another folder"),
    ):
        assert_mistake(run(capsys, "gradients", untrained, "--out", tmp_path / folder), words)
    assert contents(tmp_path) == before
