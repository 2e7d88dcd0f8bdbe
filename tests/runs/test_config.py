"""The configuration of a run as JSON, of both editions, and as the command that it stands for."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from aisle.cli.main import parse
from aisle.errors import InputError
from aisle.runs import commands
from aisle.runs.config import absolute, from_json, to_json
from aisle.runs.folder import read_config
from aisle.runs.options import (
    DataOptions,
    EvaluateConfig,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    SamplerOptions,
    TrainConfig,
)

FILES = Path(__file__).parents[1] / "fixtures" / "first_edition"

# Every option other than by default.
FULL = TrainConfig(
    "my data.npy",
    num_updates=7,
    method=MethodOptions(
        "ais", 3, 5, "paper", 4, "sigmoid", 0.7, 0.5, 0.9, "wake", 2, "bfloat16", 7
    ),
    model=ModelOptions("two-layer", 3, 9, "gaussian", "mlp", "9,4", "elu", Path("a b.safetensors")),
    observations=DataOptions("none", True, "a=real", ("b", "c d"), "total", "w", 12, Path("data")),
    optimizer=OptimizerOptions(64, "adam", 0.01, "constant", 2, 0.5, 0.1),
    run=RunOptions(4, "last", 6, 3, 1.5, 2, True),
)
SHORT = TrainConfig("digits", num_epochs=3)


@pytest.mark.parametrize("config", [FULL, SHORT, TrainConfig("mnist")])
def test_a_configuration_comes_back_from_json(config):
    stored = json.loads(json.dumps(to_json(config)))
    assert from_json({"train": stored, "format": 2}, Path("run")) == config


@pytest.mark.parametrize("config", [FULL, SHORT, TrainConfig("mnist")])
def test_the_command_of_a_configuration_stands_for_it(config):
    command = commands.train_anywhere(config)
    at_home = dataclasses.replace(config.observations, data_dir=None)
    name, *words = shlex.split(command)
    found = parse(words)._config()
    assert name == "aisle"
    assert to_json(found) == to_json(dataclasses.replace(config, observations=at_home))


def test_a_command_names_what_differs_and_no_places():
    assert commands.train(SHORT) == "aisle train digits --epochs 3"
    words = commands.train_anywhere(absolute(FULL))
    assert "--init-from 'a b.safetensors'" in words
    assert "--data-dir" not in words and str(Path.cwd()) not in words
    assert "--updates 7 --method ais --num-samples 3 --num-temperatures 5" in words


def test_a_command_for_others_does_not_say_where_files_are():
    seen = DataOptions(columns="/home/me/kinds.json")
    config = TrainConfig("/home/me/patients.csv", 3, observations=seen)
    found = commands.train_anywhere(config)
    assert found == "aisle train patients.csv --epochs 3 --columns kinds.json"


def test_the_command_of_an_evaluation_stands_for_it():
    sampler = SamplerOptions(4, 50, "paper", 3, "linear", 0.5, 0.9, 0.7, 6, 20, 0.1, 9.0, 5, 2, 64)
    config = EvaluateConfig("valid", 10, 5, "prior", "other.npy", Path("data"), sampler)
    name, *words = shlex.split(commands.evaluate(Path("my run"), config))
    found = parse(words)
    assert (name, found.run_path) == ("aisle", Path("my run"))
    assert dataclasses.asdict(found.config) == dataclasses.asdict(config)
    assert commands.evaluate(Path("run"), EvaluateConfig()) == "aisle evaluate run"


def test_paths_are_made_absolute_and_names_of_data_sets_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = absolute(FULL)
    assert config.data == str(tmp_path / "my data.npy")
    assert config.model.init_from == tmp_path / "a b.safetensors"
    # The folder is that of named sets, and a file has a place of its own.
    assert config.observations.data_dir is None
    named = absolute(dataclasses.replace(FULL, data="digits"))
    assert (named.data, named.observations.data_dir) == ("digits", tmp_path / "data")
    assert absolute(SHORT) == SHORT
    for text, expected in (("kinds.json", str(tmp_path / "kinds.json")), ("age=real", "age=real")):
        typed = TrainConfig("digits", observations=DataOptions(columns=text))
        assert absolute(typed).observations.columns == expected


def test_a_configuration_of_the_first_edition():
    config = from_json(read_config(FILES / "averaged"), FILES / "averaged")
    method = MethodOptions("ais", 2, 3, "tuned", 2, "ramp", 0.8, 0.75, 0.6, "elbo")
    assert config == TrainConfig(
        "digits",
        2,
        method=method,
        model=ModelOptions("one-layer", 2, 8, "bernoulli", "study"),
        observations=DataOptions("dynamic", num_valid=0),
        optimizer=OptimizerOptions(128, "adam", None, "iwae-study", 0, 0.9),
        run=RunOptions(keep="last", validate_every=1),
    )
    # Whose options of chains were noted though it has none.
    config = from_json(read_config(FILES / "plain"), FILES / "plain")
    assert config.method == MethodOptions("vae", 2)
    config.method.build()


@pytest.mark.parametrize(
    ("group", "change", "words"),
    [
        ("method", {"jitter": 0.1}, "jitter is no longer an option"),
        ("model", {"proposal": "flow"}, "encoders other than diagonal ones"),
        ("model", {"num_hidden": "8"}, "num_hidden is '8'"),
        ("run", {"colour": 1}, "colour"),
    ],
)
def test_a_configuration_that_this_version_has_no_words_for(group, change, words):
    stored = read_config(FILES / "averaged")
    stored["train"][group] |= change
    with pytest.raises(InputError, match=words) as caught:
        from_json(stored, Path("run"))
    assert "run/config.json is not that of a training run" in str(caught.value)


@pytest.mark.parametrize("stored", [{}, {"train": None}, {"train": {"data": "digits"}}])
def test_what_is_no_configuration(stored):
    with pytest.raises(InputError, match="is not that of a training run of this version"):
        from_json({"format": 2, **stored}, Path("run"))


def test_a_run_of_fit_has_no_configuration():
    with pytest.raises(InputError, match=r"open it by aisle\.open_run\(path, model, proposal\)"):
        from_json({"format": 2, "fit": {}}, Path("run"))
