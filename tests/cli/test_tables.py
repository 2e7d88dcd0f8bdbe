"""Tables through the commands: conditions, exposures, weights, samples and imputation."""

import csv
import json

import equinox as eqx
import jax
import numpy as np
import pytest

import aisle
from aisle.errors import InputError
from aisle.models import FAMILIES
from aisle.runs import training
from aisle.runs.evaluating import dataset_of, parts
from aisle.runs.opening import load_data, roles_of
from aisle.runs.options import EvaluateConfig
from commands import assert_mistake, call, run

# The run that most of them are of compiles for a quarter of a minute.
pytestmark = pytest.mark.slow

TINY = ("--hidden", "4", "--num-latents", "1", "--method", "vae", "--optimizer", "adam")
TINY += ("--lr-schedule", "constant", "--batch-size", "17", "--updates", "2", "--num-valid", "5")
ROLES = ("--condition", "sex", "age", "--exposure", "days", "--weights", "often")
QUICK = ("--num-examples", "4", "-C", "2", "-T", "2", "-L", "1", "--bdmc-examples", "2")
NUM_ROWS = 60


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read(path, delimiter=","):
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def columns():
    random = np.random.default_rng(0)
    days = random.integers(1, 30, NUM_ROWS)
    return {
        "who": [f"p{i}" for i in range(NUM_ROWS)],
        "sex": random.choice(["f", "m"], NUM_ROWS).tolist(),
        "age": random.integers(20, 90, NUM_ROWS).tolist(),
        "days": days.tolist(),
        "often": random.integers(1, 3, NUM_ROWS).tolist(),
        "visits": random.poisson(0.3 * days).tolist(),
        "region": random.choice(["north", "south", "west"], NUM_ROWS).tolist(),
        "size": random.normal(170, 10, NUM_ROWS).round(1).tolist(),
        "ill": random.choice(["no", "yes"], NUM_ROWS).tolist(),
    }


def table(path, **changes):
    made = columns() | changes
    return write(path, made, zip(*made.values(), strict=True))


@pytest.fixture(scope="module")
def home(tmp_path_factory, compiled_once):
    """A run with conditions, exposures and weights, on a table of which some cells are missing."""
    folder = tmp_path_factory.mktemp("home")
    made = columns()
    for name, first in (("visits", 0), ("region", 1), ("size", 2), ("ill", 3)):
        made[name][first::7] = [""] * len(made[name][first::7])
    table(folder / "t.csv", **made)
    options = (*TINY, *ROLES, "--out", folder / "run")
    assert call("train", folder / "t.csv", *options) == 0
    return folder


def test_the_run_says_what_its_columns_are(home):
    stored = json.loads((home / "run" / "config.json").read_text())
    assert stored["train"]["observations"]["condition"] == ["sex", "age"]
    assert stored["data"]["conditions"] == [["sex", "bit", ["f", "m"]], ["age", "count", []]]
    assert [name for name, _, _ in stored["data"]["columns"]] == ["visits", "region", "size", "ill"]
    assert stored["data"]["form"]["conditions"]["families"] == ["bernoulli", "gaussian"]
    opened = aisle.open_run(home / "run")
    dataset = load_data(opened)
    assert dataset.train.weights.tolist() == [float(n) for n in columns()["often"]]
    context = aisle.Context(condition=np.array([[1.0, 30.0]] * 3), exposure=np.ones(3))
    assert aisle.sample(opened.model, 3, context).shape == (3, 4)


def test_the_table_that_is_shown_has_what_is_given(capsys, home, monkeypatch, tmp_path):
    def enough(*_):
        raise InputError("enough")

    monkeypatch.setattr(training, "_train", enough)
    options = (*TINY, *ROLES, "--columns", "age=real", "--out", tmp_path / "run")
    _, out, _ = run(capsys, "train", home / "t.csv", *options)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    assert ["region", "category", "3 levels: north, south, west", "9 (15%)"] in lines
    assert ["sex", "given: bit", "2 levels: f, m", "none"] in lines
    assert ["age", "given: real", "21 to 89", "none"] in lines
    assert not any("often" in line or "days" in line for line in lines)
    assert "column 'who' has 60 different texts in 60 rows, like an id: it is left out" in out


def test_a_run_with_conditions_is_evaluated_resumed_and_exported(capsys, home, tmp_path):
    assert run(capsys, "evaluate", home / "run", *QUICK)[0] == 0
    # The same file, without looking at weights, is known by the rows that were held out.
    opened = aisle.open_run(home / "run")
    config = EvaluateConfig(data=str(home / "t.csv"))
    assert len(parts(opened, config, dataset_of(opened, config)).split) == 6
    other = table(tmp_path / "other.csv")
    assert run(capsys, "evaluate", home / "run", "--data", other, *QUICK)[0] == 0
    assert run(capsys, "train", "--resume", home / "run")[0] == 0
    assert run(capsys, "export", home / "run", tmp_path / "w.safetensors")[0] == 0
    loaded = aisle.load(tmp_path / "w.safetensors")
    assert eqx.tree_equal(loaded, (opened.model, opened.proposal))


