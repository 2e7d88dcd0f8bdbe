"""The comparison of runs: on which evaluations it rests, its table and its result in words."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from aisle.evaluation import LogLikelihood, Round
from aisle.report.page import plots
from aisle.report.page.reading import Evaluation
from aisle.report.page.subjects import Subject, short_names
from aisle.report.page.words import counted, exact, joined, number, with_error
from aisle.statistics import Mean, is_ahead, summarise

# Stands where there is nothing to be said.
_NONE = "\N{EN DASH}"


class Member(NamedTuple):
    """A run in the comparison.

    Attributes:
        style: its number, which decides its colour.
        evaluation: the one that it is compared by, or None if it has none of test examples.
        difference: by how much it is better than the first run, on the same examples.
    """

    style: int
    name: str
    subject: Subject
    evaluation: Evaluation | None
    difference: Mean | None

    @property
    def other_data(self) -> str | None:
        """Return what its evaluation is of, if not of its own data."""
        origin = self.evaluation and self.subject.origin(self.evaluation)
        return origin.data if origin else None

    @property
    def evaluated_data(self) -> str:
        """Return what the data of its evaluation are called."""
        return self.other_data or self.subject.data_name


class Missing(NamedTuple):
    """What is not there, and the commands that would make it; an extra is not needed by many."""

    text: str
    commands: list[str]
    is_extra: bool = False


class Row(NamedTuple):
    """A row of the table, as text."""

    member: Member
    note: str
    settings: list[str]
    costs: list[str]
    log_p: Markup | None
    gap: Markup | None
    difference: Markup | None
    importance: Markup | None
    elbo: Markup | None


class Standing(NamedTuple):
    """How a run stands to the first."""

    member: Member
    text: str
    element: Markup


class Headline(NamedTuple):
    """The result: the figure that counts, what it is, and what to know of it."""

    figure: Markup | None
    label: str
    sentences: list[str]


def members(subjects: Sequence[Subject]) -> list[Member]:
    """Choose what each run is compared by, and compare it with the first."""
    names = short_names([subject.folder.path for subject in subjects])
    chosen = _chosen(subjects)
    return [
        Member(i, name, subject, evaluation, _paired(evaluation, chosen[0]) if i else None)
        for i, (name, subject, evaluation) in enumerate(zip(names, subjects, chosen, strict=True))
    ]


def _chosen(subjects: Sequence[Subject]) -> list[Evaluation | None]:
    """Choose the newest evaluation of those test examples that most of the runs share."""
    tests = [subject.test_evaluations for subject in subjects]
    counts = Counter(key for own in tests for key in {_examples(e) for e in own})
    oldest_first = sorted((e for own in tests for e in own), key=lambda e: e.written)
    newest = {_examples(e): e.written for e in oldest_first}
    shared = max(counts, key=lambda key: (counts[key], newest[key]), default=None)
    return [
        next((e for e in own if _examples(e) == shared), own[0] if own else None) for own in tests
    ]


def _examples(evaluation: Evaluation) -> tuple[object, bytes]:
    """Say which examples an evaluation is of: their content, and how many were done."""
    found = evaluation.found
    return found.settings.get("examples"), np.asarray(found.indices).tobytes()


def _paired(evaluation: Evaluation | None, other: Evaluation | None) -> Mean | None:
    if evaluation is None or other is None or _examples(evaluation) != _examples(other):
        return None
    return summarise(evaluation.found.log_p - other.found.log_p)


def headline(group: Sequence[Member]) -> Headline:
    """Say what came out: the best of the runs that can be compared, and what it is worth."""
    measured = [m for m in group if m.evaluation is not None]
    if not measured:
        return _held_out_headline(group)
    rivals = _rivals(measured)
    best = max(rivals, key=_mean)
    found = _found(best)
    first = f"{counted(found.estimate.num_examples, 'test example')} of {best.evaluated_data}."
    sentences = [first, *_ranking(best, rivals), *_certificate(found.rounds[-1])]
    others = [m.name for m in group if m not in rivals]
    if others:
        verb = "has" if len(others) == 1 else "have"
        sentences.append(f"{joined(others)} {verb} no evaluation of the same examples.")
    other = f" on other data, {best.other_data}" if best.other_data else ""
    label = f"log p(x) of {best.name}{other}, a stochastic lower bound"
    return Headline(exact(found.estimate), label, sentences)


def _rivals(measured: Sequence[Member]) -> list[Member]:
    """Return those of the same examples: some run's own data if possible, of as many as can be."""
    keys = [_examples(m.evaluation) for m in measured if m.evaluation is not None]
    pairs = list(zip(measured, keys, strict=True))
    own = {key for m, key in pairs if m.other_data is None}
    counts = Counter(keys)
    shared = max(counts, key=lambda key: (key in own, counts[key]))
    return [m for m, key in pairs if key == shared]


