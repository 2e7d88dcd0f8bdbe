"""The page as a whole: what stands where, and that it needs nothing but itself."""

import html
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.context import Context
from aisle.data import Column, Table
from aisle.errors import InputError
from aisle.models import LinearGaussian
from aisle.report.columns import Labels
from aisle.report.page import _samples, render, save_page
from pages import (
    ABOUT,
    MINUS,
    config,
    elements,
    everything,
    log_p,
    make_run,
    page,
    pixels,
    plots_of,
    records,
    table,
    weights,
)

DASH = "\N{EN DASH}"


@pytest.fixture(scope="module")
def features(home):
    """A run on examples that are no pictures."""
    settings = config(data="table", digest="t1")
    return make_run(home / "features", settings, evaluations=[log_p()], shape=(3,))


@pytest.fixture(scope="module")
def own(home):
    """A run of aisle.fit, with a model that the package cannot build."""
    settings = {"fit": {"method": "ais", "num_epochs": 3}, "data": {"digest": "o1"}}
    evaluation = (log_p(), {"about": None})
    return make_run(home / "own", settings, evaluations=[evaluation], metrics=records())


@pytest.fixture(scope="module")
def of_table(home):
    """A run on a table of 20 rows, in which b is the rank of a and c is told by nothing."""
    settings = config(data="rows", digest="r1")
    run = make_run(home / "of_table", settings, evaluations=[log_p()], shape=(3,))
    a = np.linspace(-1, 2, 20)
    values = np.stack([a, np.arange(20) // 2, np.arange(20) % 2], axis=1)
    values[7, 0] = np.nan
    columns = (Column("a", "real"), Column("b", "count"), Column("c", "category", ("no", "yes")))
    codes = np.where(np.arange(20) < 5, -1, np.arange(20) % 2)
    labels = Labels("c", ("no", "yes"), codes)
    known = run.weights._replace(table=Table(values, columns), labels=labels)
    return run._replace(weights=known)


PAGES = {
    "one": ["first"],
    "a table": ["of_table"],
    "several": ["first", "second"],
    "different data": ["first", "features", "own"],
}


QUICK = ("one", "a table")


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in PAGES],
)
def text(request):
    return page(*map(request.getfixturevalue, PAGES[request.param]))


def test_pages_are_well_formed_and_can_be_read_aloud(text):
    root = elements(text)
    assert root.one("html").attributes["lang"] == "en"
    assert len(root.all("h1")) == 1 and root.one("title").words
    assert all(image.attributes["alt"].strip() for image in root.all("img"))
    for drawing in root.all("svg"):
        assert drawing.attributes["role"] == "img" and drawing.attributes["aria-label"].strip()
    for found in root.all("table"):
        assert found.one("caption").words
        assert found.all("th", scope="col") and found.all("th", scope="row")
        rows = [row.children for row in found.all("tr")]
        spans = [sum(int(c.attributes.get("colspan", 1)) for c in cells) for cells in rows]
        assert len(set(spans)) == 1


def test_names_on_a_page_are_unique_and_links_lead_somewhere(text):
    root = elements(text)
    names = [e.attributes["id"] for e in everything(root) if "id" in e.attributes]
    assert len(names) == len(set(names))
    links = [e.attributes["href"].removeprefix("#") for e in (*root.all("a"), *root.all("use"))]
    assert {*links, *re.findall(r"url\(#([^)]*)\)", text)} <= set(names)


def test_pages_fetch_nothing_and_run_nothing(text):
    root = elements(text)
    assert not root.all("script")
    for element in everything(root):
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "data", "action", "poster"):
                assert value.startswith(("data:", "#"))
    style = root.one("style").text
    assert "@import" not in style and "url(" not in style
    policy = next(m for m in root.all("meta") if "http-equiv" in m.attributes)
    assert policy.attributes["content"].startswith("default-src 'none'; img-src data:; style-src")
    assert len(text) < 300_000


def test_drawings_take_their_colours_and_fonts_from_the_page(text):
    body, style = text[text.index("<body>") :], elements(text).one("style").text
    assert not re.findall(r"(?:fill|stroke|color)[:=]\s*\"?#", body)
    assert "font-family" not in body
    known = set(re.findall(r"(--[a-z0-9-]+):", style))
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", body + style)) <= known


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return np.dot(linear, [0.2126, 0.7152, 0.0722])


def test_text_has_contrast_in_light_and_dark_mode(both):
    style = both.one("style").text
    light, dark = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    colors = dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6});", light))
    for changes in ({}, dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6});", dark))):
        chosen = colors | changes
        for name in chosen.keys() - {"--paper", "--raised", "--line"}:
            for ground in ("--paper", "--raised"):
                brighter, darker = sorted(map(luminance, (chosen[name], chosen[ground])))[::-1]
                contrast = (brighter + 0.05) / (darker + 0.05)
                # Words need more than lines do.
                assert contrast > (1.9 if name.startswith("--run") else 4.5), (name, ground)


