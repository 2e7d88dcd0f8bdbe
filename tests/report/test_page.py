"""A page about runs, from their folders to its elements; the runs cost nothing to make."""

import base64
import html
import io
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from aisle.data import Dataset, Split
from aisle.errors import InputError
from aisle.evaluation import LogLikelihood, Round
from aisle.evaluation.results import Bidirectional, Importance, save
from aisle.learning import run_directory
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.report.page import panels, plots
from aisle.report.page.reading import read_evaluation, read_folder
from aisle.report.page.subjects import Origin, Subject, short_names
from aisle.report.page.writing import _resource as resource, render, save_page
from aisle.report.pictures import Panel
from aisle.statistics import Mean, summarise

NUM_EXAMPLES, NUM_UPDATES = 20, 40
MINUS = "\N{MINUS SIGN}"
VOID = {"meta", "link", "img", "br", "hr", "wbr", "rect", "line", "circle", "path", "use"}
VOID |= {"polyline"}


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, dict(attributes), parent
        self.children, self.text = [], ""

    def all(self, tag, **wanted):
        """Return the elements inside that have a tag and certain attributes."""
        found = []
        for child in self.children:
            fits = all(child.attributes.get(k.strip("_")) == v for k, v in wanted.items())
            found += [child] if child.tag == tag and fits else []
            found += child.all(tag, **wanted)
        return found

    def one(self, tag, **wanted):
        (found,) = self.all(tag, **wanted)
        return found

    @property
    def words(self):
        return " ".join(self.text.split())


