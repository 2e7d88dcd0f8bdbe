"""Folders of runs that cost nothing to make, and pages about them taken apart."""

import base64
import io
import json
import os
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
from PIL import Image

from aisle.models import DiagonalNormal, LinearGaussian
from aisle.report.page import render
from aisle.report.reading import Weights, read_run

NUM_EXAMPLES, NUM_UPDATES = 20, 40
MINUS = "\N{MINUS SIGN}"
VOID = {"meta", "link", "img", "path", "use"}


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
        assert len(dict(attributes)) == len(attributes), f"an attribute of {tag} is there twice"
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


def config(method="ais", data="things", digest="d1", **changes):
    """Return the config.json of a run of `aisle train`, as far as the page looks at it."""
    return {
        "train": {"data": data, "method": {"method": method, "num_samples": 2}},
        "data": {"name": data, "shape": [6, 4], "digests": {"train": digest}},
        "provenance": {"packages": {"jax": "1.2.3"}},
        **changes,
    }


def records(bad_from=None):
    """Return the lines of metrics.jsonl; bounds from an update on may be null, not finite."""
    for update in range(1, NUM_UPDATES + 1):
        is_bad = bad_from is not None and update >= bad_from
        costs = {"update": update, "decoder_gradients": 100 * update, "seconds": 0.5 * update}
        yield {**costs, "bound": None if is_bad else -30 + update / 10}
        if update % 10 == 0:
            bound = {"held_out_bound": None if is_bad else -29 + update / 10}
            yield {**costs, **bound, "held_out_standard_error": 0.25, "held_out_examples": 100}


def mean(value, error, number=NUM_EXAMPLES):
    return {"mean": value, "standard_error": error, "num_examples": number}


def log_p(shift=0.0, noise=0.0):
    """Return values for the examples, whose mean is -20 plus the shift."""
    return -20 + shift + np.linspace(-5, 5, NUM_EXAMPLES) + noise * np.resize([-1, 1], NUM_EXAMPLES)


ABOUT = {"split": "test", "update": NUM_UPDATES, "num_examples": NUM_EXAMPLES, "data": None}


def write_evaluation(folder, values, *, gap=0.125, about=ABOUT, digest="same", **changes):
    """Write an evaluation; its certificate has the gap, or is missing if that is None."""
    folder.mkdir(parents=True)
    np.savez(folder / "examples.npz", index=np.arange(len(values)), log_p=values)
    is_finite = bool(np.isfinite(values).all())
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if is_finite else None
    bounds = {"lower": -21.125, "upper": -21.0, "gap": gap, "num_examples": 7}
    errors = {f"{name}_standard_error": 0.03125 for name in ("lower", "upper", "gap")}
    content = {
        "log_likelihood": mean(float(values.mean()) if is_finite else None, error, len(values)),
        "bdmc": None if gap is None else bounds | errors,
        "importance": None,
        "num_chains": 2,
        "num_temperatures": 4,
        "num_leapfrog": 3,
        "is_complete": True,
        "settings": {"examples": digest, "num_chains": 2, "about": about},
        **changes,
    }
    (folder / "result.json").write_text(json.dumps(content))


def make_run(path, settings=None, *, evaluations=(), metrics=(), shape=None):
    """Write the folder of a run and read it.

    An evaluation is an array of log p(x), or a tuple of one and options; the last is the newest.
    With a shape of examples, the run has weights. Drawings cost time: without metrics and weights
    there are few.
    """
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(settings or config()))
    lines = [json.dumps(record) + "\n" for record in metrics]
    (path / "metrics.jsonl").write_text("".join(lines))
    for i, one in enumerate(evaluations):
        values, options = one if isinstance(one, tuple) else (one, {})
        write_evaluation(path / "evaluations" / str(i), values, **options)
        stamp = 10**18 + i * 10**10
        os.utime(path / "evaluations" / str(i) / "result.json", ns=(stamp, stamp))
    run = read_run(path)._replace(update=NUM_UPDATES)
    if shape is None:
        return run
    return run._replace(weights=weights(shape), commands=(f"aisle train {path}",))


def weights(shape=(6, 4), scale=1.0):
    """Return a model x = scale (z1 + z2) / 4 + 1/2 + small noise, and examples from 0 to 1."""
    number = int(np.prod(shape))
    values = np.random.default_rng(1).uniform(size=(NUM_EXAMPLES, number)).astype(np.float32)
    loadings, offset = jnp.full((number, 2), 0.25 * scale), jnp.full(number, 0.5)
    model = LinearGaussian(loadings, offset, jnp.array(-3.0))
    return Weights(model, _sharp, shape, jnp.asarray(values))


def _sharp(x):
    return DiagonalNormal(x[:2], jnp.full(2, 1e-6))


def page(*runs, num_examples=8):
    return render(runs, num_examples=num_examples, seed=0)


def table(root, section="evaluations"):
    """Return a table's rows, as the text of their cells by heading."""
    found = root.one("section", id=section).all("table")[0]
    headings = [th.words for th in found.one("thead").all("th")]
    rows = [[cell.words for cell in row.children] for row in found.one("tbody").all("tr")]
    return [dict(zip(headings, row, strict=False)) for row in rows]


def plots_of(root, section):
    found = root.one("section", id=section).all("svg", class_="plot")
    return [plot.attributes["aria-label"] for plot in found]


def pixels(url):
    content = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture)