def test_the_evaluations_have_the_numbers_of_the_results(both):
    rows = table(both)
    assert [row["log p(x)"] for row in rows] == [f"{MINUS}20.00 ± 0.70", f"{MINUS}18.00 ± 0.70"]
    assert [row["gain over first"] for row in rows] == [DASH, "+2.00 ± 0.03"]
    assert rows[0]["gap"] == "0.12 ± 0.03"
    assert (rows[0]["lower"], rows[0]["upper"]) == (f"{MINUS}21.12 ± 0.03", f"{MINUS}21.00 ± 0.03")
    assert (rows[0]["examples"], rows[0]["chains × T × L"]) == ("20 test", "2 × 4 × 3")
    assert f"{MINUS}18.00 ± 0.70 nats" in both.one("p", class_="headline").words
    assert "log p(x) of second" in both.one("p", class_="label").words


def test_training_is_described(both):
    rows = {row[""]: row["second"] for row in table(both, "training")}
    assert rows["updates"] == "40"
    assert rows["decoder gradients"] == "4,000"
    assert rows["seconds"] == "20"
    assert rows["held-out bound"] == f"{MINUS}25.00 ± 0.25"
    assert len(plots_of(both, "training")) == 3


def test_equal_evaluations_are_called_the_same(tmp_path, first):
    root = elements(page(first, make_run(tmp_path / "copy", evaluations=[log_p()])))
    assert table(root)[1]["gain over first"] == "the same evaluation"
    assert "0.00 ± 0.00" not in root.words


def test_every_evaluation_is_listed_with_what_it_is_of(tmp_path):
    several = [
        log_p(),
        (log_p(), {"about": ABOUT | {"data": "other.npy", "update": 30}}),
        (log_p(), {"about": ABOUT | {"split": "train"}, "gap": None}),
        (log_p(), {"about": None, "is_complete": False}),
    ]
    rows = table(elements(page(make_run(tmp_path / "run", evaluations=several))))
    unknown, train, other, plain = (row["examples"] for row in rows)
    assert plain == "20 test"
    assert "of other data, other.npy" in other and "of update 30; the run is at 40" in other
    assert train == "20 train" and rows[1]["gap"] == DASH
    assert "does not say of which data and weights" in unknown
    assert "the time was up before all were evaluated" in unknown


@pytest.mark.slow
def test_different_data_are_kept_apart_with_a_remark(first, second, features):
    root = elements(page(first, features, second))
    assert root.one("h1").words == "first, second and features on things and table"
    assert "Log-likelihoods of different data cannot be compared" in root.one("header").words
    assert [row["run"] for row in table(root)] == ["first", "second"]
    (row,) = table(root, "evaluations-2")
    assert row["run"] == "features" and not any("gain" in name for name in row)
    assert "different data" not in elements(page(first, second)).one("header").words


def test_what_is_not_finite_is_a_warning(tmp_path, first):
    values = log_p()
    values[3] = -np.inf
    bad = make_run(tmp_path / "bad", evaluations=[values], metrics=records(bad_from=31))
    bad = bad._replace(weights=weights(scale=np.nan))
    root = elements(page(first, bad))
    assert [p.words for p in root.all("p", class_="warning")] == [
        "bad: training diverged: the bound is not finite from update 31 on.",
        "bad: log p(x) is not finite for 1 of 20 examples.",
    ]
    assert table(root)[1]["log p(x)"] == "not finite"
    assert table(root, "training")[3]["bad"] == "not finite"
    assert "The samples of this model are not finite." in root.one("section", id="samples").words


def test_a_run_of_one_s_own_model_is_shown_with_its_settings(own):
    root = elements(page(own))
    assert len(table(root)) == 1 and len(plots_of(root, "training")) == 3
    samples = root.one("section", id="samples")
    assert "only the program that trained this model can build it" in samples.words
    settings = root.one("section", id="settings")
    assert "open" in settings.one("details").attributes
    assert table(root, "settings") == [
        {"setting": "method", "value": "ais"},
        {"setting": "num_epochs", "value": "3"},
        {"setting": "data.digest", "value": "o1"},
    ]


def test_a_run_that_was_not_evaluated_is_named_with_its_command(tmp_path):
    bare = make_run(tmp_path / "a run", shape=(6, 4))
    root = elements(page(bare))
    assert (
        root.one("section", id="evaluations").one("code").words == f"aisle evaluate '{bare.path}'"
    )
    assert "No run has been evaluated yet." in root.words
    root = elements(page(make_run(tmp_path / "own")))
    assert "aisle.log_likelihood(model, proposal, x, out=" in root.one("code").words


