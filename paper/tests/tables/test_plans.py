"""Plans, and the cells on record that are recognised by them."""

import dataclasses
import json
from pathlib import Path

import pytest

from paper.core import runs
from paper.tables import cells
from paper.tables.contents import TABLES, make_table
from paper.tables.plans import (
    Evaluation,
    Method,
    Networks,
    Optimizer,
    Training,
    evaluation_json,
    read_evaluation,
    read_training,
    training_json,
)

RECORD = Path(__file__).parents[3] / "results" / "tables"
PLAN = Training("digits", 3, Method("ais", 2, 3), Networks(num_latents=4), Optimizer(ema=0.9), 7)
HOW = Evaluation(20, 5, num_leapfrog=3)


def through_a_file(values):
    return json.loads(json.dumps(values))


@pytest.mark.parametrize(
    "method", [PLAN.method, Method("vae"), Method("mh-hmc", 2, schedule="ramp")]
)
def test_a_plan_survives_its_file(method):
    plan = runs.resolved(dataclasses.replace(PLAN, method=method))
    assert read_training(through_a_file(training_json(plan))) == plan
    assert read_evaluation(through_a_file(evaluation_json(HOW))) == HOW


def test_an_option_that_came_later_had_its_default():
    stored, how = training_json(PLAN), evaluation_json(HOW)
    del stored["optimizer"]["ema"], stored["observations"], stored["run"]["keep"]
    del how["sampler"]["refit"], how["whole_split"]
    usual = dataclasses.replace(PLAN.optimizer, ema=0.0)
    assert read_training(stored) == dataclasses.replace(PLAN, optimizer=usual)
    assert read_evaluation(how) == dataclasses.replace(HOW, whole_split=0)


def test_an_option_that_no_table_varies_is_left_alone():
    stored, how = training_json(PLAN), evaluation_json(HOW)
    stored["observations"]["grey"], stored["run"]["tensorboard"] = True, True
    how["split"] = "test"
    assert read_training(stored) == PLAN
    assert read_evaluation(how) == HOW


@pytest.mark.parametrize("name", ["ais", "mh-hmc"])
def test_what_the_chains_of_a_method_use_is_compared(name):
    def resolved(**changes):
        return runs.resolved(dataclasses.replace(PLAN, method=Method(name, 2, 3, **changes)))

    assert resolved(kernel="paper") != resolved()
    assert resolved(num_leapfrog=3) != resolved()
    assert resolved(num_leapfrog=2) == resolved()
    # The chains of MH-HMC are at the posterior from the first move on.
    assert (resolved(schedule="linear") != resolved()) == (name == "ais")


def test_methods_without_chains_have_none_of_their_options():
    plans = [dataclasses.replace(PLAN, method=Method("dreg", 2, T)) for T in (3, 4)]
    assert runs.resolved(plans[0]) == runs.resolved(plans[1])
    assert runs.resolved(plans[0]).method == Method("dreg", 2)


def all_cells():
    found = [cell for name in TABLES for cell in make_table(name, "cpu", 0).cells]
    return {cell.name: cell for cell in found}


@pytest.mark.parametrize("file", sorted((RECORD / "cells").glob("*")), ids=lambda file: file.name)
def test_every_cell_on_record_is_recognised(file):
    cell = all_cells()[file.stem]
    if file.suffix == ".json":
        found = cells.finished(cell, RECORD)
        assert found.result.cell == cell.name
        assert len(found.log_p) == cell.evaluation.num_examples
        assert found.log_p.mean() == pytest.approx(found.result.log_likelihood.mean, abs=1.5)
    else:
        assert cells.has_weights(cell, RECORD)


def test_there_are_cells_on_record():
    """As many as the tables were made of; each of them is tested above."""
    files = list((RECORD / "cells").iterdir())
    assert len([file for file in files if file.suffix == ".json"]) == 30
    assert len([file for file in files if file.suffix == ".safetensors"]) == 12
