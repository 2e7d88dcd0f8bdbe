"""Draw plots as SVG elements of the page: their text has the page's font, their colours follow it.

Matplotlib draws in stand-ins for the page's colours, which are then replaced by the variables of
the style sheet, so that one drawing serves light and dark mode. Runs are named in the key beside
the plots; of text from outside, only names of columns and levels are drawn.
"""

import html
import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, NullLocator

from aisle.report.columns import Marginal
from aisle.report.comparison import Group
from aisle.report.words import joined, with_error

_INK, _FAINT, _GRID = "#1b1b1b", "#8a8a8b", "#dededf"
# Safe for colour-blind readers (Okabe & Ito, 2008), without yellow, which is lost on white.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.6)))
_VARIABLES = {_INK: "var(--ink)", _FAINT: "var(--faint)", _GRID: "var(--line)"}
_VARIABLES |= {color: f"var(--run-{i})" for i, color in enumerate(_COLORS)}
# Inches; at 72 to an inch, about as many pixels as a plot has on a phone.
_WIDTH = 4.7
# Points of a curve: more cannot be seen.
_NUM_POINTS = 100
# Share of a run, its beginning, whose steep rise would flatten all that follows.
_RISE = 0.1
# Inches of the plot of one column.
_SMALL = (3.1, 1.75)
# Letters of a level or of a column that a plot has room for.
_MOST_LETTERS = 18
# Of correlations; both can be seen on white and on black.
_ABOVE, _BELOW = "#2f86c9", "#d9661f"
# Of labels beyond the colours, with what they look like in a text.
_MARKERS = {"o": "●", "^": "▲", "s": "■"}


def training(group: Group) -> list[str]:
    """Draw the bounds against each cost."""
    costs = {"update": "updates", "seconds": "seconds", "decoder_gradients": "decoder gradients"}
    plots = [_bounds(group, name, x_label) for name, x_label in costs.items()]
    return [plot for plot in plots if plot]


def _bounds(group: Group, cost: str, x_label: str) -> str:
    figure, axes = _figure("bound of log p(x), nats", x_label)
    seen = []
    for m in group.members:
        x, y = thinned(m.run.history[cost], m.run.history["bound"])
        axes.plot(x, y, **_look(m.style), alpha=0.55, linewidth=1.1)
        x_held, y_held = thinned(m.run.held_out[cost], m.run.held_out["held_out_bound"])
        axes.plot(x_held, y_held, **_look(m.style), marker="o", markersize=4)
        seen += [*y[int(_RISE * len(y)) :], *y_held]
    if not seen:
        return ""
    margin = max(0.05 * (max(seen) - min(seen)), 0.05)
    axes.set_ylim(min(seen) - margin, max(seen) + margin)
    return _svg(figure, f"Training and held-out bounds of {group.names} by {x_label}.")


def gains(group: Group) -> str:
    """Draw the gains over the base of a group, if there is another run with a finite one."""
    known = [(m, m.gain) for m in group.members if m.gain and np.isfinite(m.gain).all()]
    if len(known) < 2:
        return ""
    title = "gain in log p(x), two standard errors to each side"
    figure, axes = _figure(title, "nats", height=0.9 + 0.25 * len(known))
    for m, gain in known:
        axes.errorbar(gain.mean, -m.style, xerr=2 * gain.standard_error, fmt="o", **_look(m.style))
    axes.axvline(0, color=_FAINT, linewidth=0.8)
    axes.margins(y=0.3)
    axes.yaxis.set_major_locator(NullLocator())
    words = joined([f"{m.name} {with_error(gain)}" for m, gain in known])
    return _svg(figure, f"Gains in log p(x) over {group.base}, in nats: {words}.")