def _mean(member: Member) -> float:
    mean = _found(member).estimate.mean
    return mean if np.isfinite(mean) else -np.inf


def _ranking(best: Member, rivals: Sequence[Member]) -> list[str]:
    """Tell the best run from those that it is level with, by paired differences."""
    if len(rivals) < 2:
        return []
    others = [(m, _paired(best.evaluation, m.evaluation)) for m in rivals if m is not best]
    gains = [(m, gain) for m, gain in others if gain is not None and np.isfinite(gain.mean)]
    behind = [(m, gain) for m, gain in gains if is_ahead(gain, _gap(m))]
    rest = [m for m, gain in gains if (m, gain) not in behind]
    unknown = [m.name for m in rest if _gap(m) is None]
    level = [m.name for m in rest if m.name not in unknown]
    sentences = []
    if behind:
        leads = joined([f"{m.name} by {with_error(gain)}" for m, gain in behind])
        sentences.append(f"Better than {leads} nats, on the same examples.")
    if level:
        sentences.append(
            f"Level with {joined(level)}: the difference is within the gap and two standard errors."
        )
    if unknown:
        sentences.append(f"Ahead of {joined(unknown)}, but by bounds without a certificate.")
    return sentences


def _gap(member: Member) -> Mean | None:
    """Return by how much a run's bound may be too low, if that is known."""
    bdmc = _found(member).bdmc
    return bdmc.gap if bdmc is not None and np.isfinite(bdmc.gap[:2]).all() else None


def _certificate(round_: Round) -> list[str]:
    if round_.bdmc is None:
        return ["Without a certificate: bidirectional Monte Carlo was turned off."]
    return [
        "Certificate: on examples that the model simulates, upper and lower bound are "
        f"{with_error(round_.bdmc.gap)} nats apart."
    ]


def _held_out_headline(group: Sequence[Member]) -> Headline:
    """Fall back on the bound that training logs, which is comparable between methods."""
    bounds = [
        (m, m.subject.folder.history.last_held_out)
        for m in group
        if m.subject.folder.history is not None
    ]
    known = [(m, bound) for m, bound in bounds if bound is not None and np.isfinite(bound.mean)]
    are_alike = len({m.subject.data_name for m in group}) == 1
    if not known or not are_alike:
        return Headline(None, "", ["No run has been evaluated yet."])
    best, bound = max(known, key=lambda pair: pair[1].mean)
    label = f"held-out bound of {best.name}, the one that training logs"
    loose = "No run has been evaluated yet; this bound of log p(x) is a loose one."
    return Headline(exact(bound), label, [loose])


def standings(group: Sequence[Member]) -> list[Standing]:
    """Draw the differences to the first run, if there are any."""
    gains = [(m, m.difference) for m in group if m.difference is not None]
    finite = [(m, gain) for m, gain in gains if np.isfinite([gain.mean, gain.standard_error]).all()]
    if not finite:
        return []
    whole = [(group[0], Mean(0.0, 0.0, 1)), *finite]
    means, errors = [g.mean for _, g in whole], [g.standard_error for _, g in whole]
    scale = plots.strip_scale(means, errors)
    return [_standing(m, gain, scale) for m, gain in whole]


def _standing(member: Member, gain: Mean, scale: tuple[float, float]) -> Standing:
    text = with_error(gain, sign=True) if member.style else "0"
    label = f"{member.name}: {text} nats"
    drawn = plots.strip(member.style, gain.mean, gain.standard_error, scale, label)
    return Standing(member, text, drawn)


def rows(group: Sequence[Member]) -> list[Row]:
    """Return the table's rows."""
    return [_row(member) for member in group]


def _row(member: Member) -> Row:
    subject, found = member.subject, member.evaluation and member.evaluation.found
    bdmc = found.bdmc if found else None
    importance = found.importance if found else None
    return Row(
        member,
        _start(subject),
        _settings(subject),
        _costs(subject),
        exact(found.estimate) + _of_other_data(member) if found else None,
        exact(bdmc.gap) if bdmc else None,
        exact(member.difference, sign=True) if member.difference else None,
        exact(importance.bound) + _samples(importance.num_samples) if importance else None,
        exact(importance.elbo) if importance else None,
    )


