"""What the pictures of the applications share."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from aisle.statistics import Mean

INK, FAINT = "#222222", "#8a8a8a"
COLOURS = ("#8a8a8a", "#1f78b4", "#33a02c", "#ff7f00", "#c0392b", "#6a3d9a")


_COLUMNS = 4


def panels(number: int, width: float = 4.0, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """Return a figure with some panels, in rows of at most four."""
    rows, columns = math.ceil(number / _COLUMNS), min(number, _COLUMNS)
    figure = Figure((width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for unused in axes[number:]:
        unused.remove()
    axes = axes[:number]
    for one in axes:
        one.tick_params(labelsize=8, length=2.5, color=FAINT, labelcolor=INK)
        one.spines[:].set(color=FAINT, linewidth=0.6)
    return figure, axes


def intervals(axes: Axes, names: Sequence[str], values: Sequence[Mean], title: str) -> None:
    """Draw means with two standard errors, a line for each name, the first on top."""
    for i, value in enumerate(values):
        axes.errorbar(
            value.mean, i, xerr=2 * value.standard_error, fmt="o", ms=4, lw=1.2, color=COLOURS[1]
        )
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(title, fontsize=9, color=INK)