class Reader(HTMLParser):
    """Read a page into elements, and refuse one whose tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.root = self.here = Element("root", {}, None)
        self.feed(text)
        self.close()
        assert self.here is self.root, f"{self.here.tag} is not closed"

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes), f"an attribute of {tag} stands twice"
        element = Element(tag, attributes, self.here)
        self.here.children.append(element)
        if tag not in VOID:
            self.here = element

    def handle_startendtag(self, tag, attributes):
        self.here.children.append(Element(tag, attributes, self.here))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert tag == self.here.tag, f"{tag} ends {self.here.tag}"
        self.here = self.here.parent

    def handle_data(self, data):
        element = self.here
        while element is not None:
            element.text += data
            element = element.parent


def elements(text):
    return Reader(text).root


def everything(element):
    for child in element.children:
        yield child
        yield from everything(child)


def config(method="ais", **changes):
    chains = {"num_temperatures": 3, "num_leapfrog": 2, "kernel": "tuned"}
    settings = {"method": method, "num_samples": 2, **chains} | changes
    return {"data": "things", "num_epochs": 4, "method": settings, "model": {"init_from": None}}


def records(has_chains=True, has_held_out=True):
    for update in range(1, NUM_UPDATES + 1):
        costs = {"update": update, "decoder_gradients": 100 * update, "seconds": 0.5 * update}
        yield {
            **costs,
            "bound": -30 + update / 10,
            "effective_sample_size": 1.5,
            "acceptance": [0.7, 0.8, 0.9] if has_chains else [],
            "step_size": [0.1 * update, 0.2, 0.3] if has_chains else [],
        }
        if has_held_out and update % 10 == 0:
            yield {
                **costs,
                "held_out_bound": -29 + update / 10,
                "held_out_standard_error": 0.25,
                "held_out_examples": 100,
            }


def result(shift=0.0, *, bdmc=True, importance=False, seed=0, digest="same", **changes):
    """Return what an evaluation of twenty examples may have found, the rounds at T = 2 and 4."""
    rng = np.random.default_rng(seed)
    log_p = -20 + shift + np.linspace(-5, 5, NUM_EXAMPLES) + 0.01 * rng.normal(size=NUM_EXAMPLES)
    gap = Bidirectional(Mean(-21.125, 0.5, 7), Mean(-21.0, 0.5, 7), Mean(0.125, 0.0625, 7), 0.75)
    estimate = summarise(log_p)
    rounds = [
        Round(2, Mean(-25.0, 1.0, NUM_EXAMPLES), gap if bdmc else None, None, 10, 1.0),
        Round(4, estimate, gap if bdmc else None, 5.0, 20, 2.0),
    ]
    bound = Importance(
        500, Mean(-22.25, 1.5, 20), Mean(-27.75, 1.25, 20), Mean(2.25, 0.5, 20), 2, 2
    )
    found = LogLikelihood(
        indices=np.arange(NUM_EXAMPLES),
        log_p=log_p,
        effective_sample_size=np.full(NUM_EXAMPLES, 1.5),
        num_nonfinite=np.zeros(NUM_EXAMPLES, int),
        acceptance=np.array([0.75, 0.8125, 0.875]),
        betas=np.linspace(0, 1, 5),
        step_sizes=np.array([0.5, 0.4, 0.3, 0.2]),
        num_chains=2,
        num_leapfrog=3,
        rounds=rounds,
        importance=bound if importance else None,
        is_tolerance_reached=None,
        is_complete=True,
        settings={"examples": digest, "tolerance": 0.01},
    )
    return found._replace(**changes)


def sharp(x):
    return DiagonalNormal(x[:2], jnp.full(2, 1e-6))


def make_run(
    path, train=None, *, evaluations=(), metrics=None, shape=(6, 4), data="things", **changes
):
    """Write the folder of a run and open it; the last evaluation is the newest."""
    number = int(np.prod(shape))
    facts = {"name": data, "source": "nowhere", "shape": list(shape)}
    run_directory.create(path, {"train": train or config(), "data": facts})
    with run_directory.MetricsWriter(path) as writer:
        writer.write(records() if metrics is None else metrics)
    origins = {}
    for i, found in enumerate(evaluations):
        folder = path / "evaluations" / f"test{NUM_EXAMPLES}-{i}"
        save(found, folder)
        stamp = 10**18 + i * 10**10
        os.utime(folder / "result.json", ns=(stamp, stamp))
        origins[folder.name] = Origin("test", NUM_UPDATES, f"aisle evaluate {path.name} -C {i}")
    values = np.random.default_rng(1).uniform(size=(NUM_EXAMPLES, *shape)).astype(np.float32)
    subject = Subject(
        read_folder(path, NUM_UPDATES),
        NUM_UPDATES,
        shape,
        LinearGaussian(jnp.full((number, 2), 0.25), jnp.full(number, 0.5), jnp.array(-3.0)),
        sharp,
        Dataset(data, Split(values), Split(values), shape, "nowhere"),
        "",
        "none",
        f"aisle train {path.name}",
        f"aisle evaluate {path.name}",
        origins,
    )
    return subject._replace(**changes)


def page(*subjects, num_examples=8):
    return render(subjects, num_examples=num_examples, seed=0)


@pytest.fixture(scope="module")
def home(tmp_path_factory, quick_compilation):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def first(home):
    return make_run(home / "first", evaluations=[result(importance=True)])


@pytest.fixture(scope="module")
def second(home):
    return make_run(home / "second", evaluations=[result(2.0, seed=1)])


@pytest.fixture(scope="module")
def bare(home):
    """A run without chains, without metrics and without evaluations, of vectors."""
    return make_run(home / "bare", config("vae", num_samples=1), metrics=[], shape=(24,))


@pytest.fixture(scope="module")
def one(first):
    """The page of one run that has everything."""
    return elements(page(first))


@pytest.fixture(scope="module")
def both(first, second):
    """The page of two such runs."""
    return elements(page(first, second))


PAGES = {
    "one": ["first"],
    "several": ["first", "second"],
    "bare": ["bare"],
    "mixed": ["bare", "first", "second"],
}


@pytest.fixture(scope="module", params=PAGES.values(), ids=PAGES.keys())
def text(request):
    return page(*map(request.getfixturevalue, request.param))


def test_pages_are_well_formed_and_can_be_read_aloud(text):
    root = elements(text)
    assert root.one("html").attributes["lang"] == "en"
    assert len(root.all("h1")) == 1
    assert root.one("title").words
    for image in root.all("img"):
        assert image.attributes["alt"].strip()
    for drawing in root.all("svg"):
        is_hidden = drawing.attributes.get("aria-hidden") == "true"
        assert is_hidden or (
            drawing.attributes["role"] == "img" and drawing.attributes["aria-label"].strip()
        )
    for table in root.all("table"):
        assert table.one("caption").words
        assert table.all("th", scope="col") and table.all("th", scope="row")
        assert all("scope" in th.attributes for th in table.all("th"))
        widths = [
            sum(int(cell.attributes.get("colspan", 1)) for cell in row.children)
            for row in table.all("tr")
        ]
        assert len(set(widths)) == 1


def test_names_on_a_page_are_unique_and_links_lead_somewhere(text):
    root = elements(text)
    names = [e.attributes["id"] for e in everything(root) if "id" in e.attributes]
    assert len(names) == len(set(names))
    links = [a.attributes["href"].removeprefix("#") for a in root.all("a")]
    links += [e.attributes["href"].removeprefix("#") for e in root.all("use")]
    labels = [e.attributes.get("aria-labelledby") for e in everything(root)]
    links += re.findall(r"url\(#([^)]*)\)", text)
    assert {*links, *filter(None, labels)} <= set(names)


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
    (policy,) = (m for m in root.all("meta") if "http-equiv" in m.attributes)
    assert policy.attributes["http-equiv"] == "Content-Security-Policy"
    assert policy.attributes["content"].startswith("default-src 'none'; img-src data:; style-src")


def test_drawings_take_their_colours_from_the_page(text):
    root = elements(text)
    style = root.one("style").text
    known = set(re.findall(r"(--[a-z0-9-]+):", style))
    body = text[text.index("<body>") :]
    assert not re.findall(r"(?:fill|stroke|color)[:=]\s*\"?#", body)
    assert "font-family" not in body
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", body + style)) <= known


def test_a_small_page(text):
    assert len(text) < 700_000


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return np.dot(linear, [0.2126, 0.7152, 0.0722])


def test_text_has_contrast_by_day_and_by_night():
    style = resource("page.css")
    day, night = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    colors = dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6});", day))
    for changes in ({}, dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6});", night))):
        chosen = colors | changes
        for name, value in chosen.items():
            if name in ("--paper", "--raised", "--line"):
                continue
            for ground in ("--paper", "--raised"):
                light, dark = sorted(map(luminance, (value, chosen[ground])))[::-1]
                contrast = (light + 0.05) / (dark + 0.05)
                # Words need more than lines do; lines of a run are named and marked besides.
                assert contrast > (1.9 if name.startswith("--run") else 4.5), (name, ground)


def cells(root, section):
    """Return a table's rows, as the text of their cells by heading."""
    table = root.one("section", id=section).all("table")[0]
    headings = [th.words for th in table.all("thead")[0].all("tr")[-1].children]
    return [
        dict(zip(headings, [cell.words for cell in row.children], strict=True))
        for row in table.one("tbody").all("tr")
    ]


