"""`aisle compare`, `aisle select` and `aisle score`."""

import csv
import json

import numpy as np
import pytest

from commands import assert_mistake, call, run
from pages import config, log_p, make_run as make_folder


def test_runs_are_compared(capsys, tmp_path):
    make_folder(tmp_path / "a", evaluations=[log_p()])
    make_folder(tmp_path / "b", evaluations=[log_p(2.0, noise=0.125)])
    make_folder(tmp_path / "c")
    folders = [tmp_path / name for name in "abc"]
    code, out, _ = run(capsys, "compare", *folders, "--json", tmp_path / "found.json")
    assert code == 0
    assert "b is best, beyond gaps and chance." in out
    assert "Not evaluated on the same test examples of things: c" in out
    found = json.loads((tmp_path / "found.json").read_text())["things"]
    assert [one["name"] for one in found] == ["b", "a"]
    np.testing.assert_allclose(found[1]["behind"]["mean"], 2.0)
    assert found[1]["is_behind"] and found[1]["gap"]["mean"] == 0.125


def test_runs_without_shared_evaluations_are_not_compared(capsys, tmp_path):
    make_folder(tmp_path / "a", evaluations=[log_p()])
    make_folder(tmp_path / "b", config(digest="d2"), evaluations=[log_p()])
    code, out, _ = run(capsys, "compare", tmp_path / "a", tmp_path / "b")
    assert code == 1 and "aisle evaluate RUN" in out


def test_mistakes(capsys, tmp_path):
    assert_mistake(run(capsys, "compare", tmp_path), "1 runs are given", "at least 2")
    select = ("select", "digits", "--out", tmp_path / "out")
    assert_mistake(run(capsys, *select, "--num-latents", "2;5"), "--num-latents is '2;5'")
    assert_mistake(run(capsys, *select, "--num-latents", "2"), "at least 2")
    mixed = run(capsys, *select, "--likelihood", "poisson,gaussian")
    assert_mistake(mixed, "--likelihood is poisson,gaussian", "cannot be compared")
    assert_mistake(run(capsys, *select, "--num-latents", "²,5"), "--num-latents is '²,5'")
    alone = run(capsys, *select, "--likelihood", "auto,poisson")
    assert_mistake(alone, "--likelihood is auto,poisson", "auto stands alone")
    for option, value in (("chains", 0), ("temperatures", 1), ("bdmc", -1)):
        found = run(capsys, *select, f"--eval-{option}", value)
        assert_mistake(found, f"--eval-{option} is {value}")
    assert_mistake(run(capsys, *select, "--num-valid", "0"), "--num-valid is 0")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    path = tmp_path_factory.mktemp("values") / "values.csv"
    x = np.random.default_rng(0).normal(size=(60, 3))
    lines = [",".join("abc"), *(",".join(f"{v:.3f}" for v in row) for row in x)]
    path.write_text("\n".join(lines))
    return path


OPTIONS = (
    *("--method", "vae", "--optimizer", "adam", "--hidden", "4", "--updates", "2"),
    *("--batch-size", "17", "--num-valid", "12"),
)


@pytest.mark.slow
def test_rows_are_scored_by_themselves(capsys, tmp_path, values):
    out = tmp_path / "run"
    assert call("train", values, *OPTIONS, "--num-latents", "2", "--out", out) == 0
    text = values.read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join([text[0], text[9], text[3], ",,1.0"]))
    scores = {}
    for name, data in {"all": values, "few": tmp_path / "few.csv"}.items():
        place = tmp_path / f"{name}-scores.csv"
        code, said, _ = run(capsys, "score", out, data, "--out", place, "-C", "2", "-T", "3")
        assert code == 0 and "mean log p(x)" in said
        with place.open() as file:
            scores[name] = list(csv.DictReader(file))
    assert list(scores["few"][0]) == ["row", "log_p", "error", "effective_chains", "z0", "z1"]
    assert len(scores["all"]) == 60 and len(scores["few"]) == 3
    for column in ("log_p", "z1"):
        both = [(scores["few"][0], scores["all"][8]), (scores["few"][1], scores["all"][2])]
        for few, all_ in both:
            assert abs(float(few[column]) - float(all_[column])) < 1e-9


@pytest.mark.slow
def test_a_choice_is_made_resumed_and_tested_once(capsys, tmp_path, values):
    evaluation = ("--eval-chains", "2", "--eval-temperatures", "3", "--eval-bdmc", "4")
    command = ("select", values, *OPTIONS, *evaluation, "--out", tmp_path / "out")
    code, out, _ = run(capsys, *command, "--num-latents", "1,2")
    assert code == 0 and "12 validation examples" in out
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["chosen"] in ("auto-1", "auto-2")
    assert found["chosen"] == found["validation"][0]["name"]
    tested = [path.parts[-3] for path in (tmp_path / "out").glob("*/evaluations/test*")]
    assert tested == [found["chosen"]]
    assert (tmp_path / "out" / "select.png").stat().st_size > 5_000
    assert run(capsys, *command, "--num-latents", "1,2")[1] == out
    other = run(capsys, *command, "--num-latents", "1,2", "--seed", "1")
    assert_mistake(other, "begun with other options")
