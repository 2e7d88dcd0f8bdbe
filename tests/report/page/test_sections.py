"""What is missing, what is said of a run, and names that are only text."""

import html

import pytest

from aisle.data import Split
from aisle.report.page.reading import read_folder
from aisle.report.page.subjects import Origin
from pages import (
    MINUS,
    NUM_UPDATES,
    cells,
    commands,
    config,
    elements,
    make_run,
    page,
    records,
    result,
)


def test_what_is_missing_is_named_with_its_command(bare):
    root = elements(page(bare))
    assert not root.all("svg", class_="plot")
    wanted = {
        "comparison": ("bare has no evaluation of test examples yet.", "aisle evaluate bare"),
        "learning": ("no metrics.jsonl", "aisle train bare"),
        "chains": ("No run has chains", "aisle train things --method ais"),
        "examples": ("No run has an evaluation", "aisle evaluate bare"),
        "certificates": ("No evaluation has a certificate yet.", "aisle evaluate bare"),
    }
    for name, (words, command) in wanted.items():
        section = root.one("section", id=name)
        assert words in section.words
        assert command in commands(section)
    assert "No run has been evaluated yet." in root.one("header").words
    assert (
        "An effective sample size needs iwae, dreg or ais, with K of 2 or more."
        in root.one("section", id="chains").words
    )


def test_extras_that_are_missing_are_named_with_the_same_settings(tmp_path):
    run = make_run(tmp_path / "run", evaluations=[result(bdmc=False)])
    origin = Origin("test", NUM_UPDATES, "aisle evaluate run --bdmc-examples 0 --seed 3")
    root = elements(page(run._replace(origins=dict.fromkeys(run.origins, origin))))
    found = commands(root.one("section", id="comparison"))
    assert "aisle evaluate run --bdmc-examples 0 --seed 3 --importance-samples 5000" in found
    assert "aisle evaluate run --seed 3" in found
    assert cells(root, "comparison")[0]["gap"] == "\N{EN DASH}"
    assert "Without a certificate" in root.one("header").words
    assert "No evaluation has a certificate" in root.one("section", id="certificates").words


def test_an_evaluation_that_was_begun_is_named(tmp_path):
    run = make_run(tmp_path / "run")
    (tmp_path / "run" / "evaluations" / "test20-begun").mkdir(parents=True)
    run = run._replace(folder=read_folder(tmp_path / "run", NUM_UPDATES))
    assert "an evaluation that was begun and has no result" in page(run)


def test_a_run_without_an_evaluation_is_judged_by_its_held_out_bound(tmp_path):
    root = elements(page(make_run(tmp_path / "run")))
    words = root.one("header").words
    assert f"{MINUS}25.00 ± 0.25 nats" in words
    assert "held-out bound of run" in words


def test_a_run_without_held_out_bounds(tmp_path):
    run = make_run(tmp_path / "a run", metrics=records(has_held_out=False))
    root = elements(page(run))
    learning = root.one("section", id="learning")
    assert "a run: no held-out bound yet" in learning.words
    assert commands(learning) == [f"aisle train --resume '{run.folder.path}'"]
    assert len(learning.all("svg", class_="plot")) == 3


def test_data_that_are_not_at_hand_are_named(first):
    lost = first._replace(dataset=None, problem="things.npy does not exist.")
    root = elements(page(lost))
    assert len(root.one("div", class_="gallery").all("img")) == 1
    assert (
        "no interpolations: things.npy does not exist." in root.one("section", id="pictures").words
    )
    assert "things.npy does not exist. By number" in root.one("section", id="examples").words


def test_examples_that_the_data_no_longer_have(first):
    few = Split(first.dataset.test.array[:2])
    root = elements(page(first._replace(dataset=first.dataset._replace(test=few))))
    assert not root.one("section", id="examples").all("img")


HOSTILE = '<img src=x onerror="alert(1)">&\'"$_{^\\'


def test_hostile_names_and_settings_are_only_text(tmp_path):
    train = config() | {"data": HOSTILE, "<b>": HOSTILE, "model": {"init_from": HOSTILE}}
    found = result(settings={"examples": HOSTILE, "tolerance": HOSTILE})
    found = found._replace(is_tolerance_reached=False)
    run = make_run(tmp_path / HOSTILE.replace("/", ""), train, evaluations=[found], data=HOSTILE)
    run = run._replace(train_command=HOSTILE, evaluate_command=HOSTILE)
    text = page(run)
    root = elements(text)
    assert HOSTILE in root.one("h1").words
    assert not root.all("script") and not root.all("b")
    assert all(image.attributes["src"].startswith("data:") for image in root.all("img"))
    assert all(HOSTILE in i.attributes["alt"] for i in root.all("img"))
    assert html.escape("<img src=x") in text and "<img src=x" not in text
    assert HOSTILE in [code.text for code in root.all("code")]


def test_the_settings_hold_everything(first, one):
    section = one.one("section", id="settings")
    assert commands(section) == ["aisle train first", "aisle evaluate first -C 0"]
    found = {row.children[0].words: row.children[1].words for row in section.all("tr")}
    assert found["method.kernel"] == "tuned"
    assert found["model.init_from"] == "not set"
    assert found["data.shape"] == "6, 4"
    machine = first.folder.config["provenance"]
    assert found["packages.jax"] == machine["packages"]["jax"]
    assert found["machine.processor"] == machine["machine"]["processor"]
    assert found["git_commit"] == str(machine["git_commit"] or "not set")
    assert len(section.all("details")) == 1


@pytest.mark.parametrize("method", ["vae", "dreg", "mh-hmc"])
def test_settings_of_chains_are_those_of_methods_with_chains(tmp_path, method):
    run = make_run(tmp_path / "run", config(method))
    section = elements(page(run)).one("section", id="settings")
    found = {row.children[0].words for row in section.all("tr")}
    own = {"method.method", "method.num_samples"}
    chains = {"method.num_temperatures", "method.num_leapfrog", "method.kernel"}
    wanted = own | chains if method == "mh-hmc" else own
    assert {name for name in found if name.startswith("method.")} == wanted
