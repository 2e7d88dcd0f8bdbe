"""Draw plots as SVG elements of the page: their text has the page's font, their colours follow it.

Matplotlib draws in stand-ins for the page's colours, which are then replaced by the variables of
the style sheet, so that one drawing serves light and dark mode. Runs are named in the key beside
the plots, so no text from outside is drawn.
"""

import html
import io
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, NullLocator

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
# Features with a histogram of their own; of more, means and standard deviations are drawn.
_MOST_FEATURES = 12


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
    figure, axes = _figure(title, "nats", 0.9 + 0.25 * len(known))
    for m, gain in known:
        axes.errorbar(gain.mean, -m.style, xerr=2 * gain.standard_error, fmt="o", **_look(m.style))
    axes.axvline(0, color=_FAINT, linewidth=0.8)
    axes.margins(y=0.3)
    axes.yaxis.set_major_locator(NullLocator())
    words = joined([f"{m.name} {with_error(gain)}" for m, gain in known])
    return _svg(figure, f"Gains in log p(x) over {group.base}, in nats: {words}.")


def marginals(group: Group, data: np.ndarray, samples: Mapping[int, np.ndarray]) -> str:
    """Draw each feature of the data (grey) and of the samples of runs, by their style.

    Few features have histograms. Of many, mean and standard deviation in the samples are drawn
    against those in the data: a model that fits has them on the diagonal.
    """
    draw = _histograms if data.shape[1] <= _MOST_FEATURES else _moments
    return _svg(draw(data, samples), f"Features in {group.data} and in samples of {group.names}.")


def _histograms(data: np.ndarray, samples: Mapping[int, np.ndarray]) -> Figure:
    rows, columns = -(-data.shape[1] // 4), min(4, data.shape[1])
    figure = Figure(figsize=(2.6 * columns, 1.9 * rows))
    every = figure.subplots(rows, columns, squeeze=False).flatten()
    looks = [(data, {"color": _FAINT, "alpha": 0.4})]
    looks += [(own, {"histtype": "step", **_look(style)}) for style, own in samples.items()]
    for i, axes in enumerate(every[: data.shape[1]]):
        # The data decide the range: a model that strays far would hide them.
        low, high = np.quantile(data[:, i], [0.005, 0.995])
        margin = 0.2 * (high - low) or 0.5
        edges = np.linspace(low - margin, high + margin, 31)
        for own, look in looks:
            # Shares of all values, also of those beyond the edges.
            axes.hist(own[:, i], edges, weights=np.full(len(own), 1 / len(own)), **look)
        _frame(axes, f"feature {i + 1}", "")
        axes.yaxis.set_major_locator(NullLocator())
    for axes in every[data.shape[1] :]:
        axes.set_axis_off()
    return figure


def _moments(data: np.ndarray, samples: Mapping[int, np.ndarray]) -> Figure:
    figure = Figure(figsize=(2 * _WIDTH, 3.7))
    summaries = {"mean": np.mean, "standard deviation": np.std}
    for axes, (name, summary) in zip(figure.subplots(1, 2), summaries.items(), strict=True):
        own = summary(data, axis=0)
        for style, values in samples.items():
            look = _look(style) | {"linestyle": "none", "marker": "o", "markersize": 3}
            axes.plot(own, summary(values, axis=0), **look, alpha=0.7)
        axes.axline((own[0], own[0]), slope=1, color=_FAINT, linewidth=0.8)
        axes.set_aspect("equal", adjustable="datalim")
        _frame(axes, f"{name} of each feature in samples", "in the data")
    return figure


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


def _figure(title: str, x_label: str, height: float = 3.1) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height))
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
    with rc_context(settings):
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
