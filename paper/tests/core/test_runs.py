"""Training and evaluating a plan: the run is real, and as small as it can be."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import numpy as np
import pytest

from aisle.cli.main import parse
from aisle.errors import InputError
from aisle.runs import evaluating, folder, training
from aisle.runs.config import absolute, to_json
from aisle.runs.opening import load, open_run
from aisle.statistics import Mean
from commands import contents
from paper.core import runs
from paper.tables.contents import make_table
from paper.tables.plans import Evaluation, Method, Networks, Optimizer, Training

# A batch that one device takes, and the programs of the fixture `digits`: compiling takes longest.
NETWORKS = Networks(num_latents=2, num_hidden=8)
PLAN = Training("digits", 1, Method("vae"), NETWORKS, Optimizer(batch_size=499))
OTHER = dataclasses.replace(PLAN, seed=3)
HOW = Evaluation(6, num_chains=2, num_temperatures=3, bdmc_examples=4, importance_samples=5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, quick_compilation):
    """A run, and another that starts from its weights."""
    out = tmp_path_factory.mktemp("table")
    first = runs.train(PLAN, out / "first", None)
    runs.export(first, out / "first.safetensors", {"start": None})
    return out, runs.train(OTHER, out / "second", out / "first.safetensors")


def weights(folder):
    run = open_run(folder)
    return run.model, run.proposal


@pytest.mark.slow
def test_a_run_starts_from_the_weights_of_another(trained):
    out, _ = trained
    assert eqx.tree_equal(load(out / "first.safetensors"), weights(out / "first"))
    first, second = (weights(out / name)[0].decoder.layers for name in ("first", "second"))
    steps = [np.abs(a.weight - b.weight).max() for a, b in zip(first, second, strict=True)]
    # Three updates of Adam at 0.001, and nothing but those.
    assert 0 < max(steps) < 0.0031


def test_a_run_knows_its_costs_and_its_data(trained):
    out, run = trained
    assert run.path == out / "second"
    assert (run.updates, run.decoder_gradients) == (3, 3 * 499)
    assert run.seconds > 0
    assert run.digests == json.loads((run.path / "config.json").read_text())["data"]["digests"]


def test_a_file_of_weights_says_what_it_is(trained):
    assert runs.read_about(trained[0] / "first.safetensors")["start"] is None


def test_a_complete_run_makes_no_update(trained, monkeypatch):
    out, run = trained
    monkeypatch.setattr("aisle.learning.loop.make_chunk", None)
    before = weights(run.path)
    assert runs.train(OTHER, run.path, out / "first.safetensors") == run
    assert eqx.tree_equal(weights(run.path), before)


def test_a_table_may_be_moved(trained, tmp_path):
    _, run = trained
    shutil.copytree(run.path, tmp_path / "second")
    moved = runs.train(OTHER, tmp_path / "second", tmp_path / "first.safetensors")
    assert moved == run._replace(path=tmp_path / "second")


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_first_checkpoint_resumes(trained, tmp_path):
    out, run = trained
    (tmp_path / "second").mkdir()
    shutil.copy(run.path / "config.json", tmp_path / "second")
    again = runs.train(OTHER, tmp_path / "second", out / "first.safetensors")
    assert again.updates == 3
    assert eqx.tree_equal(weights(again.path), weights(run.path))


def test_another_plan_is_refused(trained):
    out, run = trained
    before, start = contents(run.path), out / "first.safetensors"
    longer = dataclasses.replace(OTHER, num_epochs=2)
    for plan, file in ((longer, start), (OTHER, None), (OTHER, out / "third.safetensors")):
        with pytest.raises(InputError, match="second has other settings: choose another --out"):
            runs.train(plan, run.path, file)
    assert contents(run.path) == before


def test_a_run_of_no_table_is_not_resumed(tmp_path):
    (tmp_path / "config.json").write_text('{"fit": {}, "data": {}}')
    with pytest.raises(InputError, match=r"is not a run of a table .*choose another --out"):
        runs.train(PLAN, tmp_path, None)


def test_an_interruption_ends_the_table(monkeypatch, tmp_path):
    interrupted = SimpleNamespace(is_interrupted=True)
    monkeypatch.setattr(training, "train", lambda config, out: interrupted)
    with pytest.raises(KeyboardInterrupt, match="in first; the same command resumes"):
        runs.train(PLAN, tmp_path / "first", None)


def test_the_command_says_what_differs_from_the_defaults():
    plan = dataclasses.replace(PLAN, method=Method("ais", 1, 2, kernel="paper"))
    assert runs.command(plan, "first") == (
        "aisle train digits --epochs 1 --method ais --num-samples 1 --num-temperatures 2 "
        "--kernel paper --num-latents 2 --num-hidden 8 --num-valid 0 --batch-size 499 "
        "--optimizer adam --lr-schedule iwae-study --keep last --init-from first"
    )


def test_the_options_of_an_evaluation_reach_the_library(monkeypatch, tmp_path):
    asked = []

    def evaluate(run, config):
        asked.append((run, config))
        raise StopIteration

    monkeypatch.setattr(runs, "open_run", lambda path: path)
    monkeypatch.setattr(evaluating, "evaluate", evaluate)
    plan = Evaluation(7, 5, "paper", 3, 11, 4, "linear", 0.7, 9, 6, 8)
    with pytest.raises(StopIteration):
        runs.evaluate(tmp_path, plan)
    [(place, config)] = asked
    assert (place, config.num_examples, config.whole_split) == (tmp_path, 7, 5)
    sampler = dataclasses.asdict(config.sampler)
    wanted = {k: v for k, v in dataclasses.asdict(plan).items() if k in sampler}
    assert {name: sampler[name] for name in wanted} == wanted
    assert len(wanted) == 9


@pytest.mark.parametrize("whole", [None, Mean(-90.0, 0.5, 300)])
def test_a_table_reports_the_whole_split_where_it_was_estimated(monkeypatch, tmp_path, whole):
    some = Mean(-80.0, 0.5, 6)
    found = SimpleNamespace(
        whole_split=whole, estimate=some, bdmc=None, log_p=None, importance=None, seconds=1.0
    )
    monkeypatch.setattr(runs, "open_run", lambda path: path)
    monkeypatch.setattr(evaluating, "evaluate", lambda run, config: (found, run))
    evaluated = runs.evaluate(tmp_path, HOW)
    assert (evaluated.log_likelihood, evaluated.mean) == (whole or some, some)


@pytest.mark.slow
def test_an_evaluation_says_what_was_found(trained):
    _, run = trained
    found = runs.evaluate(run.path, HOW)
    direct = evaluating.evaluate(open_run(run.path), runs._evaluate_config(HOW))[0]
    np.testing.assert_array_equal(found.log_p, direct.log_p)
    assert found.log_likelihood == found.mean == direct.estimate
    assert (found.gap, found.gap.num_examples) == (direct.bdmc.gap, 4)
    assert (found.elbo, found.active_units) == (
        direct.importance.elbo,
        direct.importance.active_units,
    )
    assert isinstance(found.elbo, Mean)


# As users make them; those that only differ in what is written are the same runs.
NEW = "mnist --epochs 50"
OLD = "mnist --method ais -K 5 -T 11 --optimizer adam --lr-schedule iwae-study --epochs 10"
KEPT = " --checkpoint-minutes 1 --keep-checkpoints 1 --tensorboard --data-dir elsewhere"


def parsed(words):
    return parse(["train", *words.split()])._config()


def store(config, path):
    """Make the folder that `aisle train` leaves, without the training."""
    folder.create(path, {"train": to_json(absolute(config)), "data": {}})
    return path


def default_plan(name):
    (cell,) = [c for c in make_table("defaults", "cpu", 0).cells if c.name.endswith(name)]
    return cell.training


@pytest.mark.parametrize(("name", "words"), [("new", NEW), ("old", OLD)])
def test_a_run_by_the_command_line_is_a_cell_of_the_defaults(tmp_path, name, words):
    plan, config = default_plan(name), parsed(words)
    # What the table would leave, to the letter.
    assert to_json(runs._train_config(plan)) == to_json(config)
    # Named, though it is the default.
    named = parsed(f"{words} --kernel tuned --num-leapfrog 2 --binarize dynamic")
    for number, same in enumerate((config, parsed(words + KEPT), named)):
        runs._check_folder(store(same, tmp_path / str(number)), plan, None)


OTHERS = {
    "method": {"num_leapfrog": 3, "num_samples": 2},
    "model": {"num_hidden": 100, "init_from": Path("elsewhere")},
    "observations": {"num_valid": 0, "binarize": "static"},
    "optimizer": {"warmup_epochs": 3, "learning_rate": 0.01, "batch_size": 100, "ema": 0.9},
    "run": {"seed": 1, "keep": "last", "patience": 2, "validate_every": 1},
}


@pytest.mark.parametrize(("group", "option"), [(g, name) for g in OTHERS for name in OTHERS[g]])
def test_a_run_by_another_command_is_another_run(tmp_path, group, option):
    plan = default_plan("new")
    config = runs._train_config(plan)
    changed = dataclasses.replace(getattr(config, group), **{option: OTHERS[group][option]})
    store(dataclasses.replace(config, **{group: changed}), tmp_path / "run")
    with pytest.raises(InputError, match="has other settings: choose another --out"):
        runs._check_folder(tmp_path / "run", plan, None)


@pytest.mark.parametrize("length", ["--epochs 51", "", "--updates 50"])
def test_a_run_of_another_length_is_another_run(tmp_path, length):
    store(parsed(f"mnist {length}"), tmp_path / "run")
    with pytest.raises(InputError, match="has other settings: choose another --out"):
        runs._check_folder(tmp_path / "run", default_plan("new"), None)


def test_a_finished_run_by_the_command_line_is_not_trained_again(monkeypatch, tmp_path):
    plan, digests = default_plan("new"), {"train": "a"}
    content = {"train": to_json(runs._train_config(plan)), "data": {"digests": digests}}
    folder.create(tmp_path / "run", content)
    last = {"update": 21_450, "decoder_gradients": 7, "seconds": 60.0}
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(last) + "\n")
    monkeypatch.setattr(training, "train", pytest.fail)
    complete = SimpleNamespace(is_interrupted=False)
    monkeypatch.setattr(training, "resume", lambda path: complete)
    found = runs.train(plan, tmp_path / "run", None)
    assert found == (tmp_path / "run", *last.values(), digests)


@pytest.mark.slow
def test_timing_is_that_of_the_whole_run(quick_compilation):
    found = runs.time_updates(dataclasses.replace(PLAN, num_epochs=4))
    assert (found.updates, found.decoder_gradients) == (12, 12 * 499)
    assert 0 < found.seconds < 60
