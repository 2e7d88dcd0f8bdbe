"""`aisle evaluate`, from the arguments to the files of a result, and killed on the way."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from aisle.runs import evaluating
from commands import PROGRAM, assert_mistake, call, contents, run

NUM_CHAINS, NUM_EXAMPLES, NUM_TILES = 8, 64, 8
SETTINGS = (
    *("-C", NUM_CHAINS, "-T", "4", "-L", "2", "--num-examples", NUM_EXAMPLES),
    *("--bdmc-examples", "0", "--seed", "3"),
)
# So many chains that a tile is one example of each of eight devices.
IN_TILES = (*SETTINGS, "-C", 1024)
FILES = {"result.json", "examples.npz", "examples.csv"}


@pytest.fixture(scope="module")
def evaluated(digits):
    """The folder of an evaluation that nothing happened to, in its usual place."""
    json_file = digits.with_suffix(".json")
    assert call("evaluate", digits, *SETTINGS, "--json", json_file) == 0
    [folder] = (digits / "evaluations").iterdir()
    return folder


def read_result(folder):
    """The content of the result file, without what may differ from one process to another."""
    content = json.loads((folder / "result.json").read_text())
    for place in (content, *content["rounds"]):
        assert place.pop("seconds") > 0
    del content["provenance"]
    return content


def read_examples(folder):
    with np.load(folder / "examples.npz") as file:
        return dict(file)


def assert_same_result(folder, reference):
    assert read_result(folder) == read_result(reference)
    found, wanted = read_examples(folder), read_examples(reference)
    assert found.keys() == wanted.keys()
    assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)
    assert (folder / "examples.csv").read_bytes() == (reference / "examples.csv").read_bytes()


def test_the_json_file_has_what_scripts_rely_on(digits, evaluated):
    content = json.loads(digits.with_suffix(".json").read_text())
    assert content["log_likelihood"].keys() == {"mean", "standard_error", "num_examples"}
    assert content["log_likelihood"]["num_examples"] == NUM_EXAMPLES
    assert -40 < content["log_likelihood"]["mean"] < -20
    assert 0 < content["log_likelihood"]["standard_error"] < 2
    assert content["bdmc"] is None
    assert (content["num_temperatures"], content["num_chains"]) == (4, NUM_CHAINS)
    # A pilot of 20 rounds of 64 chains; then chains without a move at beta = 1.
    chains = NUM_CHAINS * NUM_EXAMPLES
    assert content["decoder_gradients"] == 20 * 64 * (1 + 4 * 2) + chains * (1 + 3 * 2)
    assert content["seconds"] > 0
    assert "stochastic lower bound" in content["what"]
    assert "pilot" in content["tuning"]
    assert len(content["acceptance"]) == 3
    # The same as in the folder.
    assert content == json.loads((evaluated / "result.json").read_text())


def test_examples_have_their_numbers(evaluated):
    columns = read_examples(evaluated)
    np.testing.assert_array_equal(columns["index"], np.arange(NUM_EXAMPLES) * 297 // NUM_EXAMPLES)
    mean = read_result(evaluated)["log_likelihood"]["mean"]
    assert columns["log_p"].mean() == pytest.approx(mean)
    assert np.all((columns["effective_sample_size"] > 1) & (columns["num_nonfinite"] == 0))
    with (evaluated / "examples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["log_p"]) for row in rows] == columns["log_p"].tolist()


def test_the_same_command_shows_a_finished_result_again(capsys, digits, evaluated):
    before = contents(evaluated)
    times = {path: path.stat().st_mtime_ns for path in evaluated.glob("T*/**/*.npz")}
    code, out, err = run(capsys, "evaluate", digits, *SETTINGS)
    assert (code, err) == (0, "")
    assert contents(evaluated) == before
    assert list((digits / "evaluations").iterdir()) == [evaluated]
    assert {path: path.stat().st_mtime_ns for path in times} == times
    mean = read_result(evaluated)["log_likelihood"]["mean"]
    first = out.splitlines()[0]
    assert re.fullmatch(rf"T=4   log p\(x\) >= {mean:.2f} \+- \d\.\d\d   change \S+   \d+ s", first)
    assert f"{digits}, test examples" in out.replace("\n", "")
    assert all(str(evaluated / name) in out for name in FILES)


@pytest.mark.slow
def test_an_evaluation_that_is_killed_goes_on_with_the_same_command(
    capsys, tmp_path, compiled_once, digits
):
    folder = tmp_path / "result"
    arguments = ["evaluate", digits, *IN_TILES, "--out", folder]
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    with subprocess.Popen(command, env=compiled_once, stderr=subprocess.PIPE, text=True) as process:
        limit = time.monotonic() + 180
        while not list(folder.glob("T*/forward/*.npz")) and process.poll() is None:
            assert time.monotonic() < limit, "no tile in three minutes"
            time.sleep(0.005)
        process.kill()
        err = process.stderr.read()
    assert process.returncode == -signal.SIGKILL, err
    assert "Traceback" not in err
    assert not FILES & {path.name for path in folder.iterdir()}
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("T*/**/*.npz")}
    num_tiles = len(list(folder.glob("T*/forward/*.npz")))
    assert 1 <= num_tiles < NUM_TILES
    code, _, err = run(capsys, *arguments)
    assert code == 0
    # It did not begin again.
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [line.split("  ")[0] for line in err.splitlines()] == ["T=4, log p(x)"]
    assert call("evaluate", digits, *IN_TILES, "--out", tmp_path / "whole") == 0
    assert_same_result(folder, tmp_path / "whole")


@pytest.mark.slow
def test_so_does_one_as_users_start_it(tmp_path):
    """With all optimisations of the compiler, a device for each core, and killed twice."""

    def begin(*arguments):
        return subprocess.Popen([sys.executable, "-m", "aisle", *map(str, arguments)])

    def start(out):
        return begin("evaluate", tmp_path / "run", *IN_TILES, "--out", out)

    small = ("--num-latents", "2", "--num-hidden", "8", "--epochs", "1")
    with begin("train", "digits", "--method", "vae", *small, "--out", tmp_path / "run") as process:
        assert process.wait() == 0
    with start(tmp_path / "whole") as process:
        assert process.wait() == 0
    for number in (1, 3):
        with start(tmp_path / "killed") as process:
            while len(list(tmp_path.glob("killed/T*/forward/*.npz"))) < number:
                assert process.poll() is None
                time.sleep(0.005)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    with start(tmp_path / "killed") as process:
        assert process.wait() == 0
    assert_same_result(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
def test_the_whole_split_is_estimated_by_a_short_run_on_all_of_it(
    capsys, tmp_path, monkeypatch, digits, evaluated
):
    # The long run is there already.
    shutil.copytree(evaluated, tmp_path / "found")
    # And so are its programs.
    monkeypatch.setattr(evaluating, "_SHORT_CHAINS", NUM_CHAINS)
    options = [*SETTINGS, "--out", tmp_path / "found", "--whole-split", 4]
    code, out, err = run(capsys, "evaluate", digits, *options)
    assert code == 0
    assert re.findall(r"\d+/\d+$", err, re.MULTILINE)[-1] == "297/297"
    assert f"{NUM_EXAMPLES}/{NUM_EXAMPLES}" not in err
    long_run = read_examples(tmp_path / "found")
    short_run = read_examples(tmp_path / "found" / "whole-split-T4")
    np.testing.assert_array_equal(short_run["index"], np.arange(297))
    assert len(long_run["index"]) == NUM_EXAMPLES
    differences = long_run["log_p"] - short_run["log_p"][long_run["index"]]
    found = read_result(tmp_path / "found")["whole_split"]
    assert found["mean"] == pytest.approx(short_run["log_p"].mean() + differences.mean())
    assert found["num_examples"] == 297
    assert "297 ex." in out
    about = read_result(tmp_path / "found" / "whole-split-T4")["settings"]
    assert (about["num_chains"], about["num_temperatures"]) == (NUM_CHAINS, 4)
    assert about["bdmc_examples"] == 0


def test_the_file_says_what_was_evaluated(evaluated):
    about = read_result(evaluated)["settings"]["about"]
    assert about.pop("sampler")["num_chains"] == NUM_CHAINS
    assert about == {
        "update": 3,
        "split": "test",
        "num_examples": NUM_EXAMPLES,
        "whole_split": 0,
        "start": "encoder",
        "data": None,
        "data_dir": None,
    }


@pytest.mark.slow
def test_a_tolerance_is_planned_for_and_reached(capsys, tmp_path, digits):
    options = ("-C", "8", "-T", "3", "-L", "1", "--num-examples", "24", "--bdmc-examples", "16")
    options += ("--tolerance", "0.5", "--importance-samples", "6", "--out", tmp_path / "result")
    code, out, _ = run(capsys, "evaluate", digits, *options)
    assert code == 0
    content = json.loads((tmp_path / "result" / "result.json").read_text())
    bdmc, plan = content["bdmc"], content["plan"]
    assert bdmc["upper"] - bdmc["lower"] == pytest.approx(bdmc["gap"], abs=1e-6)
    assert bdmc["num_examples"] == plan["num_simulated"] >= 16
    assert content["importance"]["num_samples"] == 6
    assert content["is_tolerance_reached"]
    rounds = content["rounds"]
    assert rounds[-1]["num_temperatures"] == plan["num_temperatures"]
    assert rounds[-1]["bdmc"]["gap"] < 0.5 and abs(rounds[-1]["change"]) < 0.5
    first, second = out.splitlines()[:2]
    assert first.startswith("planned: T=") and second.startswith("T=")


@pytest.mark.slow
def test_the_start_and_the_schedule_do_not_matter(capsys, tmp_path, digits):
    """But to what so many temperatures leave to chance."""
    few = ("-C", "16", "-T", "40", "-L", "2", "--num-examples", "32", "--bdmc-examples", "0")
    log_p = []
    for options in ([], ["--start", "prior"], ["--schedule", "linear", "--seed", "1"]):
        out = tmp_path / str(len(log_p))
        assert run(capsys, "evaluate", digits, *few, *options, "--out", out)[0] == 0
        log_p.append(read_examples(out)["log_p"])
    for other in log_p[1:]:
        difference = other - log_p[0]
        assert 0 < np.abs(difference).max() < 1
        assert abs(difference.mean()) < 0.1


def test_another_evaluation_is_not_overwritten(capsys, digits, evaluated):
    before = contents(evaluated)
    result = run(capsys, "evaluate", digits, *SETTINGS, "--seed", 4, "--out", evaluated)
    assert_mistake(result, f"{evaluated} is an evaluation with other seed: choose another folder")
    assert contents(evaluated) == before