def shown(mean, digits=2, sign=""):
    text = f"{mean['mean']:{sign}.{digits}f}"
    error = f"{mean['standard_error']:.{digits}f}"
    return f"{text} ± {error}".replace("-", MINUS)


def stored(subject):
    return json.loads((subject.folder.evaluations[0].path / "result.json").read_text())


def read_log_p(subject):
    with np.load(subject.folder.evaluations[0].path / "examples.npz") as arrays:
        return arrays["log_p"]


def test_the_comparison_has_the_figures_of_the_results(first, second, both):
    rows = cells(both, "comparison")
    for row, subject in zip(rows, (first, second), strict=True):
        found = stored(subject)
        assert row["log p(x)"] == shown(found["log_likelihood"])
        gap = {"mean": found["bdmc"]["gap"], "standard_error": found["bdmc"]["gap_standard_error"]}
        assert row["gap"] == shown(gap)
        values = {float(data.attributes["value"]) for data in both.all("data")}
        assert {found["log_likelihood"]["mean"], found["bdmc"]["lower"]} <= values
    importance = stored(first)["importance"]
    assert rows[0]["importance-weighted bound"] == f"{shown(importance['bound'])}K = 500"
    assert rows[0]["ELBO"] == shown(importance["elbo"])
    assert rows[1]["ELBO"] == "\N{EN DASH}"
    assert rows[0]["decoder gradients"] == "4,000"
    assert (rows[0]["updates"], rows[0]["seconds"]) == ("40", "20")
    assert [rows[0][name] for name in ("method", "K", "T", "L", "kernel")] == [
        *("ais", "2", "3", "2", "tuned")
    ]


def test_a_difference_is_paired_on_the_same_examples(first, second, both):
    log_p = [
        np.load(s.folder.evaluations[0].path / "examples.npz")["log_p"] for s in (first, second)
    ]
    mean = summarise(log_p[1] - log_p[0])
    assert mean.standard_error < 0.01
    rows = cells(both, "comparison")
    assert rows[1]["to first"] == shown(mean._asdict(), sign="+")
    assert rows[0]["to first"] == "\N{EN DASH}"
    words = both.one("header").words
    assert f"Better than first by {shown(mean._asdict())} nats" in words
    assert "log p(x) of second" in words
    assert len(both.one("table", class_="standings").one("tbody").all("tr")) == 2


