"""A long training: what its page and its picture say, and one in small."""

import json

import jax
import pytest

import aisle
from aisle.runs.options import TrainConfig
from aisle.statistics import Mean
from calling import assert_mistake, run
from paper.core.effort import Effort
from paper.hours import page, study

FOUND = study.Trained(
    [],
    [study.Point(0.5, Mean(-90.0, 0.4, 300)), study.Point(1.0, Mean(-85.0, 0.4, 300))],
    Mean(-83.0, 0.2, 10_000),
    Mean(-80.0, 0.5, 1000),
    Mean(0.1, 0.02, 100),
    1234,
    3600.0,
    "aisle train mnist --hours 1",
)


def test_the_page_has_test_and_training_data_and_the_best_of_others():
    best = page.published("mnist", "one-layer", FOUND.command)
    text = page._page(FOUND, page._rows(FOUND, best), "mnist")
    assert "# log p(x) of mnist after 1.0 hours of training" in text
    assert "1,234 updates in 1.0 hours" in text
    assert "| test data, the whole split | -83.00 +- 0.20 |" in text
    assert "| test data, the best of the paper | -83.63 |" in text
    assert len(page._rows(FOUND, None)) == 3


def test_weights_on_record_bring_their_commands_and_their_hours(tmp_path):
    weights = tmp_path / "weights.safetensors"
    assert study.recorded(weights) == []
    config = TrainConfig("mnist")
    content = page._content(FOUND, config, 1.0, Effort())
    (tmp_path / "hours.json").write_text(json.dumps(content))
    stages = study.recorded(weights)
    assert stages == [study.Stage(FOUND.command, FOUND.seconds)]
    second = FOUND._replace(before=stages, seconds=1800.0, command="aisle train mnist --hours 0.5")
    assert second.hours == 1.5
    text = page._page(second, [], "mnist")
    assert "after 1.5 hours" in text and "1,234 updates in 0.5 hours" in text
    assert (
        "`aisle train mnist --hours 1`, then from its weights `aisle train mnist --hours 0.5`"
        in text
    )
    third = study.stages(page._content(second, config, 0.5, Effort()))
    assert [stage.seconds for stage in third] == [3600.0, 1800.0]


def test_what_is_published_depends_on_data_and_layers():
    assert page.published("omniglot", "one-layer", "") == (-101.25, "the paper")
    assert page.published("mnist", "one-layer", "") == (-83.63, "the paper")
    two = [page.published(data, "two-layer", "") for data in ("mnist", "omniglot")]
    assert [best.value for best in two] == [-82.90, -103.38]
    assert "two layers" in two[0].source
    for layers in ("one-layer", "two-layer"):
        assert page.published("static_binarized.npz", layers, "").value == -86.82
    assert page.published("digits", "one-layer", "") is None


@pytest.mark.parametrize("option", ["--binarize static", "--likelihood gaussian", "--grey"])
def test_what_is_published_is_of_the_same_observations(option):
    assert page.published("mnist", "one-layer", f"aisle train mnist {option} --hours 1") is None


def test_the_picture_has_the_curve_its_ends_and_the_best_of_others():
    (axes,) = page._picture(FOUND, page.published("mnist", "one-layer", "")).axes
    # Shifted by 2 nats, to end where test data are.
    assert list(axes.lines[0].get_ydata()) == [-88.0, -83.0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(labels) == 4 and "best of the paper, test" in labels
    assert list(axes.lines[0].get_xdata()) == [0.5, 1.0]


def test_both_splits_are_evaluated_whole_and_test_data_have_the_certificate_and_more_effort():
    test, train = Effort().config("test"), Effort().of_training().config("train")
    assert (test.split, train.split) == ("test", "train")
    assert (test.whole_split, train.whole_split) == (30, 10)
    assert (test.sampler.num_temperatures, train.sampler.num_temperatures) == (1000, 250)
    assert (test.sampler.bdmc_examples, train.sampler.bdmc_examples) == (100, 0)


@pytest.mark.slow
def test_in_small(tmp_path, capsys):
    arguments = ("hours", "digits", "--hours", "1e-3", "-T", "3", "--budget", "smoke")
    arguments += ("--checkpoint-minutes", "1e-6")
    arguments += ("--out", tmp_path)
    assert run(capsys, *arguments)[0] == 0
    record = json.loads((tmp_path / "hours.json").read_text())
    assert record["updates"] > 0 and record["gap"]["num_examples"] == 4
    assert len(record["curve"]) > 1 and record["curve"][0]["num_examples"] == 8
    assert (tmp_path / "hours.png").stat().st_size > 5000
    assert "--num-temperatures 3" in record["command"]
    model, _ = aisle.load(tmp_path / "weights.safetensors")
    assert model.sample_prior(jax.random.key(0)).shape == (2,)
    # Something else is refused, and nothing is trained or evaluated again.
    for other in (("--seed", "1"), ("--hours", "2"), ("--batch-size", "64")):
        assert_mistake(run(capsys, *arguments, *other), "was begun with other options")
    assert run(capsys, *arguments)[0] == 0
    assert json.loads((tmp_path / "hours.json").read_text())["test"] == record["test"]