def _of_other_data(member: Member) -> Markup:
    text = Markup("<small>of other data, {}</small>")
    return text.format(member.other_data) if member.other_data else Markup("")


def _samples(number_samples: int) -> Markup:
    return Markup("<small>K = {}</small>").format(f"{number_samples:,}")


def _start(subject: Subject) -> str:
    start = subject.folder.config["train"].get("model", {}).get("init_from")
    return f"starts from {Path(start).name}, whose costs are not counted" if start else ""


def _settings(subject: Subject) -> list[str]:
    """Return method, K, T, L and kernel; a dash for what the method has none of."""
    method = subject.method
    own = ("num_temperatures", "num_leapfrog", "kernel")
    chains = [str(method.get(key, _NONE)) if subject.has_chains else _NONE for key in own]
    return [str(method["method"]), str(method["num_samples"]), *chains]


def _costs(subject: Subject) -> list[str]:
    history = subject.folder.history
    if history is None:
        return [f"{subject.update:,}", _NONE, _NONE]
    return [f"{subject.update:,}", f"{history.decoder_gradients:,}", number(history.seconds, 0)]


def notes(group: Sequence[Member]) -> list[str]:
    """Say what a reader of the table must know of single runs."""
    return [f"{m.name}: {text}" for m in group if m.evaluation is not None for text in _notes(m)]


def _notes(member: Member) -> list[str]:
    assert member.evaluation is not None
    found, origin = member.evaluation.found, member.subject.origin(member.evaluation)
    lines = []
    if not found.is_complete:
        lines.append("the time was up before all examples were done.")
    if found.is_tolerance_reached is False:
        tolerance = found.settings.get("tolerance")
        lines.append(f"the tolerance of {tolerance} nats was not reached; see the gap.")
    number_bad = int(np.sum(~np.isfinite(found.log_p)))
    if number_bad:
        lines.append(f"{counted(number_bad, 'example')} without a finite log p(x).")
    if origin is None:
        lines.append(
            "the evaluation does not tell which weights and data it is of; they may be earlier "
            "weights or other data."
        )
    elif origin.update != member.subject.update:
        lines.append(
            f"the evaluation is of update {origin.update:,}, the run is at "
            f"{member.subject.update:,}; evaluate again."
        )
    return lines


def missing(group: Sequence[Member]) -> list[Missing]:
    """List what the table lacks, with the commands that would make it."""
    bare = [m for m in group if m.evaluation is None]
    begun = [m for m in bare if m.subject.folder.unfinished]
    new = [m for m in bare if not m.subject.folder.unfinished]
    measured = [m for m in group if m.evaluation is not None]
    foreign = [m for m in measured if m.other_data]
    loose = [m for m in measured if _found(m).bdmc is None]
    plain = [m for m in measured if _found(m).importance is None]
    # That many is what an evaluation does unless it was told not to.
    certified = [_again(m).replace(" --bdmc-examples 0", "") for m in loose]
    bounded = [f"{_again(m)} --importance-samples 5000" for m in plain]
    lines = [
        _lacking("no evaluation of test examples yet", new, [_again(m) for m in new]),
        _lacking("an evaluation that was begun and has no result", begun, list(map(_again, begun))),
        _lacking(
            "no evaluation yet but of other data",
            foreign,
            [m.subject.evaluate_command for m in foreign],
        ),
        _lacking("no certificate", loose, certified),
        _lacking("no importance-weighted bound and no ELBO", plain, bounded, is_extra=True),
    ]
    return [line for line in lines if line.commands]


def _lacking(
    what: str, group: Sequence[Member], commands: list[str], *, is_extra: bool = False
) -> Missing:
    verb = "has" if len(group) == 1 else "have"
    return Missing(f"{joined([m.name for m in group])} {verb} {what}.", commands, is_extra)


def _again(member: Member) -> str:
    """Return the command of a run's evaluation, or else the usual one."""
    origin = member.evaluation and member.subject.origin(member.evaluation)
    return origin.command if origin else member.subject.evaluate_command


def _found(member: Member) -> LogLikelihood:
    assert member.evaluation is not None
    return member.evaluation.found