def test_pictures_are_samples_and_reconstructions(first):
    figures = elements(page(first)).one("section", id="samples").all("figure")
    captions = [figure.one("figcaption").words for figure in figures]
    assert captions == ["Samples", "Test examples, each above its reconstruction"]
    samples, pairs = (pixels(f.one("img").attributes["src"]) for f in figures)
    # Eight samples of 6 x 4 in a row; four examples above their reconstructions.
    assert (samples.shape, pairs.shape) == ((6, 8 * 5 - 1, 2), (2 * 7 - 1, 4 * 5 - 1, 2))
    assert all(f.one("img").attributes["class"] == "ink" for f in figures)


def names_of(section):
    return [b.words for b in section.one("div", class_="small plots").all("b")]


@pytest.mark.slow
def test_examples_that_are_no_pictures_are_drawn_by_feature(features):
    section = elements(page(features)).one("section", id="samples")
    assert not section.all("img") and not section.all("polyline")
    assert names_of(section) == ["feature 1", "feature 2", "feature 3"]
    labels = plots_of(elements(page(features)), "samples")
    assert labels[0] == "Column feature 1 in table and in samples of features."
    assert "in the test data (grey)" in section.words.replace("  ", " ")


@pytest.mark.slow
def test_many_features_without_names_are_summarised(tmp_path):
    run = make_run(tmp_path / "many", config(digest="m"), shape=(13,))
    labels = plots_of(elements(page(run)), "samples")
    assert labels == ["Features in things and in samples of many."]


def test_a_table_is_described_and_drawn_by_column(of_table):
    root = elements(page(of_table))
    assert table(root, "columns") == [
        {"column": "a", "kind": "real", "values": "-1 to 2", "missing": "1 (5%)"},
        {"column": "b", "kind": "count", "values": "0 to 9", "missing": "none"},
        {"column": "c", "kind": "category", "values": "2 levels: no, yes", "missing": "none"},
    ]
    section = root.one("section", id="samples")
    assert names_of(section) == ["a", "b", "c"]
    assert "in all rows of the data (grey)" in section.words
    maps = [label for label in plots_of(root, "samples") if "Correlations" in label]
    assert maps == [
        "Correlations of the columns of rows in the data.",
        "Correlations of the columns of rows in samples of of_table.",
    ]
    rows = [[cell.words for cell in row.children] for row in section.one("tbody").all("tr")]
    # In the data b rises with a, and c does not; samples of all three are one number with a small
    # noise, of which a fiftieth of the variance is.
    assert {row[0]: row[1:] for row in rows}["a, b"] == ["1.00", "0.98"]
    assert rows[0][0] in ("a, c", "b, c")


@pytest.mark.slow
def test_latents_are_coloured_by_their_labels(of_table):
    section = elements(page(of_table)).one("section", id="latents")
    (label,) = plots_of(elements(page(of_table)), "latents")
    assert label == (
        "Encoder's means of held-out examples of of_table in two dimensions, coloured by c."
    )
    key = section.one("ul", class_="key").all("li")
    assert [item.words for item in key] == ["● no", "● yes", "● others or missing"]
    colors = [item.one("span").attributes["style"] for item in key]
    assert colors == ["color: var(--run-0)", "color: var(--run-1)", "color: var(--faint)"]


@pytest.mark.slow
def test_latents_without_labels_have_the_colour_of_the_run(first):
    section = elements(page(first)).one("section", id="latents")
    assert not section.all("ul")
    assert "two dimensions." in plots_of(elements(page(first)), "latents")[0]


@pytest.mark.slow
def test_samples_are_drawn_by_condition(of_table):
    """Column b is the dose plus or minus little: the model moves it by its weight of the dose."""
    dose = np.arange(20) % 2
    values = np.stack([np.linspace(-1, 1, 20), dose - 0.5, np.zeros(20)], axis=1)
    columns = tuple(Column(name, "real") for name in "abc")
    context = Context(condition=np.float64(dose)[:, None])
    condition = Column("dose", "bit", ("low", "high"))
    known = of_table.weights._replace(
        model=LinearGaussian(
            jnp.full((3, 2), 1e-3), jnp.zeros(3), jnp.array(-9.0), jnp.array([[0.0], [3.0], [0.0]])
        ),
        table=Table(values, columns, (), (condition,), context),
        labels=None,
    )
    root = elements(page(of_table._replace(weights=known)))
    assert table(root, "columns")[-1]["kind"] == "bit, given"
    section = root.one("section", id="samples")
    assert "of_table by condition" in [h.words for h in section.all("h3")]
    assert sorted(h.words for h in section.all("h4")) == ["a", "b", "c"]
    grids = section.all("div", class_="small plots")[1:]
    for grid, heading in zip(grids, section.all("h4"), strict=True):
        assert [b.words for b in grid.all("b")] == ["dose: low", "dose: high"]
        if heading.words == "c":
            # Zero in the data, and zero in samples of either dose.
            notes = [f.words for f in grid.all("figcaption")]
            assert all(note.endswith("0.00 (0.00 by chance)") for note in notes)


