"""What the pictures of the studies share."""

from matplotlib.axes import Axes

from aisle.report.pictures import save_figure

__all__ = ["FAINT", "INK", "quieten", "save_figure"]

INK, FAINT = "#222222", "#8a8a8a"


def quieten(axes: Axes) -> None:
    """Keep the frame in the background."""
    axes.tick_params(which="both", labelsize=8, length=2.5, color=FAINT, labelcolor=INK)
    axes.spines[:].set(color=FAINT, linewidth=0.6)
