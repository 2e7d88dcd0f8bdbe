"""The page itself: everything put together, written whole or not at all."""

import importlib.metadata
import importlib.resources
import shlex
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from aisle.files import writing
from aisle.report.page import comparison, curves, plots, sections
from aisle.report.page.comparison import Member, Missing
from aisle.report.page.subjects import Subject
from aisle.report.page.words import counted, joined, number

# Runs that a title names; more of them it counts.
_NAMED = 4


def save_page(path: Path, subjects: Sequence[Subject], *, num_examples: int, seed: int) -> None:
    """Write a page about runs.

    Args:
        path: HTML file to write.
        subjects: the runs; the others are compared with the first.
        num_examples: samples shown of each run; half as many reconstructions.
        seed: of what is drawn from the models.
    """
    text = render(subjects, num_examples=num_examples, seed=seed)
    with writing(path) as part:
        # A name that is not text has no place in UTF-8, but the page has to say something.
        part.write_bytes(text.encode("utf-8", "replace"))


def render(subjects: Sequence[Subject], *, num_examples: int, seed: int) -> str:
    """Return the page as text."""
    group = comparison.members(subjects)
    rows = comparison.rows(group)
    has_importance = any(row.elbo is not None for row in rows)
    has_differences = any(row.difference is not None for row in rows)
    return _template().render(
        style=Markup(_resource("page.css")),
        version=importlib.metadata.version("aisle"),
        seed=seed,
        swatch=plots.swatch,
        title=_title(group),
        headline=comparison.headline(group),
        standings=comparison.standings(group),
        rows=rows,
        has_importance=has_importance,
        has_differences=has_differences,
        num_measured=2 + has_differences + 2 * has_importance,
        notes=comparison.notes(group),
        lacking=comparison.missing(group),
        learning=curves.learning(group),
        learning_gaps=curves.learning_gaps(group),
        galleries=sections.galleries(group, num_examples, seed),
        training_chains=curves.training_chains(group),
        has_weights=bool(curves.weighted_runs(group)),
        chain_gaps=_chain_gaps(group),
        evaluation_chains=curves.evaluation_chains(group),
        distributions=curves.distributions(group),
        quantiles=curves.quantiles(group),
        shares=list(curves.SHARES),
        worst=sections.worst_examples(group),
        num_worst=sections.NUM_WORST,
        sandwiches=sections.sandwiches(group),
        scale=[number(end) for end in sections.gap_scale(group)],
        settings=sections.settings(group),
        no_evaluation=_to_evaluate("No run has an evaluation of test examples yet.", group),
        no_certificate=_to_evaluate("No evaluation has a certificate yet.", group),
    )


def _template() -> jinja2.Template:
    # What is not marked as safe is escaped: names and settings come from anywhere.
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_resource("page.html"))


def _resource(name: str) -> str:
    return importlib.resources.files("aisle.report.page").joinpath(name).read_text("utf-8")


def _title(group: Sequence[Member]) -> str:
    names = [member.name for member in group]
    what = joined(names) if len(names) <= _NAMED else counted(len(names), "run")
    data = list(dict.fromkeys(member.subject.data_name for member in group))
    return f"{what} on {joined(data)}"


def _chain_gaps(group: Sequence[Member]) -> list[Missing]:
    lines = []
    if not curves.moving_runs(group):
        data = shlex.quote(group[0].subject.folder.config["train"]["data"])
        text = "No run has chains, and so none has acceptances and step sizes."
        lines.append(Missing(text, [f"aisle train {data} --method ais"]))
    if not curves.weighted_runs(group):
        text = "An effective sample size needs iwae, dreg or ais, with K of 2 or more."
        lines.append(Missing(text, []))
    return lines


def _to_evaluate(text: str, group: Sequence[Member]) -> Missing:
    return Missing(text, [member.subject.evaluate_command for member in group])
