"""Runs that cost nothing to make, and pages about them taken apart."""

import base64
import io
import json
import os
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
from PIL import Image

from aisle.data import Dataset, Split
from aisle.evaluation import LogLikelihood, Round
from aisle.evaluation.results import Bidirectional, Importance, save
from aisle.learning import run_directory
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.report.page.reading import read_folder
from aisle.report.page.subjects import Origin, Subject
from aisle.report.page.writing import render
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


def commands(element):
    return [code.text for code in element.all("code")]


def plots_of(root, section):
    return [
        p.attributes["aria-label"]
        for p in root.one("section", id=section).all("svg", class_="plot")
    ]


def pixels(image):
    content = image.attributes["src"].removeprefix("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        assert (picture.format, picture.mode) == ("PNG", "LA")
        assert picture.size == tuple(int(image.attributes[n]) for n in ("width", "height"))
        return np.asarray(picture)[..., 1] / 255
