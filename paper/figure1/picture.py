"""The figure of two samplers beside their target: densities by cost, and distances."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from scipy.ndimage import gaussian_filter

from paper.pictures import FAINT, INK, quieten, save_figure

# Half the width of a panel, the bins along it, and the bins that a density is smoothed over.
_REACH, _NUM_BINS, _SMOOTHING = 3.2, 128, 1.2

# Shares of the target's mass inside its contours.
_MASSES = (0.5, 0.9, 0.99)


class DensityPanel(NamedTuple):
    """Draws of one sampler at one cost, an array of points."""

    title: str
    note: str
    color: str
    draws: np.ndarray


class CostCurve(NamedTuple):
    """A sampler's distances to the target by cost, with standard errors."""

    name: str
    color: str
    costs: Sequence[int]
    distances: Sequence[float]
    errors: Sequence[float]


class Distances(NamedTuple):
    """The plot of distances.

    Attributes:
        start: distance of the proposal itself.
        noise: distance that cannot be told from 0.
    """

    label: str
    curves: Sequence[CostCurve]
    start: float
    noise: float


def save_comparison(
    path: Path,
    rows: Sequence[Sequence[DensityPanel]],
    covariance: np.ndarray,
    distances: Distances,
    caption: str,
) -> None:
    """Draw rows of densities with the target's contours, and the distances beside them.

    Args:
        path: PNG file to write.
        rows: panels, as many in each row.
        covariance: of the target, a normal distribution of two variables of mean 0.
        distances: of the plot on the right.
        caption: what the densities are, in a line below them.
    """
    width = 2.0 * len(rows[0])
    figure = Figure(figsize=(width + 4.0, 2.15 * len(rows) + 0.4), facecolor="white")
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained", wspace=0.02, hspace=0.02)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(width, 4.0))[0]
    grid = left.subplots(len(rows), len(rows[0]), squeeze=False, sharex=True, sharey=True)
    panels = [panel for row in rows for panel in row]
    densities = [_density(panel.draws) for panel in panels]
    for axes, panel, density in zip(grid.flat, panels, densities, strict=True):
        _draw_density(axes, density, panel.color, highest=np.max(densities))
        _draw_contours(axes, covariance)
        _label(axes, panel)
    left.supxlabel(caption, fontsize=8.5, color=INK)
    _draw_distances(right.subplots(), distances)
    save_figure(figure, path, dpi=200)


def _density(draws: np.ndarray) -> np.ndarray:
    edges = np.linspace(-_REACH, _REACH, _NUM_BINS + 1)
    counts = np.histogram2d(draws[:, 0], draws[:, 1], bins=(edges, edges))[0]
    return gaussian_filter(counts, _SMOOTHING) / (len(draws) * (edges[1] - edges[0]) ** 2)


def _draw_density(axes: Axes, density: np.ndarray, color: str, highest: float) -> None:
    axes.imshow(
        density.T,
        origin="lower",
        extent=(-_REACH, _REACH, -_REACH, _REACH),
        cmap=LinearSegmentedColormap.from_list("", ["white", color, "black"]),
        # The root lifts the tails, where the samplers differ, out of the white.
        norm=PowerNorm(0.5, vmin=0, vmax=highest),
        interpolation="bilinear",
    )


def _draw_contours(axes: Axes, covariance: np.ndarray) -> None:
    """Draw the ellipses that hold given shares of a normal distribution."""
    angles = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    for mass in _MASSES:
        ellipse = np.sqrt(-2 * np.log(1 - mass)) * np.linalg.cholesky(covariance) @ circle
        axes.plot(*ellipse, color=INK, linewidth=0.7)


def _label(axes: Axes, panel: DensityPanel) -> None:
    axes.set_title(panel.title, fontsize=9, color=INK, pad=4)
    axes.text(0.05, 0.95, panel.note, transform=axes.transAxes, fontsize=8, va="top", color=INK)
    axes.set(xlim=(-_REACH, _REACH), ylim=(-_REACH, _REACH))
    axes.set(xticks=(-2, 0, 2), yticks=(-2, 0, 2))
    quieten(axes)


def _draw_distances(axes: Axes, plot: Distances) -> None:
    axes.set(xscale="log", xlabel="cost of a draw", ylabel=plot.label)
    axes.set_yscale("log", nonpositive="clip")
    axes.axhline(plot.start, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    axes.axhspan(plot.noise / 100, plot.noise, color="#e8e8e8", linewidth=0)
    axes.set_ylim(plot.noise / 2, 2 * max(plot.start, 2 * plot.noise))
    for curve in plot.curves:
        _draw_curve(axes, curve)
    costs = plot.curves[0].costs
    axes.set_xlim(min(costs) / 1.6, 2.4 * max(costs))
    axes.set_xticks(costs, [f"{cost:,}" for cost in costs])
    axes.xaxis.set_minor_locator(NullLocator())
    words = {"fontsize": 8, "color": "#555555"}
    axes.text(max(costs), 1.07 * plot.start, "the proposal itself", ha="right", **words)
    axes.text(
        max(costs),
        0.7 * plot.noise,
        "within the noise of exact draws",
        ha="right",
        va="center",
        **words,
    )
    quieten(axes)


def _draw_curve(axes: Axes, curve: CostCurve) -> None:
    axes.errorbar(
        curve.costs,
        curve.distances,
        yerr=2 * np.asarray(curve.errors),
        color=curve.color,
        marker="o",
        markersize=5,
        linewidth=1.6,
        capsize=3,
    )
    axes.annotate(
        curve.name,
        (curve.costs[-1], curve.distances[-1]),
        xytext=(9, 0),
        textcoords="offset points",
        va="center",
        color=curve.color,
        fontsize=11,
        fontweight="bold",
    )
