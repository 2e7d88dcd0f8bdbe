"""Trainings by several seeds: errors, verdicts, the page, and one in small."""

import json
import math

import numpy as np
import pytest

from aisle.runs.options import ModelOptions
from aisle.statistics import Mean
from calling import assert_mistake, run
from paper.core.effort import Effort
from paper.seeds import page, study

ASKED = study.Asked("mnist", 4.0, (0, 1, 2), ModelOptions())


def found_of(values, gap=0.0):
    return [study.Found(np.asarray(v, float), Mean(gap, 0.0, 10), 100, 60.0) for v in values]


def test_errors_are_over_examples_and_over_seeds_apart():
    # Seeds differ by 1 from one to the next, examples by 2.
    one = study.spread([np.array([s, s + 2.0, s + 4.0]) for s in (0.0, 1.0, 2.0)])
    assert one.by_seed == [2.0, 3.0, 4.0] and one.mean == 3.0
    assert one.over_seeds == pytest.approx(1 / math.sqrt(3))
    assert one.over_examples == pytest.approx(2 / math.sqrt(3))


def test_two_errors_over_three_seeds_are_those_of_students_t():
    one = study.Spread([0.9, 1.0, 1.1], 0.0, 0.1).as_one
    # The table of t with 2 degrees of freedom, 95 %, over that of the normal distribution.
    assert one.standard_error == pytest.approx(0.1 * 4.3027 / 1.96, rel=1e-4)


@pytest.mark.parametrize(
    ("better", "gap", "verdict"),
    [
        ([[1.0, 1.1], [1.1, 1.0], [1.0, 1.1]], 0.0, "holds"),
        # The gap of the one behind may hide the lead.
        ([[1.0, 1.1], [1.1, 1.0], [1.0, 1.1]], 1.2, "undecided"),
        ([[-1.0, -1.1], [-1.1, -1.0], [-1.0, -1.1]], 0.0, "does not hold"),
        # A lead of one seed is none.
        ([[3.0, 3.1], [0.1, 0.0], [-0.1, 0.0]], 0.0, "undecided"),
        ([[1.0, 1.1]], 0.0, "undecided"),
    ],
)
def test_a_claim_is_decided_by_seeds_examples_and_the_gap(better, gap, verdict):
    claim = study.Claim("this beats that", "this", "that")
    worse = [[0.0, 0.0]] * len(better)
    runs = {"this": found_of(better), "that": found_of(worse, gap)}
    assert study.judge(claim, runs).verdict == verdict


def test_each_claim_changes_one_thing():
    for claim in study.CLAIMS:
        ways = [vars(study.WAYS[name]) for name in (claim.better, claim.worse)]
        changed = {name for name in ways[0] if ways[0][name] != ways[1][name]}
        if "method" in changed and "dreg" in (ways[0]["method"], ways[1]["method"]):
            # DReG has no temperatures.
            changed -= {"num_temperatures"}
        assert len(changed) == 1


def test_all_ways_have_the_same_rate_and_the_start_its_usual_one(tmp_path):
    configs = [study._config(ASKED, way, 1, tmp_path) for way in study.WAYS.values()]
    (optimizer,) = {config.optimizer for config in configs}
    assert optimizer.learning_rate == study.RATE_WITH_CHAINS
    assert {config.model.init_from for config in configs} == {tmp_path}
    assert study._config(ASKED, study.WAYS["dreg-K1"], 1).optimizer.learning_rate is None


def test_the_page_has_claims_ways_and_both_errors():
    runs = {name: found_of([[-85.0, -86.0]] * 3) for name in study.WAYS}
    verdicts = [study.judge(claim, runs) for claim in study.CLAIMS]
    text = page._page(ASKED, Effort(), page._ways(runs), page._lines(verdicts))
    assert "# The same 4 minutes on mnist, 3 seeds" in text
    assert "| dreg-K1 | 100 | 60 | -85.50 | 0.50 | 0.00 | 0.00 +- 0.00 |" in text
    assert "| T = 11 beats T = 5 | 0.00, 0.00, 0.00 | 0.00 | 0.00 | 0.00 | undecided |" in text


def test_a_seed_that_comes_twice_is_a_mistake(capsys):
    assert_mistake(run(capsys, "seeds", "digits", "--seeds", 1, 1), "--seeds is (1, 1)", "once")


@pytest.mark.slow
def test_in_small(tmp_path, capsys):
    arguments = ("seeds", "digits", "--minutes", "1e-3", "--budget", "smoke", "--out", tmp_path)
    assert run(capsys, *arguments, "--seeds", 3)[0] == 0
    record = json.loads((tmp_path / "seeds.json").read_text())
    assert set(record["ways"]) == set(study.WAYS) and len(record["claims"]) == len(study.CLAIMS)
    assert {claim["verdict"] for claim in record["claims"]} == {"undecided"}
    # Nothing is trained or evaluated again.
    assert run(capsys, *arguments, "--seeds", 3)[0] == 0
    assert json.loads((tmp_path / "seeds.json").read_text())["ways"] == record["ways"]
    other = ("seeds", "digits", "--minutes", "2e-3", "--budget", "smoke", "--out", tmp_path)
    assert_mistake(run(capsys, *other, "--seeds", 3), "was begun with other options")