def test_samples_are_drawn_for_given_conditions(capsys, home, tmp_path):
    out = tmp_path / "samples.csv"
    options = ("--given", "sex=f,age=30,days=7", "--num-samples", 5, "--out", out)
    assert run(capsys, "sample", home / "run", *options)[0] == 0
    rows = read(out)
    assert list(rows[0]) == ["days", "sex", "age", "visits", "region", "size", "ill"]
    assert len(rows) == 5
    for row in rows:
        assert (row["sex"], row["age"], float(row["days"])) == ("f", "30", 7)
        assert row["region"] in ("north", "south", "west") and row["ill"] in ("no", "yes")
        assert int(row["visits"]) >= 0 and np.isfinite(float(row["size"]))
    # What was drawn is what the model draws in that context.
    context = aisle.Context(condition=np.array([[0.0, 30.0]] * 5), exposure=np.full(5, 7.0))
    drawn = aisle.sample(aisle.open_run(home / "run").model, 5, context)
    np.testing.assert_allclose([float(row["size"]) for row in rows], drawn[:, 2], rtol=1e-6)


def test_what_is_not_given_is_that_of_held_out_rows(capsys, home, tmp_path):
    options = ("--given", "sex=m", "--num-samples", 7)
    out = tmp_path / "samples.tsv"
    assert run(capsys, "sample", home / "run", *options, "--out", out)[0] == 0
    rows = read(out, "\t")
    valid = load_data(aisle.open_run(home / "run")).valid
    known = valid.context_of(np.arange(5))
    wanted = [int(known.condition[i, 1]) for i in (0, 1, 2, 3, 4, 0, 1)]
    assert [int(row["age"]) for row in rows] == wanted
    assert {row["sex"] for row in rows} == {"m"}
    assert [float(row["days"]) for row in rows] == np.resize(known.exposure, 7).tolist()
    # The same as an array and as a picture.
    for name in ("x.npy", "x.png"):
        assert run(capsys, "sample", home / "run", *options, "--out", tmp_path / name)[0] == 0
    assert np.load(tmp_path / "x.npy").shape == (7, 4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("sxe=f", ("--given is 'sxe', but", "did you mean 'sex'")),
        ("sex=x", ("--given is 'x' for sex: it must be one of f, m",)),
        ("age=old", ("--given is 'old' for age: a count is of whole numbers from 0",)),
        ("days=0", ("--given is 0 for days: it must be above 0",)),
        ("sex", ("--given is 'sex': give NAME=VALUE",)),
    ],
)
def test_conditions_that_do_not_fit(capsys, home, tmp_path, given, words):
    options = ("--given", given, "--out", tmp_path / "x.csv")
    assert_mistake(run(capsys, "sample", home / "run", *options), *words)
    assert not list(tmp_path.iterdir())


def test_columns_that_are_not_there(capsys, home, tmp_path, no_training):
    options = (*TINY, "--condition", "sxe", "--out", tmp_path / "run")
    result = run(capsys, "train", home / "t.csv", *options)
    assert_mistake(result, "--condition is 'sxe', but", "did you mean 'sex'?")
    result = run(capsys, "train", "digits", *options)
    assert_mistake(result, "--condition is given but digits is no table")


def test_missing_cells_are_drawn_and_others_stay_as_they_are(capsys, home, tmp_path):
    out = tmp_path / "filled.csv"
    code, _, err = run(capsys, "impute", home / "run", home / "t.csv", "--draws", 3, "--out", out)
    assert code == 0 and "imputing" in err
    before, after = read(home / "t.csv"), read(out)
    assert list(after[0]) == ["draw", *before[0]]
    assert [row.pop("draw") for row in after] == ["1"] * 60 + ["2"] * 60 + ["3"] * 60
    for old, new in zip(before * 3, after, strict=True):
        assert {k: v for k, v in new.items() if old[k]} == {k: v for k, v in old.items() if v}
        assert int(new["visits"]) >= 0 and 0 < float(new["size"]) < 400
        assert new["region"] in ("north", "south", "west") and new["ill"] in ("no", "yes")
    # They are the draws of aisle.impute, each in its row.
    opened = aisle.open_run(home / "run")
    made = aisle.read_table(home / "t.csv", **roles_of(opened.stored, opened.config)._asdict())
    rows = np.flatnonzero(np.isnan(made.values).any(axis=1))
    context = jax.tree.map(lambda a: a[rows], made.context)
    gaps = made.values[rows].astype(np.float32)
    draws = aisle.impute(opened.model, opened.proposal, gaps, context, num_draws=3)
    sizes = np.array([float(row["size"]) for row in after]).reshape(3, 60)
    np.testing.assert_allclose(sizes[:, rows], draws[:, :, 2].T, rtol=1e-6)
    assert np.all(np.ptp(sizes[:, 2::7], axis=0) > 0)


