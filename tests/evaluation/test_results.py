import csv
import dataclasses
import json

import numpy as np
import pytest

from aisle.errors import InputError
from aisle.evaluation.results import (
    Bidirectional,
    Importance,
    LogLikelihood,
    Round,
    as_json,
    save,
)
from aisle.statistics import Mean

BDMC = Bidirectional(Mean(-9.5, 0.3, 7), Mean(-9.25, 0.4, 7), Mean(0.25, 0.1, 7), 0.75)
FIRST = Round(10, Mean(-10.25, 0.5, 3), BDMC._replace(worst_gap=2.0), None, 1000, 1.5)
LAST = Round(20, Mean(-10.0, 0.25, 3), BDMC, 0.25, 2000, 2.0625)
IMPORTANCE = Importance(
    50,
    Mean(-11.0, 0.5, 3),
    Mean(-13.0, 0.75, 3),
    Mean(1.0, 0.125, 3),
    active_units=4,
    num_latents=9,
)
RESULT = LogLikelihood(
    indices=np.array([0, 30, 60]),
    # A third: no short decimal has its value.
    log_p=np.array([-9.0, -10.0 - 1 / 3, -11.0 + 1 / 3]),
    effective_sample_size=np.array([3.5, 1.5, 4.0], np.float32),
    pareto_shape=np.array([0.25, np.nan, 0.5]),
    num_nonfinite=np.array([0, 2, 5], np.int32),
    acceptance=np.array([0.5, 0.75]),
    betas=np.array([0, 0.25, 0.5, 1], np.float32),
    step_sizes=np.array([0.25, 0.5, 1.0], np.float32),
    rounds=[FIRST, LAST],
    importance=IMPORTANCE,
    is_tolerance_reached=True,
    is_complete=True,
    settings={"seed": 3, "num_chains": 4, "num_leapfrog": 2, "weights": "abc"},
)


def strictly(content):
    """Through the text of a file and back; a number that JSON does not have is refused."""
    return json.loads(json.dumps(content, allow_nan=False))


def test_numbers_are_those_of_the_last_round_and_costs_those_of_all():
    assert RESULT.estimate == LAST.estimate
    assert RESULT.bdmc == LAST.bdmc
    assert RESULT.num_temperatures == 20
    assert RESULT.decoder_gradients == 3000
    assert RESULT.seconds == 3.5625
    assert (RESULT.mean, RESULT.standard_error, RESULT.gap) == (-10.0, 0.25, BDMC.gap)


def test_a_result_prints_itself_in_one_line():
    many = dataclasses.replace(RESULT, log_p=np.zeros(1000))
    last = Round(9, Mean(-84.214, 0.2251, 1000), BDMC._replace(gap=Mean(0.031, 0.02, 7)), 0, 1, 1)
    shown = dataclasses.replace(many, rounds=[last])
    assert str(shown) == repr(shown)
    assert str(shown) == "-84.21 +- 0.23 nats, gap 0.03 +- 0.02, 1,000 examples"
    alone = last._replace(estimate=Mean(-84.2, float("nan"), 1), bdmc=None)
    alone = dataclasses.replace(RESULT, rounds=[alone], log_p=np.zeros(1))
    assert alone.gap is None
    assert str(alone) == "-84.20 nats, no certificate, 1 example"


def test_the_mean_over_a_whole_split_is_written_beside_the_estimate():
    assert as_json(RESULT)["whole_split"] is None
    whole = dataclasses.replace(RESULT, whole_split=Mean(-9.0, 0.1, 500))
    assert strictly(as_json(whole))["whole_split"]["num_examples"] == 500


