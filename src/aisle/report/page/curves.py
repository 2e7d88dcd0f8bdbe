"""Plots of runs side by side: along training, along their chains, and over the examples."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from scipy.stats import gaussian_kde

from aisle.learning.estimators import METHODS
from aisle.report.page import plots
from aisle.report.page.comparison import Member, Missing
from aisle.report.page.plots import Line, Plot, thinned
from aisle.report.page.reading import Evaluation, History, Track
from aisle.report.page.words import joined, number

# Names of quantiles, and the shares of the examples whose log p(x) is below them.
SHARES = {"least": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "largest": 1.0}
# Nats between the least and the largest log p(x) below which there is no density to draw.
_FLAT = 1e-6
# Costs that differ by more are drawn on a logarithmic axis.
_WIDE = 8.0
# Share of a run, its beginning, whose steep rise would flatten all that follows.
_RISE = 0.1

_COSTS = {
    "updates": "updates",
    "decoder_gradients": "decoder gradients",
    "seconds": "seconds of training",
}


class Group(NamedTuple):
    """Plots of the runs on one data set, with their key."""

    data: str
    key: list[Member]
    plots: list[Markup]


class Quantiles(NamedTuple):
    """Between which values log p(x) of a run's examples lies."""

    member: Member
    values: list[str]


def learning(group: Sequence[Member]) -> list[Group]:
    """Draw the bounds along training, against each cost."""
    known = [(m.subject.data_name, m) for m in group if m.subject.folder.history is not None]
    return [
        Group(data, own, [_learning_plot(f"learning{i}", own, cost) for cost in _COSTS])
        for i, (data, own) in enumerate(_by_data(known).items())
    ]


def learning_gaps(group: Sequence[Member]) -> list[Missing]:
    """List the runs whose curves are missing, or lack the held-out bound."""
    bare = [m for m in group if m.subject.folder.history is None]
    short = [m for m, history in _histories(group) if not len(history.held_out.values)]
    lines = []
    if bare:
        text = "no metrics.jsonl, which training writes, and so no curves"
        lines.append(_lines_of(bare, text, [m.subject.train_command for m in bare]))
    if short:
        commands = [f"aisle train --resume {m.subject.shell_path}" for m in short]
        lines.append(_lines_of(short, "no held-out bound yet; training on adds it", commands))
    return lines


def _lines_of(group: Sequence[Member], text: str, commands: list[str]) -> Missing:
    return Missing(f"{joined([m.name for m in group])}: {text}.", commands)


def _by_data(named: Sequence[tuple[str, Member]]) -> dict[str, list[Member]]:
    """Keep apart the runs on different data, whose likelihoods have nothing to do with another."""
    parts: dict[str, list[Member]] = {}
    for data, member in named:
        parts.setdefault(data, []).append(member)
    return parts


def _learning_plot(name: str, group: Sequence[Member], cost: str) -> Markup:
    known = list(_histories(group))
    totals = [float(getattr(history.bound, cost)[-1]) for _, history in known]
    is_log = max(totals) > _WIDE * max(min(totals), 1e-9)
    lines = [
        *(_training_line(m, history.bound, cost, is_log) for m, history in known),
        *(_held_out_line(m, history.held_out, cost) for m, history in known),
    ]
    words = ", ".join(f"{m.name} {_last(history.held_out)}" for m, history in known)
    return plots.draw(
        Plot(
            f"{name}-{cost}",
            f"Training and held-out bound against {_COSTS[cost]}. Last held-out bound: {words}.",
            _COSTS[cost],
            "bound of log p(x), nats",
            lines,
            _y_range([track for _, h in known for track in (h.bound, h.held_out)]),
            is_log,
        )
    )


def _training_line(member: Member, track: Track, cost: str, is_log: bool) -> Line:
    x, y = thinned(getattr(track, cost), track.values, is_log=is_log)
    return Line(member.style, x, y, is_faint=True)


def _held_out_line(member: Member, track: Track, cost: str) -> Line:
    return Line(member.style, getattr(track, cost), track.values, has_markers=True)


def _last(track: Track) -> str:
    return f"{number(float(track.values[-1]))} nats" if len(track.values) else "not measured"


def _y_range(tracks: Sequence[Track]) -> tuple[float, float] | None:
    """Leave out the beginning, whose steep rise would flatten all that follows."""
    ends = [thinned(t.updates, t.values)[1] for t in tracks if np.isfinite(t.values).any()]
    late = [values[int(_RISE * len(values)) :] for values in ends]
    if not late:
        return None
    low, high = min(v.min() for v in late), max(v.max() for v in late)
    margin = max(0.05 * (high - low), 0.05)
    return float(low - margin), float(high + margin)


def training_chains(group: Sequence[Member]) -> list[Group]:
    """Draw how the chains of training move, and what the K weights of an example are worth."""
    moving = [(m, h.chains) for m, h in _histories(group) if h.chains is not None]
    weighted = weighted_runs(group)
    drawn = []
    if moving:
        accepted = [(m, chains.acceptance) for m, chains in moving]
        sizes = [(m, chains.step_sizes) for m, chains in moving]
        drawn.append(_transition_plot("acceptance", accepted, (0.0, 1.02)))
        drawn.append(_transition_plot("step size", sizes, None))
    if weighted:
        drawn.append(_weights_plot(weighted))
    shown = {m.name for m, _ in moving} | {m.name for m in weighted}
    return [Group("", [m for m in group if m.name in shown], drawn)] if drawn else []


def moving_runs(group: Sequence[Member]) -> list[Member]:
    """Return the runs whose updates have run chains."""
    return [m for m, history in _histories(group) if history.chains is not None]