def test_means_are_one_table(capsys, home, tmp_path):
    out = tmp_path / "filled.csv"
    options = ("--mean", "--draws", 20, "--out", out)
    assert run(capsys, "impute", home / "run", home / "t.csv", *options)[0] == 0
    rows = read(out)
    assert list(rows[0]) == list(columns())
    assert len(rows) == NUM_ROWS and all(all(row.values()) for row in rows)
    # Means of noise are near those of the column, which draws are not.
    sizes = np.array([float(row["size"]) for row in rows[2::7]])
    assert np.all(np.abs(sizes - 170) < 12)


def test_tables_that_cannot_be_filled(capsys, home, tmp_path):
    def mistake(path, *words, out=tmp_path / "x.csv"):
        assert_mistake(run(capsys, "impute", home / "run", path, "--out", out), *words)
        assert not out.exists() or out == path

    path = table(tmp_path / "t.csv", region=["east"] * NUM_ROWS)
    mistake(path, "line 2, column 'region' has 'east': it must be one of north, south, west")
    mistake(path, "is the table itself: give another file", out=path)
    mistake(table(tmp_path / "d.csv", draw=[1] * NUM_ROWS), "has a column 'draw'")
    mistake(tmp_path / "none.csv", "is not a file")
    mistake(path, "does not end in .csv or .tsv", out=tmp_path / "x.xlsx")


def test_a_model_of_whole_rows_fills_others(capsys, tmp_path):
    """Its encoder has no input for what is missing."""
    made = {name: columns()[name] for name in ("visits", "size", "ill")}
    path = write(tmp_path / "t.csv", made, zip(*made.values(), strict=True))
    assert call("train", path, *TINY, "--out", tmp_path / "run") == 0
    made["size"] = ["", *made["size"][1:]]
    gaps = write(tmp_path / "gaps.csv", made, zip(*made.values(), strict=True))
    out = tmp_path / "filled.csv"
    assert call("impute", tmp_path / "run", gaps, "--draws", 2, "--out", out) == 0
    assert 100 < float(read(out)[0]["size"]) < 240
    assert call("impute", tmp_path / "run", path, "--draws", 2, "--out", out) == 0
    assert len(read(out)) == 2 * NUM_ROWS


VALUES = {
    "bernoulli": lambda random: random.integers(0, 2, (40, 3)),
    "categorical": lambda random: random.integers(0, 3, (40, 3)),
    "gaussian": lambda random: random.normal(5.0, 100.0, (40, 3)),
    "student-t": lambda random: random.standard_t(3, (40, 3)),
    "logit-normal": lambda random: random.uniform(0.1, 0.9, (40, 3)),
    "beta": lambda random: random.uniform(0.1, 0.9, (40, 3)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_goes_through_all_commands(capsys, tmp_path, name):
    draw = VALUES.get(name, lambda random: random.poisson(3.0, (40, 3)))
    values = draw(np.random.default_rng(0))
    np.save(tmp_path / "x.npy", values)
    folder = tmp_path / "run"
    binarize = ("--binarize", "none") if name == "bernoulli" else ()
    options = (*TINY, *binarize, "--likelihood", name, "--out", folder)
    assert run(capsys, "train", tmp_path / "x.npy", *options)[0] == 0
    assert run(capsys, "evaluate", folder, *QUICK, "--json", tmp_path / "r.json")[0] == 0
    mean = json.loads((tmp_path / "r.json").read_text())["log_likelihood"]["mean"]
    assert np.isfinite(mean)
    out = ("--num-samples", 6, "--out", tmp_path / "x_new.npy")
    assert run(capsys, "sample", folder, *out)[0] == 0
    assert np.all(FAMILIES[name].fitted(values)[0].is_supported(np.load(tmp_path / "x_new.npy")))
    assert run(capsys, "report", folder, "--out", tmp_path / "r.html")[0] == 0
    assert (tmp_path / "r.html").stat().st_size > 10_000
    assert run(capsys, "export", folder, tmp_path / "w.safetensors")[0] == 0
    opened = aisle.open_run(folder)
    loaded = aisle.load(tmp_path / "w.safetensors")
    assert eqx.tree_equal(loaded, (opened.model, opened.proposal))
    x = jax.numpy.asarray(values[0], float)
    z = loaded[1](x).loc
    assert np.isfinite(loaded[0].log_likelihood(x, z))
