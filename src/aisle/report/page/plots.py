"""Plots as SVG that stands in the page itself: its text is the page's, its colours follow it.

Matplotlib draws in stand-ins for the page's colours; what is returned names the variables of the
style sheet instead, so that one drawing serves by day and by night. No text from outside is drawn:
runs are named in the key beside a plot.
"""

import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import (
    EngFormatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

_INK, _FAINT, _GRID = "#1b1b1b", "#8a8a8b", "#dededf"
# Safe for colour-blind readers (Okabe & Ito, 2008), without yellow, which white would swallow.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.6)))
_SWATCH_DASHES = ("none", "4 2", "1 1.6")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_VARIABLES = {
    _INK: "var(--ink)",
    _FAINT: "var(--faint)",
    _GRID: "var(--line)",
    **{color: f"var(--run-{i})" for i, color in enumerate(COLORS)},
}

# Inches; at 72 to an inch, about as many pixels as a plot has on a telephone.
_SIZE = (4.7, 3.1)
# Points of a curve: more cannot be seen.
_NUM_POINTS = 100


class Line(NamedTuple):
    """One curve.

    Attributes:
        style: number of its run, which decides colour, dashes and marker.
        has_markers: whether each point was measured by itself.
        is_faint: whether it stands behind the others.
    """

    style: int
    x: np.ndarray
    y: np.ndarray
    has_markers: bool = False
    is_faint: bool = False


class Plot(NamedTuple):
    """A plot to be drawn.

    Attributes:
        name: unique on the page.
        label: what it shows, for those who cannot see it.
        y_label: stands above it.
        y_range: or None for that of the lines.
        is_log: whether the horizontal axis is logarithmic.
        has_y_ticks: whether values can be read off.
    """

    name: str
    label: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    y_range: tuple[float, float] | None = None
    is_log: bool = False
    has_y_ticks: bool = True


def draw(plot: Plot) -> Markup:
    """Return a plot as an SVG element."""
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": plot.name,
        "font.size": 10.5,
    }
    with rc_context(settings):
        figure = Figure(figsize=_SIZE)
        FigureCanvasSVG(figure)
        figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02)
        axes = figure.subplots()
        for line in plot.lines:
            _draw_line(axes, line)
        _draw_frame(axes, plot)
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _inline(text.getvalue(), plot.label)


def thinned(x: np.ndarray, y: np.ndarray, *, is_log: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Average a noisy curve over stretches of equal width as they are drawn."""
    keep = np.isfinite(x) & np.isfinite(y)
    x, y = x[keep], y[keep]
    if len(x) <= _NUM_POINTS:
        return x, y
    place = np.log(np.maximum(x, 1e-12)) if is_log else x
    edges = np.linspace(place.min(), place.max(), _NUM_POINTS + 1)
    bins = np.digitize(place, edges[1:-1])
    counts = np.bincount(bins)
    filled = counts > 0
    means = (np.bincount(bins, weights=values)[filled] / counts[filled] for values in (x, y))
    first, second = means
    return first, second


def swatch(style: int) -> Markup:
    """Return the piece of line that stands for a run in a key."""
    dashes = _SWATCH_DASHES[style // len(COLORS) % len(_DASHES)]
    return Markup(
        '<svg class="swatch" viewBox="0 0 26 10" aria-hidden="true"><line x1="1" x2="25" y1="5" '
        'y2="5" stroke="var(--run-{})" stroke-width="3" stroke-dasharray="{}"/></svg>'
    ).format(style % len(COLORS), dashes)


def strip(style: int, value: float, error: float, scale: tuple[float, float], label: str) -> Markup:
    """Draw a figure as a dot, its distance from 0 as a bar, and two standard errors to each side.

    Args:
        style: number of the run.
        value: which must be finite, as must be the rest.
        error: its standard error.
        scale: values at the left and right edge, the same for all that are compared.
        label: what it shows, for those who cannot see it.
    """
    low, high = scale

    def place(at: float) -> float:
        return round(5 + 190 * (at - low) / (high - low), 1)

    return Markup(
        '<svg class="strip" viewBox="0 0 200 24" role="img" aria-label="{}">'
        '<line x1="{zero}" x2="{zero}" y1="1" y2="23" class="axis"/>'
        '<line x1="{zero}" x2="{dot}" y1="12" y2="12" stroke="var(--run-{color})" '
        'stroke-width="8" stroke-opacity="0.35"/>'
        '<line x1="{left}" x2="{right}" y1="12" y2="12" class="whisker"/>'
        '<circle cx="{dot}" cy="12" r="4.5" fill="var(--run-{color})"/></svg>'
    ).format(
        label,
        zero=place(0.0),
        dot=place(value),
        left=place(value - 2 * error),
        right=place(value + 2 * error),
        color=style % len(COLORS),
    )


def strip_scale(values: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """Return the edges that have room for 0, and for all figures with their errors."""
    pairs = list(zip(values, errors, strict=True))
    ends = [0.0, *(v + side * 2 * e for v, e in pairs for side in (-1, 1))]
    # What is tiny stays small: a gap of a hundredth of a nat should look like one.
    return min(ends), max(0.1, *ends)


def _draw_line(axes: Axes, line: Line) -> None:
    color = COLORS[line.style % len(COLORS)]
    axes.plot(
        line.x,
        line.y,
        color=color,
        linestyle=_DASHES[line.style // len(COLORS) % len(_DASHES)],
        linewidth=1.1 if line.is_faint else 1.8,
        alpha=0.55 if line.is_faint else 1,
        marker=_MARKERS[line.style % len(_MARKERS)] if line.has_markers else None,
        markersize=4,
        solid_capstyle="round",
    )


def _draw_frame(axes: Axes, plot: Plot) -> None:
    """Keep all that is not a curve in the background."""
    axes.set_title(plot.y_label, loc="left", fontsize=10.5, color=_INK, pad=8)
    axes.set_xlabel(plot.x_label, loc="right", color=_FAINT)
    if plot.y_range is not None:
        axes.set_ylim(*plot.y_range)
    if plot.is_log:
        axes.set_xscale("log")
        axes.set_xlim(left=_first_seen(plot))
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(_locator())
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    axes.yaxis.set_major_locator(_locator() if plot.has_y_ticks else NullLocator())
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set(color=_FAINT, linewidth=0.8)
    axes.tick_params(axis="x", color=_FAINT, labelcolor=_FAINT, length=3)
    axes.tick_params(axis="y", labelcolor=_FAINT, length=0)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _first_seen(plot: Plot) -> float | None:
    """Return where the first curve comes into sight: decades before would be empty."""
    low = -np.inf if plot.y_range is None else plot.y_range[0]
    starts = [line.x[line.y >= low] for line in plot.lines]
    return min((0.8 * float(x.min()) for x in starts if len(x)), default=None)


def _locator() -> MaxNLocator:
    return MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])


def _tick(value: float, _: int | None) -> str:
    """Write large numbers short: 20M, 500k."""
    short = EngFormatter(sep="")(value) if abs(value) >= 1000 else f"{value:g}"
    return short.replace("-", "\N{MINUS SIGN}")


def _inline(text: str, label: str) -> Markup:
    """Turn a file of Matplotlib's into an element of the page."""
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", r"<svg \1>", text, count=1)
    # A style element would hold for the whole page; names of groups would not be unique in it.
    text = re.sub(r"\s*<style.*?</style>|<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r" font-family: [^;\"]*;?", "", text).replace("xlink:href", "href")
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, variable)
    opening = Markup('<svg class="plot" role="img" aria-label="{}" ').format(label)
    return opening + Markup(text.removeprefix("<svg "))