OTHERS = {
    "other examples": result(2.0, digest="another"),
    "fewer examples": result(
        indices=np.arange(5),
        log_p=np.linspace(-22, -18, 5),
        effective_sample_size=np.ones(5),
        num_nonfinite=np.zeros(5, int),
        is_complete=False,
    ),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_other_examples_are_not_compared(tmp_path, first, other):
    root = elements(page(first, make_run(tmp_path / "other", evaluations=[other])))
    assert "to first" not in cells(root, "comparison")[1]
    assert "no evaluation of the same examples" in root.one("header").words
    assert not root.all("table", class_="standings")


def test_runs_are_compared_by_the_evaluation_that_they_share(tmp_path, first):
    both = [result(1.0), result(9.0, digest="another")]
    root = elements(page(first, make_run(tmp_path / "other", evaluations=both)))
    estimate = both[0].estimate._asdict()
    assert cells(root, "comparison")[1]["log p(x)"] == shown(estimate)


def test_of_several_evaluations_the_newest_counts(tmp_path):
    several = [result(1.0, digest="a"), result(2.0, digest="b"), result(3.0, digest="b")]
    root = elements(page(make_run(tmp_path / "run", evaluations=several)))
    assert cells(root, "comparison")[0]["log p(x)"] == shown(several[-1].estimate._asdict())


def with_newest(run, origin):
    """Say how the newest evaluation of a run came about."""
    newest = run.folder.evaluations[0].path.name
    return run._replace(origins=run.origins | {newest: origin})


FOREIGN = Origin("test", NUM_UPDATES, "aisle evaluate run --data other.npy", "other.npy")
LESSER = {
    "other data": FOREIGN,
    "earlier weights": Origin("test", 30, "x"),
    "other data and earlier weights": FOREIGN._replace(update=30),
}


@pytest.mark.parametrize("origin", LESSER.values(), ids=LESSER.keys())
def test_own_data_and_present_weights_come_before_the_newest(tmp_path, first, origin):
    both = [result(1.0), result(9.0, digest="another")]
    run = with_newest(make_run(tmp_path / "run", evaluations=both), origin)
    for pages in ([run], [run, first]):
        root = elements(page(*pages))
        assert cells(root, "comparison")[0]["log p(x)"] == shown(both[0].estimate._asdict())
        assert "log p(x) of run, a stochastic" in root.one("p", class_="label").words
        assert "20 test examples of things." in root.one("header").words


def test_own_data_at_earlier_weights_come_before_other_data(tmp_path):
    both = [result(1.0), result(9.0, digest="another")]
    run = with_newest(make_run(tmp_path / "run", evaluations=both), FOREIGN)
    old = Origin("test", 30, "x")
    run = run._replace(origins=run.origins | {run.folder.evaluations[1].path.name: old})
    root = elements(page(run))
    assert cells(root, "comparison")[0]["log p(x)"] == shown(both[0].estimate._asdict())
    assert "the evaluation is of update 30" in root.one("ul", class_="notes").words


def test_certificates_name_other_data_and_earlier_weights(tmp_path):
    run = make_run(tmp_path / "run", evaluations=[result(), result()])
    root = elements(page(with_newest(run, FOREIGN._replace(update=30))))
    evaluated = [row["evaluated"] for row in cells(root, "certificates")]
    assert evaluated == 2 * ["test, 20of other data, other.npy, at update 30"] + 2 * ["test, 20"]
    assert FOREIGN.command in commands(root.one("section", id="settings"))


def test_an_evaluation_of_nothing_but_other_data_is_named_so(tmp_path):
    run = with_newest(make_run(tmp_path / "run", evaluations=[result()]), FOREIGN)
    root = elements(page(run))
    header = root.one("header").words
    assert "log p(x) of run on other data, other.npy, a stochastic lower bound" in header
    assert "20 test examples of other.npy." in header
    of_other = "of other data, other.npy"
    assert cells(root, "comparison")[0]["log p(x)"].endswith(of_other)
    comparison = root.one("section", id="comparison")
    assert "run has no evaluation yet but of other data." in comparison.words
    assert "aisle evaluate run" in commands(comparison)
    assert cells(root, "examples")[0]["run"] == f"run{of_other}"
    assert root.one("section", id="chains").all("ul", class_="key")[1].words == f"run{of_other}"
    examples = root.one("section", id="examples")
    assert not examples.all("img")
    assert "The evaluation is of other data, other.npy, which are not shown here." in examples.words


def test_the_headline_is_of_own_data_if_any_run_has_that(tmp_path, first):
    others = [
        with_newest(make_run(tmp_path / n, evaluations=[result(9.0, digest="x")]), FOREIGN)
        for n in ("a", "b")
    ]
    root = elements(page(*others, first))
    assert "log p(x) of first, a stochastic" in root.one("p", class_="label").words
    # Densities of different data have nothing to do with another.
    assert len(plots_of(root, "examples")) == 2


def test_log_p_stands_beside_the_name(both):
    assert list(cells(both, "comparison")[0])[:2] == ["run", "log p(x)"]


def test_a_gain_is_explained(both):
    words = both.one("table", class_="standings").one("caption").words
    assert words == (
        "Gain over first in nats, ± one standard error. The lines reach two standard errors to "
        "each side."
    )


LEADS = [(0.0, 0.05, "Level with"), (0.0, 0.5, "Better than"), (1.0, 0.5, "Level with")]


@pytest.mark.parametrize(("gap", "lead", "words"), LEADS)
def test_a_lead_must_exceed_the_gap(tmp_path, gap, lead, words):
    """Bounds that may be too low by a nat are level if they differ by half of one."""
    zero = np.zeros(NUM_EXAMPLES)
    noise = np.resize([-0.5, 0.5], NUM_EXAMPLES)
    bdmc = Bidirectional(Mean(-21.0, 1.0, 7), Mean(-20.0, 1.0, 7), Mean(gap, 0.001, 7), gap)
    runs = []
    for name, log_p in (("low", zero - 20), ("high", zero - 20 + lead + noise)):
        rounds = [Round(2, summarise(log_p), bdmc, None, 1, 1.0)]
        found = result(log_p=log_p, rounds=rounds)
        runs.append(make_run(tmp_path / name, evaluations=[found]))
    said = elements(page(*runs)).one("p", class_="sentences").words
    assert f"{words} low" in said
    assert ("Better" in said) != ("Level" in said)


def test_examples_without_a_likelihood(tmp_path, first):
    log_p = result().log_p.copy()
    log_p[3] = -np.inf
    rounds = [result().rounds[-1]._replace(estimate=summarise(log_p))]
    other = make_run(tmp_path / "other", evaluations=[result(log_p=log_p, rounds=rounds)])
    root = elements(page(first, other))
    assert cells(root, "comparison")[1]["log p(x)"] == "not finite"
    assert "other: 1 example without a finite log p(x)." in root.one("ul", class_="notes").words
    assert "log p(x) of first" in root.one("header").words
    assert "other by" not in root.one("header").words
    assert "not finite" in root.one("section", id="examples").words


def test_what_a_reader_must_know_is_said(tmp_path):
    found = result(is_complete=False, is_tolerance_reached=False)
    run = make_run(tmp_path / "run", evaluations=[found])
    notes = elements(page(run)).one("ul", class_="notes").words
    assert "run: the time was up before all examples were done." in notes
    assert "run: the tolerance of 0.01 nats was not reached" in notes
    folder = run.folder.evaluations[0].path.name
    old = run._replace(origins={folder: Origin("test", 30, "aisle evaluate")})
    notes = elements(page(old)).one("ul", class_="notes").words
    assert "the evaluation is of update 30, the run is at 40; evaluate again." in notes
    unknown = elements(page(run._replace(origins={})))
    assert "does not tell which weights" in unknown.one("ul", class_="notes").words
    assert not unknown.one("section", id="examples").all("img")
    assert "By number, with log p(x): 0 (" in unknown.one("section", id="examples").words


def test_a_run_that_starts_from_another_says_so(tmp_path):
    train = config() | {"model": {"init_from": "/somewhere/cheap"}}
    root = elements(page(make_run(tmp_path / "run", train)))
    assert (
        "starts from cheap, whose costs are not counted"
        in root.one("section", id="comparison").words
    )


def test_an_evaluation_of_training_examples_is_no_test(tmp_path):
    run = make_run(tmp_path / "run", evaluations=[result()])
    folder = run.folder.evaluations[0].path.name
    root = elements(page(run._replace(origins={folder: Origin("train", NUM_UPDATES, "x")})))
    assert cells(root, "comparison")[0]["log p(x)"] == "not measured"
    assert "no evaluation of test examples yet" in root.one("section", id="comparison").words
    # Its certificate is one all the same.
    assert len(cells(root, "certificates")) == 2


def commands(element):
    return [code.text for code in element.all("code")]


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


def plots_of(root, section):
    return [
        p.attributes["aria-label"]
        for p in root.one("section", id=section).all("svg", class_="plot")
    ]


def test_curves_are_drawn_against_each_cost(both):
    labels = plots_of(both, "learning")
    assert len(labels) == 3
    for label, cost in zip(labels, ("updates", "decoder gradients", "seconds"), strict=True):
        assert f"against {cost}" in label
        assert f"first {MINUS}25.00 nats, second {MINUS}25.00 nats" in label


def test_runs_on_different_data_do_not_share_a_plot(tmp_path, first):
    other = make_run(tmp_path / "other", data="else", evaluations=[result(1.0, digest="x")])
    root = elements(page(first, other))
    assert len(plots_of(root, "learning")) == 6
    assert len(plots_of(root, "examples")) == 2
    assert root.one("h1").words == "first and other on things and else"


def test_chains_are_described_by_the_last_updates(one):
    labels = plots_of(one, "chains")
    assert "Acceptance by transition" in labels[0] and "first 0.70 to 0.90" in labels[0]
    # Of the last four of 40 updates, 0.1 times their mean number.
    assert "first 0.20 to 3.85" in labels[1]
    assert "at the end: first 0.75" in labels[2]
    assert "first 0.75 to 0.88" in labels[3]
    assert "first 0.20 to 0.50" in labels[4]


def test_without_chains_the_weights_are_still_drawn(tmp_path):
    run = make_run(tmp_path / "run", config("dreg"), metrics=records(has_chains=False))
    chains = elements(page(run)).one("section", id="chains")
    assert "No run has chains" in chains.words
    assert len(chains.all("svg", class_="plot")) == 1


@pytest.mark.parametrize("method", ["vae", "mh-hmc"])
def test_equal_weights_have_no_effective_sample_size(tmp_path, first, method):
    has_chains = method == "mh-hmc"
    run = make_run(tmp_path / "run", config(method), metrics=records(has_chains=has_chains))
    alone = elements(page(run))
    assert not [label for label in plots_of(alone, "chains") if "Effective" in label]
    words = alone.one("section", id="chains").words
    assert "An effective sample size needs iwae, dreg or ais" in words
    assert "samples of an example count" not in words
    root = elements(page(run, first))
    (label,) = (label for label in plots_of(root, "chains") if "Effective" in label)
    assert label.endswith("at the end: first 0.75.")
    assert "samples of an example count" in root.one("section", id="chains").words


def test_a_warm_up_does_not_hide_the_chains(tmp_path):
    early = [r | {"acceptance": [], "step_size": []} if r["update"] < 30 else r for r in records()]
    chains = make_run(tmp_path / "run", metrics=early).folder.history.chains
    np.testing.assert_allclose(chains.acceptance, [0.7, 0.8, 0.9])


def test_certificates_of_all_rounds_are_drawn(one):
    rows = cells(one, "certificates")
    assert [row["chains × T × L"] for row in rows] == ["2 × 2 × 3", "2 × 4 × 3"]
    assert rows[0]["lower"] == f"{MINUS}21.12 ± 0.50"
    assert rows[0]["upper"] == f"{MINUS}21.00 ± 0.50"
    assert rows[0]["gap"] == "0.125 ± 0.062"
    assert rows[0]["largest"] == "0.750"
    strips = one.one("section", id="certificates").all("svg", class_="strip")
    assert len(strips) == 2
    # From 0 to 0.25, twice the standard error above the gap: 5 to 195 of 200 units.
    assert strips[0].one("circle").attributes["cx"] == "100.0"
    assert strips[0].one("line", class_="axis").attributes["x1"] == "5.0"


def test_a_gap_below_zero_is_explained(tmp_path):
    gap = Bidirectional(Mean(-21.0, 0.5, 7), Mean(-21.125, 0.5, 7), Mean(-0.125, 0.25, 7), 0.5)
    rounds = [result().rounds[-1]._replace(bdmc=gap)]
    root = elements(page(make_run(tmp_path / "run", evaluations=[result(rounds=rounds)])))
    assert cells(root, "certificates")[0]["gap"] == f"{MINUS}0.125 ± 0.250"
    assert "A gap a little below zero is noise" in root.one("section", id="certificates").words


def test_strips_stay_inside_their_edges():
    scale = plots.strip_scale([0.5, -0.25], [0.25, 0.125])
    assert scale == (-0.5, 1.0)
    assert plots.strip_scale([0.001], [0.0001]) == (0.0, 0.1)
    drawn = elements(plots.strip(1, -0.25, 0.125, scale, "label"))
    places = [float(drawn.one("line", class_="whisker").attributes[n]) for n in ("x1", "x2")]
    assert places[0] == 5.0 and places[1] == pytest.approx(5 + 190 / 3, abs=0.05)


def pixels(image):
    content = image.attributes["src"].removeprefix("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        assert (picture.format, picture.mode) == ("PNG", "LA")
        assert picture.size == tuple(int(image.attributes[n]) for n in ("width", "height"))
        return np.asarray(picture)[..., 1] / 255


def test_the_worst_examples_are_shown_with_their_likelihoods(first, one):
    worst = one.one("div", class_="worst").all("figure")
    log_p = read_log_p(first)
    order = np.argsort(log_p)[:8]
    for figure, index in zip(worst, order, strict=True):
        caption = f"{log_p[index]:.1f}".replace("-", MINUS)
        assert figure.one("figcaption").words == f"{caption}no. {index}"
        image = figure.one("img")
        assert f"Test example {index}, log p(x) = {caption} nats" in image.attributes["alt"]
        picture = pixels(image)
        factor = len(picture) // 6
        example = first.dataset.test.take(np.array([index]))[0].reshape(6, 4)
        expected = 0.06 + 0.94 * np.kron(example, np.ones((factor, factor)))
        np.testing.assert_allclose(picture, expected, atol=0.003)


def test_pictures_of_a_run(one):
    gallery = one.one("div", class_="gallery")
    captions = [figure.one("figcaption").words for figure in gallery.all("figure")]
    assert captions == ["Samples", "Reconstructions", "Interpolations"]
    samples, pairs, ways = (pixels(image) for image in gallery.all("img"))
    # Eight samples in a row; four examples above their reconstructions; one way in eight steps.
    assert samples.shape == ways.shape
    assert pairs.shape[0] > 1.9 * samples.shape[0]
    assert pairs.shape[1] < samples.shape[1]


def test_vectors_are_drawn_as_lines(bare):
    root = elements(page(bare))
    assert not root.all("img")
    drawings = root.one("div", class_="gallery").all("svg", class_="lines")
    assert [len(one.all("polyline")) for one in drawings] == [8, 8, 8]
    points = drawings[0].all("polyline")[0].attributes["points"].split()
    assert len(points) == 24


def test_lines_fill_their_place():
    drawing = elements(panels.draw(Panel("", np.array([[0.0, 2.0], [1.0, 1.0]])), (2,), "label"))
    lines = [e.attributes["points"] for e in drawing.all("polyline")]
    assert lines == ["6.0,70.0 94.0,6.0", "106.0,38.0 194.0,38.0"]


@pytest.mark.parametrize("number", [1, 5000])
def test_short_and_long_vectors_are_lines(number):
    examples = np.random.default_rng(0).normal(size=(3, number))
    drawing = elements(panels.draw(Panel("", examples), (number,), "label"))
    lengths = [len(e.attributes["points"].split()) for e in drawing.all("polyline")]
    assert len(lengths) == 3
    assert set(lengths) == ({2} if number == 1 else {120})


@pytest.mark.parametrize("shape", [(500, 300), (8, 8), (1, 900), (28, 28)], ids=str)
def test_pictures_of_any_size_become_small(shape):
    examples = np.random.default_rng(0).uniform(size=(3, *shape))
    panel = Panel("", examples.reshape(3, -1), columns=2)
    picture = pixels(elements(panels.draw(panel, shape, "label")).one("img"))
    assert 56 <= max(picture.shape) <= 300
    # Three pictures in rows of two: nothing stands in the last place.
    assert picture[-1, -1] == 0
    assert picture[0, 0] > 0.05
    mean = picture[picture > 0].mean()
    assert abs(mean - (0.06 + 0.94 * 0.5)) < 0.05


def test_values_beyond_0_and_1_are_scaled_to_their_range():
    examples = np.array([[-2.0, 0.0, 2.0, 6.0]])
    picture = pixels(elements(panels.draw(Panel("", examples, 1), (2, 2), "label")).one("img"))
    corners = picture[:: len(picture) - 1, :: len(picture) - 1]
    np.testing.assert_allclose(corners, 0.06 + 0.94 * np.array([[0, 0.25], [0.5, 1]]), atol=0.003)


def test_pictures_with_three_channels_are_in_colour():
    """Two pictures of one row: red and green beside half blue and black; values up to 2."""
    values = [[2, 0, 0, 0, 2, 0], [0, 0, 1, 0, 0, 0]]
    image = elements(panels.draw(Panel("", np.array(values, float), 3), (1, 2, 3), "label"))
    image = image.one("img")
    assert image.attributes["class"] == "pictures"
    content = image.attributes["src"].removeprefix("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        assert picture.mode == "RGBA"
        row = np.asarray(picture)[0].tolist()
    runs = [color for i, color in enumerate(row) if i == 0 or color != row[i - 1]]
    red, green, blue = [255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 128, 255]
    nothing = [0, 0, 0, 0]
    assert runs == [red, green, nothing, blue, [0, 0, 0, 255], nothing]


def test_one_channel_is_ink():
    examples = np.random.default_rng(0).uniform(size=(3, 24))
    with_channel, without = (
        panels.draw(Panel("", examples), shape, "label") for shape in ((6, 4, 1), (6, 4))
    )
    assert with_channel == without
    assert 'class="pictures ink"' in with_channel
    # By night only ink is turned into light: a colour would become another one.
    assert re.findall(r"(\S+) \{ filter: invert", resource("page.css")) == ["img.ink"]


@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 2, 2, 3)], ids=str)
def test_other_shapes_are_lines(shape):
    drawing = panels.draw(Panel("", np.zeros((2, 24))), shape, "label")
    assert drawing.startswith('<svg class="lines"')


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


