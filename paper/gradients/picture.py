"""The figure of gradient estimators: bias and noise of each, and bias by the number of moves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from paper.pictures import FAINT, INK, quieten, save_figure

# Height of a line of a dot plot, and widths of the parts of the figure, in inches.
_LINE, _DOTS_WIDTH, _CURVE_WIDTH = 0.3, 8.6, 4.4


class Series(NamedTuple):
    """One number for each estimator, with the ends of its error bars."""

    name: str
    color: str
    marker: str
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


class DotPanel(NamedTuple):
    """A dot plot; all panels list the same estimators."""

    title: str
    label: str
    series: Sequence[Series]


class BiasCurve(NamedTuple):
    """An estimator's bias by its transitions, with standard errors."""

    name: str
    color: str
    marker: str
    transitions: Sequence[int]
    values: Sequence[float]
    errors: Sequence[float]


class Curves(NamedTuple):
    """The panel of curves."""

    title: str
    label: str
    curves: Sequence[BiasCurve]


def save_gradients(
    path: Path,
    names: Sequence[str],
    rows: Sequence[Sequence[DotPanel]],
    curves: Curves,
    caption: str,
) -> None:
    """Draw rows of dot plots, a line for each estimator, and the curves beside them.

    Args:
        path: PNG file to write.
        names: of the estimators, from the top; those that others are compared with come first.
        rows: panels, as many in each row.
        curves: of the plot on the right.
        caption: what the bars are, in a line below.
    """
    height = len(rows) * (_LINE * len(names) + 1.0) + 0.5
    figure = Figure(figsize=(_DOTS_WIDTH + _CURVE_WIDTH, max(height, 4.5)), facecolor="white")
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained", wspace=0.02, hspace=0.04)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(_DOTS_WIDTH, _CURVE_WIDTH))[
        0
    ]
    grid = left.subplots(len(rows), len(rows[0]), squeeze=False, sharex="col", sharey=True)
    for axes, panel in zip(grid.flat, [p for row in rows for p in row], strict=True):
        _draw_dots(axes, names, panel)
    _draw_legend(grid[0, -1], rows[0][-1].series)
    left.supxlabel(caption, fontsize=8.5, color=INK)
    _draw_curves(right.subplots(), curves)
    save_figure(figure, path, dpi=160)


def _draw_dots(axes: Axes, names: Sequence[str], panel: DotPanel) -> None:
    places = np.arange(len(names), dtype=float)
    for place in places[::2]:
        axes.axhspan(place - 0.5, place + 0.5, color="#f3f3f3", linewidth=0)
    # The series stand one above the other, so that their bars do not hide each other.
    offsets = np.linspace(-0.18, 0.18, len(panel.series))
    for offset, series in zip(offsets, panel.series, strict=True):
        values = np.asarray(series.values)
        axes.errorbar(
            values,
            places + offset,
            xerr=[values - series.lows, np.asarray(series.highs) - values],
            **_style(series.color, series.marker, line="none"),
        )
    axes.set_yticks(places, names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_title(panel.title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel(panel.label, fontsize=9, color=INK)
    quieten(axes)
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.tick_params(axis="x", labelbottom=True)


def _draw_legend(axes: Axes, series: Sequence[Series]) -> None:
    for one in series:
        axes.errorbar([], [], xerr=[], label=one.name, **_style(one.color, one.marker, "none"))
    axes.legend(fontsize=8.5, frameon=True, edgecolor="none", framealpha=0.9, loc="lower right")


def _draw_curves(axes: Axes, plot: Curves) -> None:
    axes.axhline(0, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    # A little apart, so that their bars do not hide each other.
    for shift, curve in zip(np.geomspace(0.97, 1.03, len(plot.curves)), plot.curves, strict=True):
        axes.errorbar(
            shift * np.asarray(curve.transitions),
            curve.values,
            yerr=2 * np.asarray(curve.errors),
            label=curve.name,
            **_style(curve.color, curve.marker, line="-"),
        )
    ticks = sorted({number for curve in plot.curves for number in curve.transitions})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(number) for number in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("transitions of a chain, T", fontsize=9, color=INK)
    axes.set_ylabel(plot.label, fontsize=9, color=INK)
    axes.set_title(plot.title, fontsize=10, color=INK, loc="left")
    axes.legend(fontsize=8.5, frameon=False)
    quieten(axes)


def _style(color: str, marker: str, line: str) -> dict[str, Any]:
    return {
        "color": color,
        "marker": marker,
        "markersize": 5.5,
        "linestyle": line,
        "linewidth": 1.5,
        "capsize": 2.5,
        "elinewidth": 1.2,
    }
