"""Write one page about runs that needs nothing but itself."""

import importlib.metadata
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jinja2
import numpy as np

from aisle.data import Table, spread
from aisle.files import write_bytes
from aisle.models.use import simulate
from aisle.report import comparison, drawing, figures
from aisle.report.columns import labels_of
from aisle.report.comparison import Group, Member
from aisle.report.pictures import (
    Panel,
    image_url,
    picture_size,
    reconstruction_panel,
    sample_observations,
)
from aisle.report.reading import Run, Weights
from aisle.report.words import joined, number, with_error
from aisle.types import PRNGKey

# Runs that a title names; more are counted.
_MOST_NAMES = 4
# Samples whose columns are drawn where examples are no pictures.
_NUM_SAMPLES = 4000
# Columns that are listed, and features that an array may have to be drawn one by one.
_MOST_LISTED, _MOST_FEATURES = 40, 12


def save_page(path: Path, runs: Sequence[Run], *, num_examples: int = 32, seed: int = 0) -> None:
    """Write a page about runs.

    Args:
        path: HTML file to write.
        runs: those on the same data are compared with the first of them.
        num_examples: samples shown of each run; half as many reconstructions.
        seed: of what is drawn from the models.
    """
    text = render(runs, num_examples=num_examples, seed=seed)
    # A name that is not text has no place in UTF-8.
    write_bytes(path, text.encode("utf-8", "replace"))


def render(runs: Sequence[Run], *, num_examples: int, seed: int) -> str:
    """Return the page as text."""
    environment = jinja2.Environment(
        # Everything but the drawings is escaped: names and settings come from anywhere.
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("aisle.report", ""),
    )
    environment.filters |= {"mean": with_error, "number": number}
    groups = comparison.compare(runs)
    names = [m.name for group in groups for m in group.members]
    named = joined(names) if len(names) <= _MOST_NAMES else f"{len(names)} runs"
    return environment.get_template("page.html").render(
        title=f"{named} on {joined([group.data for group in groups])}",
        version=importlib.metadata.version("aisle"),
        seed=seed,
        parts=[_part(group, jax.random.key(seed), num_examples) for group in groups],
    )


def _part(group: Group, key: PRNGKey, num_examples: int) -> dict[str, Any]:
    """Return what the page says about the runs on one data set."""
    best, sentences = comparison.result(group)
    samples = {m.style: _samples(m.run.weights, key, num_examples) for m in group.members}
    tables = [m.run.weights.table for m in group.members if m.run.weights]
    table = next((table for table in tables if table is not None), None)
    return {
        "group": group,
        "best": best,
        "sentences": sentences,
        "warnings": [text for m in group.members for text in comparison.warnings(m)],
        "gains": drawing.gains(group),
        "differing": comparison.differing_settings(group),
        "training": drawing.training(group),
        "summary": [] if table is None else _summary(table),
        "num_left_out": 0 if table is None else max(0, len(table.columns) - _MOST_LISTED),
        "num_samples": _NUM_SAMPLES,
        **_features(group, table, samples),
        "conditions": {m.name: _by_condition(m, samples[m.style]) for m in group.members},
        "latents": {m.name: figures.of_latents(m) for m in group.members},
        "pictures": {
            m.name: _pictures(m.run.weights, samples[m.style], key) for m in group.members
        },
        "evaluate": {m.name: _evaluate_command(m.run) for m in group.members},
    }


def _summary(table: Table) -> list[tuple[str, ...]]:
    """Describe the columns, those that models are given after those that they are of."""
    given = [(name, f"{kind}, given", *rest) for name, kind, *rest in table.summary_of_conditions()]
    return table.summary()[:_MOST_LISTED] + given


def _evaluate_command(run: Run) -> str:
    if run.weights is not None and "fit" not in run.config:
        return f"aisle evaluate {shlex.quote(str(run.path))}"
    out = str(run.path / "evaluations" / "test")
    return f"aisle.log_likelihood(model, proposal, x, out={out!r})"


def _samples(weights: Weights | None, key: PRNGKey, num_pictures: int) -> np.ndarray:
    """Draw from a model: E[x|z] to be shown as pictures, or else x itself."""
    if weights is None:
        return np.zeros((0, 0))
    if picture_size(weights.shape) is not None:
        return np.asarray(sample_observations(key, weights.model, num_pictures))
    if weights.examples is None:
        # There is nothing to compare them with, and a conditional model needs the conditions.
        return np.zeros((0, 0))
    context = None if weights.table is None else weights.table.context
    if context is not None:
        context = jax.tree.map(lambda a: jnp.asarray(a)[_rows_of_samples(len(a))], context)
    drawn = simulate(key, weights.model, _NUM_SAMPLES, context)
    return np.asarray(drawn).reshape(_NUM_SAMPLES, -1)


def _rows_of_samples(number: int) -> np.ndarray:
    """Return the row of the data whose context each sample is drawn in, each as often."""
    return np.arange(_NUM_SAMPLES) * number // _NUM_SAMPLES


def _pictures(weights: Weights | None, samples: np.ndarray, key: PRNGKey) -> dict[str, str]:
    """Return pictures by their captions; a caption without a picture says why there is none."""
    if weights is None:
        return {"No samples: only the program that trained this model can build it.": ""}
    if not np.isfinite(samples).all():
        return {"The samples of this model are not finite.": ""}
    shown, size, xs = {}, picture_size(weights.shape), weights.examples
    if size is not None:
        shown["Samples"] = image_url(Panel("", samples), size)
    if size is not None and xs is not None:
        xs = xs[spread(len(xs), max(1, len(samples) // 2))]
        panel = reconstruction_panel(key, weights.model, weights.proposal, xs)
        shown["Test examples, each above its reconstruction"] = image_url(panel, size)
    return shown | ({weights.problem: ""} if weights.problem else {})


def _features(group: Group, table: Table | None, samples: dict[int, np.ndarray]) -> dict[str, Any]:
    """Draw the columns of a table, or the features of an array that is no picture."""
    drawn, data = {}, None
    for m in group.members:
        weights, own = m.run.weights, samples[m.style]
        if weights is None or weights.examples is None or picture_size(weights.shape) is not None:
            continue
        if data is None:
            data = np.asarray(weights.examples).reshape(len(weights.examples), -1)
        if np.isfinite(own).all():
            drawn[m.style] = own
    if data is None:
        return {"columns": None, "moments": ""}
    if table is None and data.shape[1] > _MOST_FEATURES:
        label = f"Features in {group.data} and in samples of {group.names}."
        return {"columns": None, "moments": drawing.moments(data, drawn, label)}
    table = figures.features(data, drawn) if table is None else table
    return {"columns": figures.of_columns(group, table, drawn), "moments": ""}


def _by_condition(member: Member, samples: np.ndarray) -> dict[str, list[figures.Plot]]:
    """Draw columns by the first of the conditions that a model is given."""
    weights = member.run.weights
    table = weights and weights.table
    if table is None or not table.given or not np.isfinite(samples).all():
        return {}
    of_rows = labels_of(*table.given[0])
    rows = _rows_of_samples(len(table.values))
    return figures.by_condition(table, of_rows, samples, of_rows.codes[rows], member)