def marginal(one: Marginal, label: str) -> str:
    """Draw a column: the data in grey, samples in the colours of their runs."""
    figure, axes = _figure("", "", *_SMALL)
    shares = [one.data, *one.models.values()]
    looks = [{"color": _FAINT}, *(_look(style) for style in one.models)]
    if one.bars.names:
        _level_bars(axes, one.bars.names, [own[1:-1] for own in shares], looks)
    else:
        edges = np.log1p(one.bars.edges) if one.bars.is_log else one.bars.edges
        axes.stairs(one.data[1:-1], edges, fill=True, color=_FAINT, alpha=0.4)
        for own, look in zip(shares[1:], looks[1:], strict=True):
            axes.stairs(own[1:-1], edges, baseline=None, linewidth=1.4, **look)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0)
        axes.yaxis.set_major_locator(NullLocator())
    if one.bars.is_log:
        ticks = np.array([0, *(10.0**i for i in range(9))])
        ticks = ticks[ticks <= one.bars.edges[-1]]
        axes.set_xticks(np.log1p(ticks), [_tick(tick, None) for tick in ticks])
    return _svg(figure, label)


def _level_bars(
    axes: Axes, names: Sequence[str], shares: Sequence[np.ndarray], looks: Sequence[dict[str, Any]]
) -> None:
    """Draw a group of bars for each level, the first one on top."""
    height = 0.8 / len(shares)
    for i, (own, look) in enumerate(zip(shares, looks, strict=True)):
        places = np.arange(len(names)) - 0.4 + (i + 0.5) * height
        pale = {"color": look["color"], "alpha": 0.4 if i == 0 else 0.9}
        axes.barh(places, own, 0.9 * height, **pale)
    axes.set_yticks(range(len(names)), [_short(name) for name in names], parse_math=False)
    axes.tick_params(axis="y", labelcolor=_INK)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_xlim(0)


def strip(rest: Sequence[Marginal], label: str) -> str:
    """Draw the differences of columns that have no plot of their own, a point for each."""
    styles = sorted({style for one in rest for style in one.differences})
    title = "difference of each other column"
    figure, axes = _figure(title, "", 2 * _WIDTH, 0.7 + 0.2 * len(styles))
    for style in styles:
        values = [one.differences[style] for one in rest]
        look = _look(style) | {"linestyle": "none", "marker": "o", "markersize": 5}
        axes.plot(values, np.full(len(values), -style), **look, alpha=0.5)
    axes.set_xlim(0, max(0.1, *axes.get_xlim()))
    axes.margins(y=0.5)
    axes.yaxis.set_major_locator(NullLocator())
    return _svg(figure, label)


def heat_map(names: Sequence[str], values: np.ndarray, label: str) -> str:
    """Draw correlations: one colour above zero, another below, the stronger the more opaque."""
    figure, axes = _figure("", "", height=1.1 + 0.15 * max(12, len(names)))
    known = np.nan_to_num(values)
    pixels = np.empty((*values.shape, 4))
    pixels[..., :3] = np.where(known[..., None] > 0, to_rgb(_ABOVE), to_rgb(_BELOW))
    pixels[..., 3] = np.abs(known)
    axes.imshow(pixels, interpolation="none", aspect="auto")
    size = 10.5 if len(names) <= 12 else 8.5
    numbered = [f"{_short(name)}  {i + 1}" for i, name in enumerate(names)]
    axes.set_yticks(range(len(names)), numbered, fontsize=size, parse_math=False)
    axes.set_xticks(range(len(names)), [str(i + 1) for i in range(len(names))], fontsize=size)
    axes.tick_params(axis="both", length=0, labelcolor=_INK)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    return _svg(figure, label)


def latents(points: np.ndarray, shares: np.ndarray, codes: np.ndarray, label: str) -> str:
    """Draw points in two dimensions, by codes of their labels; -1 is faint.

    One dimension is drawn along the first axis, and spread along the second to be seen.
    """
    if points.shape[1] == 1:
        points = np.stack([points[:, 0], np.random.RandomState(0).uniform(size=len(points))], 1)
        figure, axes = _figure("", "the only latent; the height means nothing", height=3.6)
        axes.yaxis.set_major_locator(NullLocator())
    else:
        first = f"first principal component, {shares[0]:.0%} of the variance"
        figure, axes = _figure(f"second principal component, {shares[1]:.0%}", first, height=3.6)
    for code in np.unique(codes).tolist():
        own = points[codes == code]
        color, marker = mark(code)
        axes.plot(*own.T, marker, color=color, markersize=4.5, alpha=0.75, markeredgewidth=0)
    return _svg(figure, label)