class Still(eqx.Module):
    """A model of three features whose draws are 1 and whose mean is 0."""

    def log_prior(self, z):
        return 0.0

    def log_likelihood(self, x, z):
        return 0.0

    def sample_prior(self, key):
        return jnp.zeros(2)

    def sample_observation(self, key, z):
        return jnp.ones(3)

    def mean_observation(self, z):
        return jnp.zeros(3)


@pytest.mark.parametrize(("shape", "value"), [((1, 3), 0), ((3,), 1)], ids=str)
def test_pictures_show_means_and_features_are_those_of_draws(shape, value):
    """A mean has no noise, so its features would be too narrow."""
    known = weights(shape)._replace(model=Still())
    samples = _samples(known, jax.random.key(0), 4)
    assert len(samples) == (4 if value == 0 else 4000)
    assert np.all(samples == value)


def test_colours_are_not_inverted(tmp_path):
    run = make_run(tmp_path / "run", shape=(2, 4, 3))
    images = elements(page(run)).all("img")
    assert [image.attributes["class"] for image in images] == ["colour", "colour"]


def test_data_that_are_not_available_are_named(tmp_path, features):
    for run in (make_run(tmp_path / "run", shape=(6, 4)), features):
        lost = run.weights._replace(examples=None, problem="things.npy does not exist.")
        section = elements(page(run._replace(weights=lost))).one("section", id="samples")
        assert "things.npy does not exist." in section.words
        assert not section.all("svg")


HOSTILE = '<img src=x onerror="alert(1)">&\'"$_{^\\'


def test_hostile_names_and_settings_are_only_text(tmp_path):
    settings = config(data=HOSTILE)
    settings["train"] |= {"<b>": HOSTILE}
    evaluation = (log_p(), {"about": ABOUT | {"data": HOSTILE + "2"}})
    paths = [tmp_path / f"{HOSTILE}{i}".replace("/", "") for i in range(2)]
    shapes = [(6, 4), None]
    runs = [
        make_run(path, settings, evaluations=[log_p(), evaluation], shape=shape)
        for path, shape in zip(paths, shapes, strict=True)
    ]
    text = page(*(run._replace(commands=(HOSTILE,)) for run in runs))
    root = elements(text)
    assert HOSTILE in root.one("h1").words
    assert not root.all("script") and len(root.all("b")) == 1
    assert all(image.attributes["src"].startswith("data:") for image in root.all("img"))
    assert html.escape("<img src=x") in text and "<img src=x" not in text
    assert HOSTILE in [pre.text for pre in root.all("pre")]


def test_hostile_names_of_columns_and_levels_are_only_text(of_table):
    columns = tuple(Column(f"{HOSTILE}{i}", "category", (HOSTILE, "b", "c")) for i in range(3))
    known = of_table.weights._replace(
        table=Table(np.arange(60.0).reshape(20, 3) % 3, columns),
        labels=Labels(HOSTILE, (HOSTILE, "b"), np.arange(20) % 2),
    )
    text = page(of_table._replace(weights=known))
    root = elements(text)
    assert html.escape("<img src=x") in text and "<img src=x" not in text
    assert f"{HOSTILE}2" in names_of(root.one("section", id="samples"))
    assert HOSTILE in root.one("section", id="latents").words


def test_many_runs_are_counted_and_told_apart(tmp_path):
    runs = [make_run(tmp_path / f"run{i}") for i in range(8)]
    root = elements(page(*runs))
    assert root.one("h1").words == "8 runs on things"
    swatches = root.one("section", id="evaluations").all("i", class_="swatch")
    assert len({swatch.attributes["style"] for swatch in swatches}) == 8


@pytest.mark.slow
def test_the_seed_decides_what_is_drawn(first):
    one, same, other = (render([first], num_examples=8, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other.replace("seed 2", "seed 1")


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    run = make_run(tmp_path / "run")
    save_page(path, [run._replace(commands=("caf\udce9",))])
    before = path.read_bytes()
    # What is not text has no place in a file of text.
    assert b"caf?" in before

    def full(self, content):
        with self.open("wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(InputError, match=r"cannot write .* \(No space left on device\)"):
        save_page(path, [run])
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "run"]
