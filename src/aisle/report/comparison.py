"""Compare the runs on each data set: by which evaluations, and what the result is in words."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aisle.evaluation.comparing import Comparison, compared
from aisle.report.reading import Evaluation, Run
from aisle.report.words import joined, with_error
from aisle.statistics import Mean, summarise


class Member(NamedTuple):
    """A run in a comparison.

    Attributes:
        style: its number, which decides its colour.
        evaluation: the one that it is compared by, or None if it has none of its test data.
        gain: how much higher its log p(x) is than that of the group's base, or None if it was not
            evaluated on the same examples.
    """

    name: str
    style: int
    run: Run
    evaluation: Evaluation | None
    gain: Mean | None


class Group(NamedTuple):
    """The runs on one data set; only these are compared with each other.

    Attributes:
        base: the name of the run that the others are compared with, or "" if there is none.
    """

    data: str
    base: str
    members: list[Member]

    @property
    def names(self) -> str:
        """Return the names of its members."""
        return joined([m.name for m in self.members])


def compare(runs: Sequence[Run]) -> list[Group]:
    """Group runs by their data, as log-likelihoods of different data cannot be compared."""
    parts: dict[str, dict[str, Run]] = {}
    for name, run in zip(_names([r.path for r in runs]), runs, strict=True):
        parts.setdefault(run.data_key, {})[name] = run
    titles = {key: next(iter(part.values())).data_name for key, part in parts.items()}
    counts = Counter(titles.values())
    titles = {k: t if counts[t] == 1 else f"{t} ({k[:6]})" for k, t in titles.items()}
    return [_group(titles[key], part) for key, part in parts.items()]


def _names(paths: Sequence[Path]) -> list[str]:
    """Name runs by their folders, with the whole path where two have the same name."""
    names = [path.name or path.resolve().name for path in paths]
    counts = Counter(names)
    return [n if counts[n] == 1 else str(path) for n, path in zip(names, paths, strict=True)]


def _group(data: str, runs: dict[str, Run]) -> Group:
    """Compare runs by the newest evaluations of the test examples that most of them share."""
    tests = {name: _test_evaluations(run) for name, run in runs.items()}
    newest = {e.examples: e.written for own in tests.values() for e in reversed(own)}
    counts = Counter(key for own in tests.values() for key in {e.examples for e in own})
    shared = max(counts, key=lambda key: (counts[key], newest[key]), default=None)
    rivals = {n: e for n, own in tests.items() for e in reversed(own) if e.examples == shared}
    base = next((name for name, e in rivals.items() if _is_finite(e)), next(iter(rivals), ""))
    members = []
    for style, (name, own) in enumerate(tests.items()):
        gain = _gain(rivals[name], rivals[base]) if name in rivals else None
        chosen = rivals.get(name) or next(iter(own), None)
        members.append(Member(name, style, runs[name], chosen, gain))
    return Group(data, base, members)


def _test_evaluations(run: Run) -> list[Evaluation]:
    """Return the evaluations of a run's own test data, of its present weights if there are any."""
    tests = [e for e in run.evaluations if e.split in ("test", None) and e.other_data is None]
    return [e for e in tests if e.update == run.update] or tests


def _gain(evaluation: Evaluation, other: Evaluation) -> Mean:
    with np.errstate(invalid="ignore"):
        return summarise(evaluation.log_p - other.log_p)


def _is_finite(evaluation: Evaluation) -> bool:
    """Return whether every example has a finite log p(x)."""
    return bool(np.isfinite(evaluation.log_p).all())


def result(group: Group) -> tuple[Member | None, list[str]]:
    """Return the best run that was evaluated, and what to know about it and the others."""
    rivals = {m.name: (m, m.evaluation) for m in group.members if m.gain and m.evaluation}
    finite = {name: e for name, (_, e) in rivals.items() if _is_finite(e)}
    if not finite:
        return None, ["No evaluation is finite." if rivals else "No run has been evaluated yet."]
    ranks = compared({name: (e.log_p, e.means.get("gap")) for name, e in finite.items()})
    best, found = rivals[ranks.best]
    others = [m.name for m in group.members if m.name not in rivals]
    return best, [
        f"Evaluated on {len(found.log_p):,} test examples of {group.data}.",
        *_ranking(ranks, finite),
        _certificate(found.means.get("gap")),
        *_doubt(found),
        *([f"Not evaluated on the same examples: {joined(others)}."] if others else []),
    ]


def _ranking(ranks: Comparison, evaluations: dict[str, Evaluation]) -> list[str]:
    """Compare the best run with the others by paired differences."""
    same, better, level = [], [], []
    for model in ranks.models[1:]:
        if np.array_equal(evaluations[ranks.best].log_p, evaluations[model.name].log_p):
            same.append(model.name)
        elif model.is_behind:
            better.append(f"{model.name} by {with_error(model.behind)}")
        else:
            level.append(model.name)
    sentences = {
        "The evaluation is the same as that of {}: log p(x) is equal for every example.": same,
        "Better than {} nats, on the same examples.": better,
        "Not clearly better than {}: no certificate shows that the difference exceeds the gap by "
        "two standard errors.": level,
    }
    return [sentence.format(joined(names)) for sentence, names in sentences.items() if names]


def _certificate(gap: Mean | None) -> str:
    if gap is None:
        return "There is no certificate: bidirectional Monte Carlo was turned off."
    return (
        "Certificate: on data simulated from the model, the gap between the upper and the lower "
        f"bound is {with_error(gap)} nats."
    )


def _doubt(found: Evaluation) -> list[str]:
    number = found.num_doubtful
    words = f"Doubtful, as their chains disagree: {number:,} of {len(found.log_p):,} examples."
    return [words] if number else []


def warnings(member: Member) -> list[str]:
    """Say where the training or the evaluation of a run was not finite."""
    updates, is_bad = member.run.history["update"], ~np.isfinite(member.run.history["bound"])
    found = []
    if is_bad.any() and is_bad[-1]:
        first = updates[0] if is_bad.all() else updates[len(updates) - np.argmin(is_bad[::-1])]
        found.append(f"training diverged: the bound is not finite from update {first:,.0f} on")
    elif is_bad.any():
        found.append(f"the bound was not finite in {is_bad.sum():,} of {len(updates):,} updates")
    if member.evaluation and not _is_finite(member.evaluation):
        log_p = member.evaluation.log_p
        num_bad = np.sum(~np.isfinite(log_p))
        found.append(f"log p(x) is not finite for {num_bad:,} of {len(log_p):,} examples")
    return [f"{member.name}: {text}." for text in found]


def differing_settings(group: Group) -> dict[str, list[str]]:
    """Return the settings in which the runs of a group differ, with the value of each run."""
    settings = [m.run.settings for m in group.members]
    # Data and machine are facts about a run, and no choices.
    facts = ("data.", "provenance.")
    names = dict.fromkeys(n for own in settings for n in own if not n.startswith(facts))
    values = {name: [own.get(name, "\N{EN DASH}") for own in settings] for name in names}
    return {name: own for name, own in values.items() if len(set(own)) > 1}