def weighted_runs(group: Sequence[Member]) -> list[Member]:
    """Return the runs whose samples of an example count by their weights."""
    several = [m for m, _ in _histories(group) if _num_samples(m) > 1]
    return [m for m in several if METHODS[m.subject.method["method"]].is_weighted]


def _num_samples(member: Member) -> int:
    return int(member.subject.method["num_samples"])


def _histories(group: Sequence[Member]) -> Iterator[tuple[Member, History]]:
    for member in group:
        if member.subject.folder.history is not None:
            yield member, member.subject.folder.history


def _transition_plot(
    label: str,
    curves: Sequence[tuple[Member, np.ndarray]],
    y_range: tuple[float, float] | None,
) -> Markup:
    lines = [
        Line(m.style, np.arange(1, len(v) + 1) / len(v), v, has_markers=True) for m, v in curves
    ]
    words = ", ".join(f"{m.name} {_span(v)}" for m, v in curves)
    return plots.draw(
        Plot(
            f"training-{label}",
            f"{label.capitalize()} by transition, over the last tenth of the updates: {words}.",
            "transition, t / T",
            label,
            lines,
            y_range or _from_zero([v for _, v in curves]),
        )
    )


def _from_zero(curves: Sequence[np.ndarray]) -> tuple[float, float]:
    values = np.concatenate(curves)
    return 0.0, 1.1 * float(np.max(values[np.isfinite(values)], initial=1e-9))


def _span(values: np.ndarray) -> str:
    return f"{number(float(values.min()))} to {number(float(values.max()))}"


def _weights_plot(group: Sequence[Member]) -> Markup:
    lines = []
    for member, history in _histories(group):
        track = history.effective_sample_size
        share = track.values / _num_samples(member)
        lines.append(Line(member.style, *thinned(track.updates, share)))
    ends = [(m, line.y) for m, line in zip(group, lines, strict=True) if len(line.y)]
    words = ", ".join(f"{m.name} {number(float(y[-1]))}" for m, y in ends)
    return plots.draw(
        Plot(
            "training-weights",
            f"Effective sample size as a share of K along training; at the end: {words}.",
            "updates",
            "effective sample size, share of K",
            lines,
            (0.0, 1.02),
        )
    )


def evaluation_chains(group: Sequence[Member]) -> list[Group]:
    """Draw how the chains of each run's evaluation move."""
    known = [(m, m.evaluation.found) for m in group if m.evaluation is not None]
    if not known:
        return []
    # The step at beta = 1 is never made, so it has no acceptance.
    accepted = [(m, f.betas[1 : len(f.acceptance) + 1], f.acceptance) for m, f in known]
    sizes = [(m, f.betas[1:], f.step_sizes) for m, f in known]
    drawn = [
        _beta_plot("acceptance", "acceptance probability", accepted, (0.0, 1.02)),
        _beta_plot("step-sizes", "step size, tuned before and frozen", sizes, None),
    ]
    return [Group("", [m for m, _ in known], drawn)]


def _beta_plot(
    name: str,
    label: str,
    curves: Sequence[tuple[Member, np.ndarray, np.ndarray]],
    y_range: tuple[float, float] | None,
) -> Markup:
    lines = [Line(m.style, *thinned(x, y)) for m, x, y in curves]
    words = ", ".join(f"{m.name} {_span(y)}" for m, _, y in curves)
    return plots.draw(
        Plot(
            f"evaluation-{name}",
            f"Of the evaluations, by inverse temperature: {label}: {words}.",
            "inverse temperature",
            label,
            lines,
            y_range or _from_zero([y for _, _, y in curves]),
        )
    )


def distributions(group: Sequence[Member]) -> list[Group]:
    """Draw the densities of log p(x) over the examples, all runs on the same data together."""
    measured = [m for m in group if m.evaluation is not None and _spread(m.evaluation) > _FLAT]
    known = [(m.evaluated_data, m) for m in measured]
    return [
        Group(data, own, [_density_plot(f"density{i}", own)])
        for i, (data, own) in enumerate(_by_data(known).items())
    ]


def _spread(evaluation: Evaluation) -> float:
    finite = _finite(evaluation)
    return float(np.ptp(finite)) if len(finite) > 1 else 0.0


def _finite(evaluation: Evaluation) -> np.ndarray:
    return evaluation.found.log_p[np.isfinite(evaluation.found.log_p)]


def _density_plot(name: str, group: Sequence[Member]) -> Markup:
    values = {m.name: _finite(m.evaluation) for m in group if m.evaluation is not None}
    low, high = min(v.min() for v in values.values()), max(v.max() for v in values.values())
    margin = 0.15 * (high - low)
    x = np.linspace(low - margin, high + margin, 160)
    lines = [Line(m.style, x, gaussian_kde(values[m.name])(x)) for m in group]
    words = ", ".join(
        f"{n} from {number(float(v.min()), 1)} to {number(float(v.max()), 1)}, half of them above "
        f"{number(float(np.median(v)), 1)}"
        for n, v in values.items()
    )
    return plots.draw(
        Plot(
            name,
            f"Density of log p(x) over examples: {words}.",
            "log p(x) of an example, nats",
            "share of examples, smoothed",
            lines,
            (0.0, 1.08 * max(float(line.y.max()) for line in lines)),
            has_y_ticks=False,
        )
    )


def quantiles(group: Sequence[Member]) -> list[Quantiles]:
    """Give the least, the middle and the largest log p(x) of each run, and what lies between."""
    shares = list(SHARES.values())
    return [
        Quantiles(m, [number(float(q), 1) for q in np.quantile(_finite(m.evaluation), shares)])
        for m in group
        if m.evaluation is not None and len(_finite(m.evaluation))
    ]