def test_the_seed_decides_what_is_drawn(bare):
    one, same, other = (render([bare], num_examples=8, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other.replace("seed 2", "seed 1")


def test_many_runs_are_counted_and_told_apart(home):
    runs = [make_run(home / f"many{i}", config("vae"), metrics=[]) for i in range(8)]
    root = elements(page(*runs))
    assert root.one("h1").words == "8 runs on things"
    table = root.one("section", id="comparison").one("tbody")
    lines = [s.one("line").attributes for s in table.all("svg", class_="swatch")]
    assert len({(line["stroke"], line["stroke-dasharray"]) for line in lines}) == 8


def test_names_are_short_where_they_can_be(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    paths = [Path("a/x"), Path("b/y"), Path(), Path("b/x")]
    assert short_names(paths) == ["a/x", "y", "here", "b/x"]


def test_curves_are_thinned_to_their_means():
    x = np.arange(10_000.0)
    for is_log in (False, True):
        thin_x, thin_y = plots.thinned(x + 1, 3 * x + 2, is_log=is_log)
        assert 20 < len(thin_x) <= 100
        np.testing.assert_allclose(thin_y, 3 * thin_x - 1)
        # The last stretch is as long as the others: it is not one noisy point.
        assert thin_x[-1] < 9_999
    few = plots.thinned(np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, np.nan]))
    np.testing.assert_array_equal(few, [[1.0], [1.0]])


def test_an_evaluation_is_read_as_it_was_saved(tmp_path):
    wanted = result(importance=True)
    save(wanted, tmp_path / "a")
    found = read_evaluation(tmp_path / "a").found
    for name, value in wanted._asdict().items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(found, name), value)
        else:
            assert getattr(found, name) == value


