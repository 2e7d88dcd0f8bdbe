"""`python -m paper figure1`, from the arguments to its files."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calling import assert_mistake, run
from commands import contents
from paper.figure1 import page, study
from paper.figure1.study import SamplerResult, SamplerStudy, Split


def answer(distance_of_ais):
    """Return a study of two costs that took no time."""
    draws = np.random.default_rng(0).normal(size=(10, 500, 2))
    results = [
        SamplerResult("target", 1, 1, 0, 0, 0, 0, -0.001, 0.002, 0.0, 1.0, 0.01),
        SamplerResult("proposal", 1, 1, 0, 0, 0, 0, 1.121, 0.002, 1.12, 0.05, 0.01),
        SamplerResult("is", 25, 25, 0, 0, 25, 0, 0.6, 0.003, None, 0.1, 0.01),
        SamplerResult("ais", 25, 1, 5, 5, 0, 26, distance_of_ais, 0.004, None, 0.7, 0.01),
        SamplerResult("is", 2750, 2750, 0, 0, 2750, 0, 0.3, 0.003, None, 0.2, 0.01),
        SamplerResult("ais", 2750, 50, 5, 11, 0, 2800, 0.01, 0.004, None, 0.8, 0.01),
    ]
    return SamplerStudy(0.9, results, list(draws[:6]), {(5, 5): [0.5] * 5, (5, 11): [0.4] * 11})


@pytest.fixture
def quick(monkeypatch):
    """Answer at once, and remember what was asked."""
    asked = []

    def measure(*given):
        asked.append(given)
        return answer(0.07)

    monkeypatch.setattr(study, "measure", measure)
    return asked


@pytest.mark.slow
def test_files_and_screen_say_the_same(capsys, quick, tmp_path):
    out = tmp_path / "new" / "folder"
    options = ("--seed", 3, "--draws", 12_000, "--correlation", 0.9)
    code, printed, _ = run(capsys, "figure1", "--out", out, *options)
    assert code == 0
    assert quick == [(3, 12_000, 0.9)]
    assert sorted(p.name for p in out.iterdir()) == ["figure1.json", "figure1.md", "figure1.png"]
    numbers = json.loads((out / "figure1.json").read_text())
    text_page = (out / "figure1.md").read_text()
    assert numbers["rows"] == [result._asdict() for result in answer(0.07).results]
    assert [c["closer"] for c in numbers["comparisons"]] == ["AIS", "AIS"]
    assert (numbers["seed"], numbers["num_draws"], numbers["correlation"]) == (3, 12_000, 0.9)
    assert [s["num_temperatures"] for s in numbers["step_sizes"]] == [5, 11]
    assert numbers["seconds"] >= 0
    assert numbers["packages"]["jax"]
    for text in (printed, text_page):
        assert numbers["verdict"] in text
        assert "0.0700 ± 0.0040" in text
        assert "2,800 gradients" in text
        assert "must be 1.1200, z = 0.5" in text
    assert "a correlation of 0.9;" in text_page
    assert "12,000 draws" in text_page
    for path in out.iterdir():
        assert str(path) in printed
    with Image.open(out / "figure1.png") as image:
        assert image.format == "PNG"
        assert image.width > 1000


@pytest.mark.parametrize(
    ("budget", "draws"), [("smoke", 10_000), ("cpu", 20_000), ("paper", 20_000)]
)
def test_budgets(capsys, monkeypatch, budget, draws):
    asked = []
    monkeypatch.setattr(page, "reproduce", lambda *given: asked.append(given))
    assert run(capsys, "figure1", "--budget", budget)[0] == 0
    assert asked == [(Path("runs/figure1"), draws, 0.95, 0)]


def test_a_claim_that_does_not_hold_is_reported(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(study, "measure", lambda *_: answer(0.7))
    monkeypatch.setattr(page, "save_comparison", lambda *_: None)
    code, printed, _ = run(capsys, "figure1", "--out", tmp_path)
    assert code == 0
    assert "IS, z = -20.0" in printed
    assert "the closer one is AIS at 2,750; IS at 25." in printed
    assert printed.count("as the paper says") == 0


@pytest.mark.slow
def test_from_end_to_end(capsys, monkeypatch, quick_compilation, tmp_path):
    monkeypatch.setattr(study, "SPLITS", (Split(2, 2, 2),))
    code, printed, progress = run(capsys, "figure1", "--out", tmp_path, "--draws", 10_000)
    assert code == 0
    assert "ais, cost 8" in progress
    assert "10 gradients" in printed
    assert len(json.loads((tmp_path / "figure1.json").read_text())["rows"]) == 4


def test_a_second_run_takes_the_place_of_the_first(capsys, monkeypatch, quick, tmp_path):
    monkeypatch.setattr(page, "save_comparison", lambda path, *_: path.touch())
    for seed in (1, 2):
        assert run(capsys, "figure1", "--out", tmp_path, "--seed", seed)[0] == 0
    assert len(list(tmp_path.iterdir())) == 3
    assert json.loads((tmp_path / "figure1.json").read_text())["seed"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--draws", "100"], "--draws is 100: it must be at least 10000"),
        (["--correlation", "1"], "--correlation is 1.0: it must be above 0 and below 1"),
        (["--seed", "-1"], "--seed is -1: it must be at least 0"),
        (["--draws", "many"], "--draws: invalid literal"),
        (["--plan"], "--plan"),
    ],
)
def test_mistakes_are_reported_before_the_work(capsys, quick, tmp_path, arguments, words):
    out = tmp_path / "results"
    assert_mistake(run(capsys, "figure1", "--out", out, *arguments), words)
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
        assert_mistake(run(capsys, "figure1", "--out", tmp_path / folder), words)
    assert not quick
    assert contents(tmp_path) == before
