"""What `aisle evaluate` prints of a result."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from aisle.evaluation import Certificate
from aisle.evaluation.results import Bidirectional, Importance, LogLikelihood, Round
from aisle.runs import evaluating, folder
from aisle.runs.opening import open_run
from aisle.runs.options import EvaluateConfig, SamplerOptions
from aisle.statistics import Mean
from commands import run


def test_ctrl_c_says_how_to_resume(capsys, monkeypatch, digits):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluating, "log_likelihood", interrupted)
    code, out, err = run(capsys, "evaluate", digits)
    assert (code, out) == (130, "")
    assert err == "aisle: interrupted: the same command resumes it\n"


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
    pareto_shape=np.array([0.25, np.nan, 0.5]),
    num_nonfinite=np.array([0, 2, 5]),
    acceptance=np.array([0.5, 0.75]),
    betas=np.linspace(0, 1, 21),
    step_sizes=np.ones(20),
    rounds=ROUNDS,
    importance=Importance(50, Mean(-11, 0.5, 3), Mean(-13, 0.75, 3), Mean(1, 0.125, 3), 4, 9),
    is_tolerance_reached=False,
    is_complete=True,
    settings={"num_chains": 4, "num_leapfrog": 2},
)


@pytest.fixture
def shown(capsys, monkeypatch, digits):
    """What is printed of a result."""

    def show(result, *options, of=digits):
        def evaluate(*_, report, **__):
            for round_ in result.rounds:
                report(round_)
            return result

        monkeypatch.setattr(evaluating, "log_likelihood", evaluate)
        code, out, err = run(capsys, "evaluate", of, *options)
        assert (code, err) == (0, "")
        return out.splitlines()

    return show


def test_each_round_is_printed(shown):
    first, second, *rest = shown(FOUND)
    assert first == "T=10   log p(x) >= -10.25 +- 0.50   gap 0.500 +- 0.200   2 s"
    wanted = "T=20   log p(x) >= -10.00 +- 0.25   gap 0.250 +- 0.100   change +0.250   3 s"
    assert second == wanted
    assert "The tolerance was not reached: raise --bdmc-examples and --chains." in rest
    timed = replace(FOUND, settings={**FOUND.settings, "max_seconds": 9.0})
    assert "The tolerance was not reached: raise --max-seconds." in shown(timed)
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
        ["Monte Carlo error of an example", "0.22, at most 0.75"],
        ["doubtful examples", "1, 33%"],
        ["acceptance by temperature", "0.50 to 0.75"],
        ["non-finite transitions", "7"],
        ["decoder gradients", "3,000"],
        ["seconds", "4"],
    ]


def test_the_whole_split_has_a_line_of_its_own(shown):
    lines = shown(replace(FOUND, whole_split=Mean(-10.5, 0.125, 1797)))
    assert any("whole split" in line and "-10.50 +- 0.12 nats, 1,797 ex." in line for line in lines)
    assert not any("whole split" in line for line in shown(FOUND))


def test_a_split_that_is_annealed_whole_needs_no_short_run(monkeypatch, digits):
    calls = []

    def log_likelihood(*_, **options):
        calls.append(options)
        return replace(FOUND, indices=options["indices"])

    monkeypatch.setattr(evaluating, "log_likelihood", log_likelihood)
    config = EvaluateConfig(num_examples=500, whole_split=3)
    assert evaluating.evaluate(open_run(digits), config)[0].whole_split is None
    assert len(calls) == 1


@pytest.mark.parametrize(("is_complete", "max_seconds"), [(False, None), (True, 1e-9)])
def test_time_that_is_up_leaves_the_whole_split_out(monkeypatch, digits, is_complete, max_seconds):
    calls = []

    def log_likelihood(*_, **options):
        calls.append(options)
        return replace(FOUND, indices=options["indices"], is_complete=is_complete)

    monkeypatch.setattr(evaluating, "log_likelihood", log_likelihood)
    monkeypatch.setattr(evaluating, "save", lambda *_: None)
    sampler = SamplerOptions(max_seconds=max_seconds)
    config = EvaluateConfig(num_examples=3, whole_split=3, sampler=sampler)
    assert evaluating.evaluate(open_run(digits), config)[0].whole_split is None
    assert len(calls) == 1


def test_a_short_run_that_is_not_whole_corrects_nothing(monkeypatch, digits):
    calls = []

    def log_likelihood(*_, **options):
        calls.append(options)
        return replace(FOUND, indices=options["indices"], is_complete=len(calls) == 1)

    monkeypatch.setattr(evaluating, "log_likelihood", log_likelihood)
    monkeypatch.setattr(evaluating, "save", lambda *_: None)
    sampler = SamplerOptions(tolerance=0.5, max_seconds=1000.0, importance_samples=7, refit=9)
    config = EvaluateConfig(num_examples=3, whole_split=3, sampler=sampler)
    assert evaluating.evaluate(open_run(digits), config)[0].whole_split is None
    long, short = calls
    assert (long["certificate"], long["importance_samples"]) == (Certificate(100, 0.5, 1000.0), 7)
    # What is left of the time, and nothing that needs a certificate or costs more.
    left = short["certificate"].max_seconds
    assert short["certificate"] == Certificate(0, None, left)
    assert "importance_samples" not in short
    assert 0 < left < 1000
    assert (long["sampler"].refit, short["sampler"].refit) == (9, 0)
    assert (short["sampler"].num_chains, short["sampler"].num_temperatures) == (2, 3)


@pytest.mark.slow
def test_training_that_is_not_finished_is_reported(shown, tmp_path, digits):
    assert "not finished" not in "".join(shown(FOUND))
    shutil.copytree(digits, tmp_path / "run")
    folder.update_config(tmp_path / "run", folder.read_config(digits) | {"ends": [2, 4]})
    words = f"Training is not finished (update 3 of 4): aisle train --resume {tmp_path / 'run'}"
    assert words in "".join(shown(FOUND, of=tmp_path / "run"))


@pytest.mark.slow
def test_a_large_gap_comes_with_what_to_do(shown):
    words = "The gap is large: give --tolerance"
    [last] = FOUND.rounds[-1:]
    large = last.bdmc._replace(gap=Mean(1.5, 3.0, 10))
    found = replace(FOUND, rounds=[last._replace(bdmc=large)])
    assert words in "".join(shown(found))
    assert words not in "".join(shown(found, "--tolerance", "0.5"))
    assert words not in "".join(shown(FOUND))


@pytest.mark.slow
def test_many_doubtful_examples_come_with_what_to_do(shown):
    words = "33% of the examples are doubtful (is_doubtful in examples.csv)"
    assert words in "".join(shown(FOUND))
    sure = replace(FOUND, effective_sample_size=np.full(3, 3.9))
    assert "are doubtful" not in "".join(shown(sure))
    alone = replace(FOUND, settings={"num_chains": 1, "num_leapfrog": 2})
    assert "doubtful" not in "".join(shown(alone))


def test_a_reader_is_reported_what_is_missing(shown):
    log_p = np.array([-9.0, np.nan, -np.inf])
    alone = Round(10, Mean(float("-inf"), float("nan"), 3), None, None, 1000, 1.5)
    found = replace(
        FOUND,
        is_complete=False,
        is_tolerance_reached=None,
        log_p=log_p,
        rounds=[alone],
        importance=None,
        effective_sample_size=np.array([3.5, 4.0, 0.0]),
    )
    lines = shown(found)
    assert lines[0] == "T=10   log p(x) >= -inf +- nan   2 s"
    assert "The time was up before all examples were done; the same command resumes it." in lines
    assert "2 examples have no finite log p(x), and neither has the mean." in lines
    others = ("tolerance", "on simulated", "importance")
    assert not any(word in line for line in lines for word in others)
