"""`aisle evaluate`, from the arguments to the files of a result, and killed on the way."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.data import load
from aisle.evaluation.results import Bidirectional, Importance, LogLikelihood, Round
from aisle.experiments import evaluating, training
from aisle.experiments.options import EvaluateConfig, SamplerOptions
from aisle.learning.observations import observe_all
from aisle.statistics import Mean
from commands import assert_mistake, call, contents, run

NUM_CHAINS, NUM_EXAMPLES, NUM_TILES = 1024, 64, 8
# So many chains that a tile is one example of each of eight devices.
SETTINGS = (
    *("-C", NUM_CHAINS, "-T", "4", "-L", "2", "--num-examples", NUM_EXAMPLES),
    *("--bdmc-examples", "0", "--seed", "3"),
)
FILES = {"result.json", "examples.npz", "examples.csv"}
PROGRAM = "from aisle.cli import main; main()"


@pytest.fixture(scope="module")
def evaluated(digits, tmp_path_factory):
    """The folder of an evaluation that nothing happened to."""
    folder = tmp_path_factory.mktemp("evaluated") / "result"
    json_file = folder.with_suffix(".json")
    assert call("evaluate", digits, *SETTINGS, "--out", folder, "--json", json_file) == 0
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


def test_the_json_file_has_what_scripts_rely_on(evaluated):
    content = json.loads(evaluated.with_suffix(".json").read_text())
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


def test_examples_have_their_figures(evaluated):
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
    times = {path: path.stat().st_mtime_ns for path in evaluated.glob("round0/**/*.npz")}
    code, out, err = run(capsys, "evaluate", digits, *SETTINGS, "--out", evaluated)
    assert (code, err) == (0, "")
    assert contents(evaluated) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times
    mean = read_result(evaluated)["log_likelihood"]["mean"]
    first = out.splitlines()[0]
    assert re.fullmatch(rf"T=4   log p\(x\) >= {mean:.2f} \+- \d\.\d\d   \d+ s", first)
    assert f"{digits}, test examples" in out.replace("\n", "")
    assert all(str(evaluated / name) in out for name in FILES)


def observations(split, number, *, of):
    indices = np.arange(number) * len(split) // of
    return observe_all(jnp.asarray(split.take(indices)), jnp.asarray(indices), "static"), indices


def test_an_evaluation_that_is_killed_goes_on_with_the_same_command(
    capsys, tmp_path, compiled_once, digits, evaluated
):
    folder = tmp_path / "result"
    arguments = ["evaluate", digits, *SETTINGS, "--out", folder]
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    with subprocess.Popen(command, env=compiled_once, stderr=subprocess.PIPE, text=True) as process:
        limit = time.monotonic() + 180
        while not list(folder.glob("round0/forward/*.npz")) and process.poll() is None:
            assert time.monotonic() < limit, "no tile in three minutes"
            time.sleep(0.005)
        process.kill()
        err = process.stderr.read()
    assert process.returncode == -signal.SIGKILL, err
    assert "Traceback" not in err
    assert not FILES & {path.name for path in folder.iterdir()}
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("round0/**/*.npz")}
    num_tiles = len(list(folder.glob("round0/forward/*.npz")))
    assert 1 <= num_tiles < NUM_TILES
    code, _, err = run(capsys, *arguments)
    assert code == 0
    # It did not begin again.
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [line.split("  ")[0] for line in err.splitlines()] == ["T=4, log p(x)"]
    assert_same_result(folder, evaluated)


@pytest.mark.slow
def test_so_does_one_as_users_start_it(tmp_path):
    """With all optimisations of the compiler, a device for each core, and killed twice."""

    def begin(*arguments):
        return subprocess.Popen([sys.executable, "-m", "aisle", *map(str, arguments)])

    def start(out):
        return begin("evaluate", tmp_path / "run", *SETTINGS, "--out", out)

    small = ("--num-latents", "2", "--num-hidden", "8", "--epochs", "1")
    with begin("train", "digits", "--method", "vae", *small, "--out", tmp_path / "run") as process:
        assert process.wait() == 0
    with start(tmp_path / "whole") as process:
        assert process.wait() == 0
    for number in (1, 3):
        with start(tmp_path / "killed") as process:
            while len(list(tmp_path.glob("killed/round0/forward/*.npz"))) < number:
                assert process.poll() is None
                time.sleep(0.005)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    with start(tmp_path / "killed") as process:
        assert process.wait() == 0
    assert_same_result(tmp_path / "killed", tmp_path / "whole")


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch, digits):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluating, "log_likelihood", interrupted)
    code, out, err = run(capsys, "evaluate", digits)
    assert (code, out) == (130, "")
    assert err == "aisle: interrupted: the same command goes on where it was\n"


# A result as if computed, in two rounds of which the second did not do.
BDMC = Bidirectional(Mean(-9.5, 0.3, 7), Mean(-9.25, 0.4, 7), Mean(0.25, 0.1, 7), 0.75)
ROUNDS = [
    Round(10, Mean(-10.25, 0.5, 3), BDMC._replace(gap=Mean(0.5, 0.2, 7)), None, 1000, 1.5),
    Round(20, Mean(-10.0, 0.25, 3), BDMC, 0.25, 2000, 3.0),
]
FOUND = LogLikelihood(
    indices=np.arange(3),
    log_p=np.array([-9.0, -10.0, -11.0]),
    effective_sample_size=np.array([3.5, 1.5, 4.0]),
    num_nonfinite=np.array([0, 2, 5]),
    acceptance=np.array([0.5, 0.75]),
    betas=np.linspace(0, 1, 21),
    step_sizes=np.ones(20),
    num_chains=4,
    num_leapfrog=2,
    rounds=ROUNDS,
    importance=Importance(50, Mean(-11, 0.5, 3), Mean(-13, 0.75, 3), Mean(1, 0.125, 3), 4, 9),
    is_tolerance_reached=False,
    is_complete=True,
    settings={},
)


@pytest.fixture
def shown(capsys, monkeypatch, digits):
    """What is printed of a result."""

    def show(result):
        def evaluate(*_, report, **__):
            for round_ in result.rounds:
                report(round_)
            return result

        monkeypatch.setattr(evaluating, "log_likelihood", evaluate)
        code, out, err = run(capsys, "evaluate", digits)
        assert (code, err) == (0, "")
        return out.splitlines()

    return show


def test_each_round_is_printed(shown):
    first, second, *rest = shown(FOUND)
    assert first == "T=10   log p(x) >= -10.25 +- 0.50   gap 0.500 +- 0.200   2 s"
    wanted = "T=20   log p(x) >= -10.00 +- 0.25   gap 0.250 +- 0.100   change +0.250   3 s"
    assert second == wanted
    assert "The tolerance was not reached: see the gap above." in rest
    assert not any("time was up" in line for line in rest)


def test_the_table(shown):
    lines = shown(FOUND)
    # Nothing but its frame needs more than ASCII, and rich knows how to do without.
    plain = [re.sub("[\u2500-\u257f]+", "|", line) for line in lines]
    assert all(line.isascii() for line in plain)
    rows = [[cell.rstrip() for cell in a.split("|")[1:-1]] for a in plain if a.startswith("| ")]
    assert [[cell.removeprefix(" ") for cell in row] for row in rows] == [
        ["log p(x), stochastic lower bound", "-10.00 +- 0.25 nats, 3 ex."],
        ["on simulated examples: lower bound", "-9.50 +- 0.30"],
        ["                       upper bound", "-9.25 +- 0.40"],
        ["                       gap", "0.250 +- 0.100, worst 0.750"],
        ["importance-weighted bound, K=50", "-11.00 +- 0.50"],
        ["annealing above it by", "1.000 +- 0.125"],
        ["evidence lower bound", "-13.00 +- 0.75"],
        ["active units", "4 of 9"],
        ["chains, temperatures, leapfrog steps", "4, 20, 2"],
        ["effective chains", "3.0, at least 1.5"],
        ["acceptance by temperature", "0.50 to 0.75"],
        ["non-finite transitions", "7"],
        ["decoder gradients", "3,000"],
        ["seconds", "4"],
    ]


def test_the_whole_split_has_a_line_of_its_own(shown):
    lines = shown(FOUND._replace(whole_split=Mean(-10.5, 0.125, 1797)))
    assert any("whole split" in line and "-10.50 +- 0.12 nats, 1,797 ex." in line for line in lines)
    assert not any("whole split" in line for line in shown(FOUND))


def test_the_whole_split_is_estimated_by_a_short_run_on_all_of_it(capsys, tmp_path, digits):
    options = [*SETTINGS, "--out", tmp_path / "found", "--whole-split", 3]
    code, out, _ = run(capsys, "evaluate", digits, *options)
    assert code == 0
    long_run = read_examples(tmp_path / "found")
    short_run = read_examples(tmp_path / "found" / "whole-split-T3")
    np.testing.assert_array_equal(short_run["index"], np.arange(297))
    assert len(long_run["index"]) == NUM_EXAMPLES
    differences = long_run["log_p"] - short_run["log_p"][long_run["index"]]
    found = read_result(tmp_path / "found")["whole_split"]
    assert found["mean"] == pytest.approx(short_run["log_p"].mean() + differences.mean())
    assert found["num_examples"] == 297
    assert "297 ex." in out
    about = read_result(tmp_path / "found" / "whole-split-T3")["settings"]
    assert (about["num_chains"], about["num_temperatures"], about["bdmc_examples"]) == (2, 3, 0)


def test_a_split_that_is_annealed_whole_needs_no_short_run(monkeypatch, digits):
    calls = []

    def log_likelihood(*_, **options):
        calls.append(options)
        return FOUND._replace(indices=options["indices"])

    monkeypatch.setattr(evaluating, "log_likelihood", log_likelihood)
    config = EvaluateConfig(num_examples=500, whole_split=3)
    assert evaluating.evaluate(digits, config)[0].whole_split is None
    assert len(calls) == 1


def test_the_file_says_what_was_evaluated(evaluated):
    about = read_result(evaluated)["settings"]["about"]
    assert about == {
        "update": 3,
        "split": "test",
        "num_examples": NUM_EXAMPLES,
        "whole_split": 0,
        "start": "encoder",
        "data": None,
        "data_dir": None,
    }


def test_a_reader_is_told_what_is_missing(shown):
    log_p = np.array([-9.0, np.nan, -np.inf])
    alone = Round(10, Mean(float("-inf"), float("nan"), 3), None, None, 1000, 1.5)
    found = FOUND._replace(
        is_complete=False, is_tolerance_reached=None, log_p=log_p, rounds=[alone], importance=None
    )
    lines = shown(found)
    assert lines[0] == "T=10   log p(x) >= -inf +- nan   2 s"
    assert "The time was up before all examples were done; the same command goes on." in lines
    assert "2 examples have no finite log p(x), and so has the mean." in lines
    others = ("tolerance", "simulated", "importance")
    assert not any(word in line for line in lines for word in others)


@pytest.mark.slow
def test_temperatures_double_until_the_tolerance_is_reached(capsys, tmp_path, digits):
    options = ("-C", "8", "-T", "3", "-L", "1", "--num-examples", "24", "--bdmc-examples", "16")
    options += ("--tolerance", "0.5", "--importance-samples", "6", "--out", tmp_path / "result")
    code, out, _ = run(capsys, "evaluate", digits, *options)
    assert code == 0
    content = json.loads((tmp_path / "result" / "result.json").read_text())
    bdmc = content["bdmc"]
    assert bdmc["upper"] - bdmc["lower"] == pytest.approx(bdmc["gap"], abs=1e-6)
    assert bdmc["num_examples"] == 16
    assert content["importance"]["num_samples"] == 6
    assert content["is_tolerance_reached"]
    rounds = content["rounds"]
    assert [r["num_temperatures"] for r in rounds] == [3 * 2**i for i in range(len(rounds))]
    assert len(rounds) > 1
    assert rounds[-1]["bdmc"]["gap"] < 0.5 and abs(rounds[-1]["change"]) < 0.5
    for round_ in rounds[1:-1]:
        assert round_["bdmc"]["gap"] >= 0.5 or abs(round_["change"]) >= 0.5
    assert [line.split()[0] for line in out.splitlines()[: len(rounds)]] == [
        f"T={r['num_temperatures']}" for r in rounds
    ]


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


class StopError(Exception):
    pass


@pytest.fixture
def asked(monkeypatch):
    """Run a command up to the evaluation, and return what it asks the library for."""

    def ask(*arguments):
        found = {}

        def log_likelihood(model, proposal, x, **options):
            found.update(options, model=model, proposal=proposal, x=x)
            raise StopError

        monkeypatch.setattr(evaluating, "log_likelihood", log_likelihood)
        with pytest.raises(StopError):
            evaluate_command(*arguments)
        return found

    return ask


def evaluate_command(*arguments):
    from aisle.cli import main

    main(list(map(str, ("evaluate", *arguments))))


def test_the_defaults(asked, digits):
    found = asked(digits)
    data = load("digits")
    xs, indices = observations(data.test, 297, of=297)
    np.testing.assert_array_equal(found["x"], xs)
    np.testing.assert_array_equal(found["indices"], indices)
    np.testing.assert_array_equal(found["pilot_x"], observations(data.train, 64, of=64)[0])
    opened = training.open_run(digits)
    assert eqx.tree_equal((found["model"], found["proposal"]), (opened.model, opened.proposal))
    defaults = {
        "num_chains": 16,
        "num_temperatures": 500,
        "num_leapfrog": 4,
        "schedule": "sigmoid",
        "precondition": 0.75,
        "momentum_refresh": 0.6,
        "target_accept": 0.8,
        "bdmc_examples": 100,
        "tolerance": None,
        "max_seconds": None,
        "importance_samples": 0,
        "seed": 0,
    }
    assert {name: found[name] for name in defaults} == defaults
    assert found["out"].parent == digits / "evaluations"
    assert not found["out"].exists()


def test_the_other_split_and_start(asked, digits):
    found = asked(digits, "--split", "train", "--start", "prior", "--num-examples", 5, "-C", 3)
    data = load("digits")
    np.testing.assert_array_equal(found["x"], observations(data.train, 5, of=5)[0])
    np.testing.assert_array_equal(found["indices"], [0, 300, 600, 900, 1200])
    np.testing.assert_array_equal(found["pilot_x"], observations(data.test, 64, of=64)[0])
    assert found["proposal"] is None
    assert found["num_chains"] == 3
    assert found["precondition"] == 0


def test_the_kernel_of_the_paper(asked, digits):
    found = asked(digits, "--kernel", "paper", "--target-accept", "0.7")
    names = ("num_leapfrog", "schedule", "precondition", "momentum_refresh", "target_accept")
    assert [found[name] for name in names] == [10, "sigmoid", 0, 1, 0.7]


def test_other_data_of_the_same_shape(asked, tmp_path, digits):
    values = np.random.default_rng(0).random((30, 64)).astype(np.float32)
    np.savez(tmp_path / "other.npz", train=values[:20], test=np.round(values[20:]))
    found = asked(digits, "--data", tmp_path / "other.npz")
    np.testing.assert_array_equal(found["x"], np.round(values[20:]))
    assert found["pilot_x"].shape == (20, 64)


def test_the_folder_is_named_by_what_the_figures_depend_on():
    def name(update=3, **changes):
        sampler = {k: changes.pop(k) for k in list(changes) if k in SamplerOptions.__annotations__}
        return evaluating.folder_name(
            EvaluateConfig(**changes, sampler=SamplerOptions(**sampler)), update
        )

    assert name().startswith("test1000-C16-T500-L4-")
    free = {
        "bdmc_examples": 5,
        "tolerance": 0.1,
        "max_seconds": 3.0,
        "importance_samples": 7,
        "memory_mb": 9,
        "whole_split": 5,
    }
    assert name(**free) == name()
    assert name(num_leapfrog=4, momentum_refresh=0.6) == name()
    others = [
        {"update": 4},
        {"split": "train"},
        {"num_examples": 10},
        {"start": "prior"},
        {"data": "mnist"},
        {"num_chains": 4},
        {"num_temperatures": 50},
        {"num_leapfrog": 2},
        {"kernel": "paper"},
        {"schedule": "linear"},
        {"precondition": 0.5},
        {"momentum_refresh": 0.5},
        {"target_accept": 0.5},
        {"seed": 1},
    ]
    assert len({name(), *(name(**changes) for changes in others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("available", "wanted", "indices"),
    [(10, 3, [0, 3, 6]), (10, 10, range(10)), (10, 99, range(10)), (7, 1, [0]), (3, 2, [0, 1])],
)
def test_examples_are_spread_over_the_split(available, wanted, indices):
    assert evaluating.spread(available, wanted).tolist() == list(indices)


BAD_OPTIONS = [
    (["-C", "0"], "--num-chains is 0"),
    (["-C", "few"], "few"),
    (["-T", "1"], "--num-temperatures is 1: it must be at least 2"),
    (["-T", "0"], "--num-temperatures is 0"),
    (["-L", "0"], "--num-leapfrog is 0"),
    (["--num-examples", "0"], "--num-examples is 0"),
    (["--num-examples", "-5"], "--num-examples is -5"),
    (["--whole-split", "-2"], "--whole-split is -2"),
    (["--whole-split", "1"], "--whole-split is 1"),
    (["--schedule", "immediate"], "immediate"),
    (["--split", "validation"], "validation"),
    (["--start", "posterior"], "posterior"),
    (["--precondition", "nan"], "--precondition is nan"),
    (["--start", "prior", "--precondition", "1"], "--precondition is 1"),
    (["--momentum-refresh", "0"], "--momentum-refresh is 0"),
    (["--target-accept", "1.5"], "--target-accept is 1.5"),
    (["--bdmc-examples", "-1"], "--bdmc-examples is -1"),
    (["--tolerance", "0"], "--tolerance is 0"),
    (["--tolerance", "nan"], "--tolerance is nan"),
    (["--tolerance", "0.1", "--bdmc-examples", "0"], "--bdmc-examples is 0"),
    (["--max-seconds", "-1"], "--max-seconds is -1"),
    (["--importance-samples", "-1"], "--importance-samples is -1"),
    (["--seed", "-1"], "--seed is -1"),
    (["--memory-mb", "0"], "--memory-mb is 0"),
    (["--json", "missing/a.json"], "missing/a.json is in a folder that does not exist"),
    (["--json", "."], ". does not end in .json"),
    (["--data", "nowhere.npy"], "nowhere.npy"),
    (["--data", "nonsense"], "nonsense"),
    (["--no-such-option"], "--no-such-option"),
]


@pytest.fixture
def no_evaluation(monkeypatch):
    """Fail instead of computing where a mistake is not noticed."""

    def tiles(*_):
        raise AssertionError("the evaluation began")

    monkeypatch.setattr("aisle.evaluation.work._tiles", tiles)
    monkeypatch.setattr("aisle.evaluation.pilot.tune", tiles)


@pytest.mark.parametrize(
    ("options", "words"), BAD_OPTIONS, ids=lambda a: a[0] if isinstance(a, list) else a
)
def test_a_bad_option_costs_one_line_and_leaves_nothing(
    capsys, tmp_path, monkeypatch, no_evaluation, digits, options, words
):
    monkeypatch.chdir(tmp_path)
    before = contents(digits)
    assert_mistake(run(capsys, "evaluate", digits, *options), words)
    assert list(tmp_path.iterdir()) == []
    assert contents(digits) == before
    assert not (digits / "evaluations").exists()


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((30, 4), np.float32), "trained on (8, 8): give data of that shape"),
        (np.zeros((30, 8, 9), np.float32), "shape (8, 9)"),
        (np.full((30, 64), np.nan, np.float32), "nan in row"),
        (np.full((30, 8, 8), 1.5, np.float32), "needs values in [0, 1]"),
    ],
    ids=["narrow", "wide", "nan", "above"],
)
def test_bad_data_cost_one_line_and_leave_nothing(
    capsys, tmp_path, no_evaluation, digits, array, words
):
    np.save(tmp_path / "data.npy", array)
    result = run(capsys, "evaluate", digits, "--data", tmp_path / "data.npy")
    assert_mistake(result, words)
    assert [path.name for path in tmp_path.iterdir()] == ["data.npy"]
    assert not (digits / "evaluations").exists()


def test_data_that_are_bad_only_where_the_pilot_looks(capsys, tmp_path, no_evaluation, digits):
    good, bad = np.zeros((5, 64), np.float32), np.full((5, 64), np.inf, np.float32)
    np.savez(tmp_path / "data.npz", train=bad, test=good)
    result = run(capsys, "evaluate", digits, "--data", tmp_path / "data.npz")
    assert_mistake(result, "finite")
    assert not (digits / "evaluations").exists()


def test_weights_that_are_not_finite(capsys, monkeypatch, no_evaluation, digits):
    opened = training.open_run(digits)
    bias = opened.model.decoder.layers[0].bias.at[1].set(jnp.nan)
    model = eqx.tree_at(lambda m: m.decoder.layers[0].bias, opened.model, bias)
    monkeypatch.setattr(evaluating, "open_run", lambda path: opened._replace(model=model))
    result = run(capsys, "evaluate", digits)
    assert_mistake(result, f"the weights of {digits} at update 3 are not all finite")
    assert not (digits / "evaluations").exists()


def test_another_evaluation_is_not_overwritten(capsys, no_evaluation, digits, evaluated):
    before = contents(evaluated)
    result = run(capsys, "evaluate", digits, *SETTINGS, "--seed", 4, "--out", evaluated)
    assert_mistake(result, f"{evaluated} is an evaluation with other seed: choose another --out")
    assert contents(evaluated) == before


def test_other_files_are_left_alone(capsys, tmp_path, no_evaluation, digits):
    (tmp_path / "notes.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "notes.txt"):
        assert_mistake(run(capsys, "evaluate", digits, "--out", out), str(out), "--out")
    assert contents(tmp_path) == {tmp_path / "notes.txt": b"mine"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder(capsys, tmp_path, no_evaluation, digits):
    (tmp_path / "locked").mkdir(mode=0o500)
    result = run(capsys, "evaluate", digits, "--out", tmp_path / "locked" / "a")
    assert_mistake(result, "cannot write")
