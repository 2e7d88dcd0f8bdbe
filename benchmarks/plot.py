"""Time and memory of an update against K and T, from benchmarks/latest.json."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt


def plot_scaling(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw time and memory against K at T = 11, and against T at K = 5."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for axis, letter, fixed in zip(axes, "KT", ({"T": 11}, {"K": 5}), strict=True):
        (name, value) = next(iter(fixed.items()))
        chosen = sorted((r for r in rows if r[name] == value), key=lambda r: r[letter])
        _draw(axis, [r[letter] for r in chosen], chosen)
        axis.set(xlabel=letter, title=f"{name} = {value}")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw(axis: Any, xs: list[int], rows: list[dict[str, Any]]) -> None:
    seconds = [row["seconds"] for row in rows]
    (line,) = axis.plot(xs, seconds, "o-", label="seconds")
    axis.set_xlim(0, None)
    axis.set_ylim(0, None)
    axis.set_ylabel("seconds of an update", color=line.get_color())
    memory = axis.twinx()
    megabytes = [row["bytes"] / 1e6 for row in rows]
    (line,) = memory.plot(xs, megabytes, "s--", color="tab:orange", label="memory")
    memory.set_ylim(0, 2 * max(megabytes))
    memory.set_ylabel("MB of temporary arrays, a device", color=line.get_color())