def test_the_file_has_what_was_promised():
    content = strictly(as_json(RESULT))
    assert "stochastic lower bound" in content["what"]
    wanted = {"mean": -10.0, "standard_error": 0.25, "num_examples": 3}
    assert content["log_likelihood"] == wanted
    bidirectional = {
        "lower": -9.5,
        "lower_standard_error": 0.3,
        "upper": -9.25,
        "upper_standard_error": 0.4,
        "gap": 0.25,
        "gap_standard_error": 0.1,
        "gap_worst": 0.75,
        "num_examples": 7,
    }
    assert content["bdmc"] == bidirectional
    numbers = {
        "num_temperatures": 20,
        "num_chains": 4,
        "num_leapfrog": 2,
        "decoder_gradients": 3000,
        "seconds": 3.562,
        "effective_sample_size": {"mean": 3.0, "smallest": 1.5},
        # Of 4 chains: the root of (4 / ESS - 1) / 3.
        "monte_carlo_error": {
            "median": pytest.approx(np.sqrt(1 / 21)),
            "largest": pytest.approx(np.sqrt(5 / 9)),
        },
        "num_doubtful_examples": 1,
        "num_nonfinite_transitions": 7,
        "num_nonfinite_examples": 0,
        "is_complete": True,
        "is_tolerance_reached": True,
        "acceptance": [0.5, 0.75],
        "betas": [0, 0.25, 0.5, 1],
        "step_sizes": [0.25, 0.5, 1.0],
        "settings": {"seed": 3, "num_chains": 4, "num_leapfrog": 2, "weights": "abc"},
    }
    assert {name: content[name] for name in numbers} == numbers
    assert all(word in content["tuning"] for word in ("pilot", "other keys", "frozen"))
    assert content["importance"] == {
        "num_samples": 50,
        "bound": {"mean": -11.0, "standard_error": 0.5, "num_examples": 3},
        "elbo": {"mean": -13.0, "standard_error": 0.75, "num_examples": 3},
        "ais_difference": {"mean": 1.0, "standard_error": 0.125, "num_examples": 3},
        "active_units": 4,
        "num_latents": 9,
    }
    first, last = content["rounds"]
    assert (first["num_temperatures"], first["change"], first["bdmc"]["gap_worst"]) == (10, None, 2)
    assert (last["num_temperatures"], last["change"], last["estimate"]) == (20, 0.25, wanted)
    assert (last["bdmc"], last["decoder_gradients"], last["seconds"]) == (
        bidirectional,
        2000,
        2.0625,
    )
    assert "jax" in content["provenance"]["packages"]


def test_what_was_not_asked_for_is_null():
    plain = dataclasses.replace(
        RESULT, rounds=[FIRST._replace(bdmc=None)], importance=None, is_tolerance_reached=None
    )
    content = strictly(as_json(plain))
    assert content["bdmc"] is content["importance"] is content["is_tolerance_reached"] is None
    assert content["rounds"][0]["bdmc"] is None


def test_what_is_not_finite_is_counted_and_null():
    broken = dataclasses.replace(
        RESULT,
        log_p=np.array([np.nan, -np.inf, -3.0]),
        effective_sample_size=np.array([np.nan, 0, 2], np.float32),
        acceptance=np.array([np.nan, 0.5]),
        rounds=[LAST._replace(estimate=Mean(float("nan"), float("nan"), 3), bdmc=None)],
    )
    content = strictly(as_json(broken))
    assert content["num_nonfinite_examples"] == 2
    wanted = {"mean": None, "standard_error": None, "num_examples": 3}
    assert content["log_likelihood"] == content["rounds"][0]["estimate"] == wanted
    assert content["effective_sample_size"] == {"mean": None, "smallest": None}
    assert content["acceptance"] == [None, 0.5]


def test_one_chain_knows_no_doubt():
    alone = dataclasses.replace(RESULT, settings={**RESULT.settings, "num_chains": 1})
    assert np.isnan(alone.monte_carlo_error[0]) and not alone.is_doubtful.any()
    assert strictly(as_json(alone))["monte_carlo_error"]["median"] is None


def test_three_files_agree(tmp_path):
    save(RESULT, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["examples.csv", "examples.npz", "result.json"]
    assert json.loads((folder / "result.json").read_text()) == strictly(as_json(RESULT))
    with np.load(folder / "examples.npz") as file:
        columns = dict(file)
    np.testing.assert_array_equal(columns["index"], RESULT.indices)
    np.testing.assert_array_equal(columns["log_p"], RESULT.log_p)
    np.testing.assert_array_equal(columns["effective_sample_size"], RESULT.effective_sample_size)
    np.testing.assert_array_equal(columns["num_nonfinite"], RESULT.num_nonfinite)
    with (folder / "examples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = {
        "index": int,
        "log_p": float,
        "monte_carlo_error": float,
        "effective_sample_size": float,
        "pareto_shape": float,
        "is_doubtful": {"False": False, "True": True}.get,
        "num_nonfinite": int,
    }
    assert list(rows[0]) == list(kinds)
    for name, kind in kinds.items():
        np.testing.assert_array_equal([kind(row[name]) for row in rows], columns[name])
    assert columns["is_doubtful"].tolist() == [False, True, False]


def test_a_result_takes_the_place_of_an_older_one(tmp_path):
    save(RESULT, tmp_path)
    save(dataclasses.replace(RESULT, log_p=RESULT.log_p + 1), tmp_path)
    with np.load(tmp_path / "examples.npz") as file:
        np.testing.assert_array_equal(file["log_p"], RESULT.log_p + 1)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", ["examples.npz", "examples.csv", "result.json"])
def test_a_file_that_cannot_be_written(tmp_path, name):
    (tmp_path / name / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match=r"cannot write .*: make room"):
        save(RESULT, tmp_path)
    assert not list(tmp_path.glob(".*"))
    assert (tmp_path / name / "mine").is_dir()