def test_figures_that_were_not_finite_are_not_numbers(tmp_path):
    rounds = [result().rounds[0]._replace(estimate=Mean(-np.inf, np.nan, 20), bdmc=None)]
    save(result(rounds=rounds), tmp_path / "a")
    estimate = read_evaluation(tmp_path / "a").found.estimate
    assert np.isnan(estimate.mean) and np.isnan(estimate.standard_error)


DAMAGES = {
    "no JSON": ("result.json", b"{"),
    "another object": ("result.json", b"[1]"),
    "another version": ("result.json", b'{"log_likelihood": 1}'),
    "no arrays": ("examples.npz", b"PK"),
}


@pytest.mark.parametrize(("name", "content"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_evaluation_is_told_in_one_line(tmp_path, name, content):
    save(result(), tmp_path / "a")
    (tmp_path / "a" / name).write_bytes(content)
    with pytest.raises(InputError, match="evaluate again, or remove it") as caught:
        read_evaluation(tmp_path / "a")
    assert "\n" not in str(caught.value)


def test_a_history_ends_where_the_weights_do(tmp_path):
    make_run(tmp_path / "run")
    history = read_folder(tmp_path / "run", 25).history
    assert history.bound.updates.tolist() == list(range(1, 26))
    assert (history.decoder_gradients, history.seconds) == (2500, 12.5)
    assert history.held_out.values.tolist() == [-28, -27]
    assert history.last_held_out == Mean(-27.0, 0.25, 100)


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch, bare):
    path = tmp_path / "report.html"
    path.write_text("before")
    save_page(path, [bare], num_examples=2, seed=0)
    assert path.read_text(encoding="utf-8") == render([bare], num_examples=2, seed=0)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    before = path.read_bytes()

    def full(self, content):
        with self.open("wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(InputError, match=r"cannot write .* \(No space left on device\)"):
        save_page(path, [bare], num_examples=2, seed=0)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_page_knows_where_a_name_is_not_text(tmp_path, bare):
    odd = bare._replace(train_command="caf\udce9")
    save_page(tmp_path / "a.html", [odd], num_examples=2, seed=0)
    assert "caf?" in (tmp_path / "a.html").read_text(encoding="utf-8")
