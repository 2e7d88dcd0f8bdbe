"""Pictures, examples, certificates and settings of runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array
from markupsafe import Markup

from aisle.data import spread
from aisle.evaluation import Round
from aisle.evaluation.results import Bidirectional
from aisle.report.page import panels, plots
from aisle.report.page.comparison import Member
from aisle.report.page.reading import Evaluation
from aisle.report.page.subjects import Origin, Subject
from aisle.report.page.words import exact, joined, number, with_error
from aisle.report.pictures import (
    Panel,
    interpolation_panel,
    reconstruction_panel,
    sample_panel,
)
from aisle.statistics import Mean
from aisle.types import PRNGKey

# Of the worst examples, how many are shown.
NUM_WORST = 8
# Options that also a method without chains has.
_OF_ANY_METHOD = ("method", "num_samples")


class Shown(NamedTuple):
    """A picture with its caption, and perhaps a second line to that."""

    caption: str
    element: Markup
    note: str = ""


class Gallery(NamedTuple):
    """Pictures of one run; if some are missing, why."""

    member: Member
    shown: list[Shown]
    problem: str


class Sandwich(NamedTuple):
    """The bounds of one evaluation at one number of temperatures."""

    member: Member
    examples: str
    note: str
    chains: str
    lower: Markup
    upper: Markup
    gap: Markup
    worst: str
    element: Markup


class Settings(NamedTuple):
    """How a run came about."""

    member: Member
    commands: list[str]
    config: list[tuple[str, str]]
    machine: list[tuple[str, str]]


def galleries(group: Sequence[Member], num_examples: int, seed: int) -> list[Gallery]:
    """Draw samples, reconstructions and what lies between examples, of each run."""
    return [_gallery(member, num_examples, seed) for member in group]


def _gallery(member: Member, num_examples: int, seed: int) -> Gallery:
    subject = member.subject
    key_samples, key_rest = jax.random.split(jax.random.key(seed))
    samples = sample_panel(key_samples, subject.model, num_examples)
    whole = [("Samples", samples, f"{num_examples} samples of {member.name}")]
    xs = _examples(subject, max(1, num_examples // 2))
    if xs is not None:
        whole += _panels_of(key_rest, member, xs)
    shown = [Shown(title, panels.draw(panel, subject.shape, text)) for title, panel, text in whole]
    return Gallery(member, shown, subject.problem)


def _examples(subject: Subject, number: int) -> Array | None:
    """Take held-out examples from all over."""
    if subject.dataset is None:
        return None
    return subject.observations("test", spread(len(subject.dataset.test), number))


def _panels_of(key: PRNGKey, member: Member, xs: Array) -> Iterator[tuple[str, Panel, str]]:
    """Yield what a run makes of examples, with titles and descriptions."""
    key_first, key_second = jax.random.split(key)
    weights, name = (member.subject.model, member.subject.proposal), member.name
    rebuilt = reconstruction_panel(key_first, *weights, xs)
    yield (
        "Reconstructions",
        rebuilt,
        f"{len(xs)} held-out examples, each above its reconstruction by {name}",
    )
    if len(xs) > 1:
        # One row for four examples: as many rows as the other panels have.
        number = 2 * max(1, len(xs) // 4)
        ways = interpolation_panel(key_second, *weights, xs[:: len(xs) // number][:number])
        yield "Interpolations", ways, f"{number // 2} ways between held-out examples, by {name}"


def worst_examples(group: Sequence[Member]) -> list[Gallery]:
    """Show the examples of least log p(x), of each run that was evaluated."""
    return [_worst(m, m.evaluation) for m in group if m.evaluation is not None]


def _worst(member: Member, evaluation: Evaluation) -> Gallery:
    found, origin = evaluation.found, member.subject.origin(evaluation)
    places = np.argsort(found.log_p, kind="stable")[:NUM_WORST]
    indices = found.indices[places].tolist()
    values = [number(float(found.log_p[i]), 1) for i in places]
    xs = None
    if origin is not None and origin.data is None:
        xs = member.subject.observations(origin.split, np.array(indices))
    if xs is None:
        listed = joined([f"{i} ({value})" for i, value in zip(indices, values, strict=True)])
        return Gallery(member, [], f"{_why_unseen(member)} By number, with log p(x): {listed}.")
    shown = [_shown(member, *one) for one in zip(indices, values, np.asarray(xs), strict=True)]
    return Gallery(member, shown, "")


def _why_unseen(member: Member) -> str:
    if member.other_data:
        return f"The evaluation is of other data, {member.other_data}, which are not shown here."
    return member.subject.problem or "It is not known which data the evaluation is of."


def _shown(member: Member, index: int, value: str, x: np.ndarray) -> Shown:
    label = f"Test example {index}, log p(x) = {value} nats under {member.name}"
    element = panels.draw(Panel("", x[None], 1), member.subject.shape, label)
    return Shown(value, element, f"no. {index}")


def sandwiches(group: Sequence[Member]) -> list[Sandwich]:
    """Draw the bounds of each evaluation, at each number of temperatures that it went through."""
    found = [
        (member, evaluation, round_, round_.bdmc)
        for member in group
        for evaluation in member.subject.folder.evaluations
        for round_ in evaluation.found.rounds
        if round_.bdmc is not None
    ]
    scale = gap_scale(group)
    return [_sandwich(*one, scale) for one in found]


def gap_scale(group: Sequence[Member]) -> tuple[float, float]:
    """Return the smallest and the largest gap that the drawings have room for."""
    evaluations = [e for m in group for e in m.subject.folder.evaluations]
    gaps = [r.bdmc.gap for e in evaluations for r in e.found.rounds if r.bdmc is not None]
    finite = [gap for gap in gaps if np.isfinite(gap.mean)]
    return plots.strip_scale([gap.mean for gap in finite], [_error(gap) for gap in finite])


def _error(mean: Mean) -> float:
    return float(np.nan_to_num(mean.standard_error))


def _sandwich(
    member: Member,
    evaluation: Evaluation,
    round_: Round,
    bdmc: Bidirectional,
    scale: tuple[float, float],
) -> Sandwich:
    found, origin = evaluation.found, member.subject.origin(evaluation)
    split = "" if origin is None else f"{origin.split}, "
    gap = bdmc.gap
    label = f"{member.name}, T = {round_.num_temperatures}: gap {with_error(gap, 3)} nats"
    is_finite = np.isfinite(gap.mean)
    return Sandwich(
        member,
        f"{split}{round_.estimate.num_examples:,}",
        _differs(member.subject, origin),
        f"{found.num_chains} × {round_.num_temperatures:,} × {found.num_leapfrog}",
        exact(bdmc.lower),
        exact(bdmc.upper),
        exact(gap, 3),
        number(bdmc.worst_gap, 3),
        plots.strip(member.style, gap.mean, _error(gap), scale, label) if is_finite else Markup(""),
    )


def _differs(subject: Subject, origin: Origin | None) -> str:
    """Say in what an evaluation is not one of the run's own data, or of the weights it has now."""
    if origin is None:
        return ""
    data = [f"of other data, {origin.data}"] if origin.data else []
    weights = [f"at update {origin.update:,}"] if origin.update != subject.update else []
    return ", ".join(data + weights)


def settings(group: Sequence[Member]) -> list[Settings]:
    """Say how each run and its evaluations came about."""
    return [
        Settings(
            member,
            _commands(member),
            [
                *_flat(_used(member.subject)),
                *_flat({"data": member.subject.folder.config["data"]}),
            ],
            _flat(member.subject.folder.config.get("provenance", {})),
        )
        for member in group
    ]


def _used(subject: Subject) -> dict[str, Any]:
    """Return how a run was trained, without the options of chains if it has none."""
    train, method = subject.folder.config["train"], subject.method
    if not subject.has_chains:
        method = {name: value for name, value in method.items() if name in _OF_ANY_METHOD}
    return train | {"method": method}


def _commands(member: Member) -> list[str]:
    subject = member.subject
    origins = (subject.origin(e) for e in reversed(subject.folder.evaluations))
    return [subject.train_command, *(origin.command for origin in origins if origin is not None)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as pairs of a dotted name and a text."""
    pairs = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            pairs.append((f"{prefix}{name}", ", ".join(map(str, value))))
        else:
            pairs.append((f"{prefix}{name}", "not set" if value is None else str(value)))
    return pairs