def mark(code: int) -> tuple[str, str]:
    """Return the colour and the marker of a label."""
    markers = list(_MARKERS)
    if code < 0:
        return _FAINT, markers[0]
    return _COLORS[code % len(_COLORS)], markers[code // len(_COLORS) % len(markers)]


def mark_in_text(code: int) -> tuple[str, str]:
    """Return the page's name of the colour of a label, and its marker as a letter."""
    color, marker = mark(code)
    return _VARIABLES[color], _MARKERS[marker]


def _short(name: str) -> str:
    if len(name) <= _MOST_LETTERS:
        return name
    return f"{name[: _MOST_LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def moments(data: np.ndarray, samples: Mapping[int, np.ndarray], label: str) -> str:
    """Draw mean and standard deviation of each feature in the samples against those in the data."""
    figure = Figure(figsize=(2 * _WIDTH, 3.7))
    summaries = {"mean": np.nanmean, "standard deviation": np.nanstd}
    for axes, (name, summary) in zip(figure.subplots(1, 2), summaries.items(), strict=True):
        own = summary(data, axis=0)
        for style, values in samples.items():
            look = _look(style) | {"linestyle": "none", "marker": "o", "markersize": 3}
            axes.plot(own, summary(values, axis=0), **look, alpha=0.7)
        axes.axline((own[0], own[0]), slope=1, color=_FAINT, linewidth=0.8)
        axes.set_aspect("equal", adjustable="datalim")
        _frame(axes, f"{name} of each feature in samples", "in the data")
    return _svg(figure, label)


def thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average a long noisy curve over stretches, and drop what is not finite."""
    keep = np.isfinite(x) & np.isfinite(y)
    x, y = x[keep], y[keep]
    if len(x) > _NUM_POINTS:
        pieces = [np.array_split(values, _NUM_POINTS) for values in (x, y)]
        x, y = (np.array([piece.mean() for piece in part]) for part in pieces)
    return x, y


def _look(style: int) -> dict[str, Any]:
    dashes = _DASHES[style // len(_COLORS) % len(_DASHES)]
    return {"color": _COLORS[style % len(_COLORS)], "linestyle": dashes}


def _figure(
    title: str, x_label: str, width: float = _WIDTH, height: float = 3.1
) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height))
    axes = figure.subplots()
    _frame(axes, title, x_label)
    return figure, axes


def _frame(axes: Axes, title: str, x_label: str) -> None:
    """Keep everything that is not a curve in the background."""
    axes.set_title(title, loc="left", fontsize=10.5, color=_INK, pad=8)
    axes.set_xlabel(x_label, loc="right", color=_FAINT)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(_tick))
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set(color=_FAINT, linewidth=0.8)
    axes.tick_params(color=_FAINT, labelcolor=_FAINT, length=3)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _tick(value: float, _: int | None) -> str:
    """Write large numbers short: 20M, 500k."""
    short = EngFormatter(sep="")(value) if abs(value) >= 1000 else f"{value:g}"
    return short.replace("-", "\N{MINUS SIGN}")


def _svg(figure: Figure, label: str) -> str:
    """Return a figure as an element of the page; the label describes it in words."""
    # The label makes the names of clipping paths unique on the page, and the same each time.
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": label, "font.size": 10.5}
    text = io.StringIO()
    with rc_context(settings), warnings.catch_warnings():
        # Letters that Matplotlib's own font lacks are in the page's.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02)
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    found = re.search(r'(viewBox="[^"]*").*?</metadata>(.*)', text.getvalue(), re.DOTALL)
    assert found is not None
    view, content = found.groups()
    # A style element would hold for the whole page; names of groups would not be unique in it.
    content = re.sub(r"<style.*?</style>", "", content, flags=re.DOTALL)
    content = re.sub(r'<g id="[^"]*"', "<g", content).replace("xlink:href", "href")
    content = re.sub(r" font-family: [^;\"]*;?", "", content)
    for stand_in, variable in _VARIABLES.items():
        content = content.replace(stand_in, variable)
    return f'<svg class="plot" {view} role="img" aria-label="{html.escape(label)}">{content}'
