"""`aisle gradients`."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from aisle.cli.devices import set_up_jax
from aisle.cli.output import (
    Columns,
    csv_text,
    markdown_table,
    screen_table,
    table_console,
    write_json,
    write_text,
)
from aisle.cli.sample import RunPath
from aisle.experiments.options import optional

if TYPE_CHECKING:
    from aisle.experiments.gradient_table import Row
    from aisle.experiments.gradients import Outcome
    from aisle.report.gradients import Curve, Curves, Panel, Series

_COLUMNS: Columns = {
    "estimator": "left",
    "bias": "right",
    "noise": "right",
    "both": "right",
    "log p(x, z)": "right",
    "effective": "right",
    "accepted": "right",
}

# Safe for colour-blind readers (Okabe & Ito, 2008).
_KERNEL_STYLES = {"paper": ("#D55E00", "o"), "tuned": ("#0072B2", "s")}
_CURVE_STYLES = (("#E69F00", "D"), ("#009E73", "v"), ("#CC79A7", "^"))


@dataclass
class Gradients:
    """Measure the bias and the noise of gradient estimators on a trained model.

    For example: aisle gradients runs/mnist --temperatures 5 11

    The gradient of log p(x) in the decoder's weights is a posterior mean, which long annealing runs
    find out. The short chains of training estimate it: by AIS, by MH-HMC and by schedules and
    weights between both, at equal cost, with the paper's kernel and with the tuned one. A
    measurement that was killed goes on with the same command.
    """

    run_path: Positional[RunPath]
    """Folder of a training run."""

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the results; by default gradients in the run's folder."""

    num_examples: int = 128
    """Test examples, spread evenly.
    The norm depends on their number: compare only where it is equal."""

    repeats: int = 32
    """Independent estimates of the same examples: the more, the smaller the error bars."""

    num_samples: Annotated[int, arg(aliases=["-K"])] = 5
    """K: chains for each example."""

    temperatures: tuple[int, ...] = (5, 11)
    """T: transitions of a chain with the paper's kernel."""

    num_leapfrog: Annotated[int, arg(aliases=["-L"])] = 5
    """L: leapfrog steps of a transition with the paper's kernel."""

    seed: int = 0
    """Seed of all draws."""

    data_dir: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the named data sets, or of the file, if it has moved since training."""

    def run(self) -> int:
        """Measure, print the table and write the files."""
        set_up_jax()
        from aisle.experiments import gradients
        from aisle.experiments.gradient_bench import Settings
        from aisle.experiments.gradient_table import verdict

        settings = Settings(
            self.num_examples,
            self.repeats,
            self.num_samples,
            self.temperatures,
            self.num_leapfrog,
            self.seed,
        )
        try:
            outcome, folder = gradients.run(
                self.run_path, settings, out=self.out, data_dir=self.data_dir
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on where it was") from None
        paths = _save(outcome, folder, self.run_path)
        console = table_console()
        for heading, rows in _groups(outcome):
            console.print(screen_table(heading, _COLUMNS, [_texts(row) for row in rows]))
        for line in (*_about(outcome), *verdict(outcome.rows), *map(str, paths)):
            console.print(line, soft_wrap=True, highlight=False)
        return 0


def _save(outcome: "Outcome", folder: Path, run_path: Path) -> list[Path]:
    figures, page, table, picture = paths = [
        folder / f"gradients.{end}" for end in ("json", "md", "csv", "png")
    ]
    write_json(figures, _content(outcome, run_path))
    write_text(page, _page(outcome, run_path))
    write_text(table, csv_text([row._asdict() for row in (*outcome.rows, *outcome.curve)]))
    _save_picture(picture, outcome)
    return paths


def _content(outcome: "Outcome", run_path: Path) -> dict[str, object]:
    """Return everything that was measured, with what it was measured by."""
    from aisle.experiments.gradient_table import ESTIMATORS, verdict
    from aisle.experiments.gradients import BATCH
    from aisle.provenance import provenance

    reference = outcome.reference
    return {
        "verdict": verdict(outcome.rows),
        "run": run_path.resolve().name,
        "training": outcome.training,
        "config": outcome.settings._asdict(),
        "seed": outcome.settings.seed,
        "batch": BATCH,
        "reference": {
            "norm": reference.norm,
            "relative_noise": reference.relative_noise,
            "weights_change": reference.weights_change._asdict(),
            "effective_share": float(reference.effective_share.mean()),
            "smallest_effective_share": float(reference.effective_share.min()),
        },
        "estimators": {name: e._asdict() for name, e in ESTIMATORS.items()},
        "hybrid": outcome.hybrid,
        "rows": [row._asdict() for row in outcome.rows],
        "curve": [row._asdict() for row in outcome.curve],
        **provenance(),
    }


def _page(outcome: "Outcome", run_path: Path) -> str:
    """Return the table in Markdown, with what it shows."""
    from aisle.experiments.gradient_table import verdict

    lines = [f"# Gradients of log p(x) on {run_path}", *_about(outcome)]
    for heading, rows in _groups(outcome):
        lines += [f"## {heading}", markdown_table(_COLUMNS, [_texts(row) for row in rows])]
    lines += ["## What it says", *verdict(outcome.rows), "![](gradients.png)"]
    return "\n\n".join(lines) + "\n"


def _groups(outcome: "Outcome") -> list[tuple[str, list["Row"]]]:
    """Return the rows of the table below a heading for each kernel and cost, in one order."""
    from aisle.experiments.gradient_table import ESTIMATORS

    order, groups = list(ESTIMATORS), {}
    for row in sorted(outcome.rows, key=lambda row: order.index(row.estimator)):
        groups.setdefault((row.kernel, row.num_temperatures), []).append(row)
    return [(_heading(rows[0]), rows) for _, rows in sorted(groups.items())]


def _heading(row: "Row") -> str:
    return (
        f"{row.kernel} kernel, {row.num_transitions} transitions of {row.num_leapfrog} steps, "
        f"{row.gradients:,} gradients"
    )


def _texts(row: "Row") -> list[str]:
    return [
        row.estimator,
        _root(row.squared_bias, row.squared_bias_error),
        _root(row.squared_noise, row.squared_noise_error),
        _root(row.squared_total, row.squared_total_error),
        f"{row.log_joint_bias:+.2f} +- {row.log_joint_error:.2f}",
        f"{row.effective_sample_size:.2f}",
        f"{row.acceptance:.2f}",
    ]


def _root(square: float, error: float) -> str:
    """Write the root of a square with its error, or its limit where it cannot be told from 0."""
    if not square > 2 * error:
        return f"< {_bar(square, error)[1]:.3f}"
    return f"{math.sqrt(square):.3f} +- {error / (2 * math.sqrt(square)):.3f}"


def _bar(square: float, error: float) -> tuple[float, float]:
    """Return the roots of what lies two standard errors to both sides."""
    low, high = (max(square + side * error, 0.0) for side in (-2, 2))
    return math.sqrt(low), math.sqrt(high)


def _about(outcome: "Outcome") -> list[str]:
    """Say what the columns are, and what the reference is worth."""
    from aisle.experiments.gradients import BATCH

    settings, reference = outcome.settings, outcome.reference
    change = reference.weights_change
    return [
        "Bias and noise are those of the gradient of log p(x) in the decoder's weights, as shares "
        f"of its norm. Noise is that of the chains in a batch of {BATCH}, and both is the root of "
        "the sum of squares; +- is a standard error. log p(x, z): its mean under the samples less "
        "its posterior mean, in nats. Effective: chains that the weights leave of "
        f"{settings.num_samples}.",
        f"Reference: {settings.reference_parts * settings.reference_chains} chains of "
        f"{settings.reference_temperatures:,} temperatures for each of {change.num_examples} test "
        f"examples; norm {reference.norm:.2f}, noise {reference.relative_noise:.3f} of it; weights "
        f"change its mean of log p(x, z) by {change.mean:+.3f} +- {change.standard_error:.3f}.",
    ]


def _save_picture(path: Path, outcome: "Outcome") -> None:
    from aisle.experiments.gradient_table import ESTIMATORS
    from aisle.experiments.gradients import BATCH
    from aisle.report.gradients import save_gradients

    rows = [_panels(outcome, T) for T in outcome.settings.temperatures]
    caption = (
        f"Bars: two standard errors to both sides. Noise: of the chains, in a batch of {BATCH}. "
        "Tuned kernel: at equal cost."
    )
    save_gradients(path, list(ESTIMATORS), rows, _curves(outcome), caption)


def _panels(outcome: "Outcome", num_temperatures: int) -> list["Panel"]:
    from aisle.report.gradients import Panel

    L = outcome.settings.num_leapfrog
    titles = (f"T = {num_temperatures}, L = {L}: bias", f"T = {num_temperatures}, L = {L}: noise")
    labels = ("bias / norm of the gradient", "noise / norm of the gradient")
    fields = ("squared_bias", "squared_noise")
    own = [row for row in outcome.rows if row.num_temperatures == num_temperatures]
    return [
        Panel(title, label, [_series(own, kernel, field) for kernel in _KERNEL_STYLES])
        for title, label, field in zip(titles, labels, fields, strict=True)
    ]


def _series(rows: list["Row"], kernel: str, field: str) -> "Series":
    from aisle.experiments.gradient_table import ESTIMATORS
    from aisle.report.gradients import Series

    own = {row.estimator: row for row in rows if row.kernel == kernel}
    squares = [getattr(own[name], field) for name in ESTIMATORS]
    errors = [getattr(own[name], f"{field}_error") for name in ESTIMATORS]
    lows, highs = zip(*map(_bar, squares, errors), strict=True)
    values = [math.sqrt(max(square, 0.0)) for square in squares]
    return Series(f"{kernel} kernel", *_KERNEL_STYLES[kernel], values, lows, highs)


def _curves(outcome: "Outcome") -> "Curves":
    from aisle.experiments.gradients import curve_names
    from aisle.report.gradients import Curves

    rows = [row for row in (*outcome.rows, *outcome.curve) if row.kernel == "paper"]
    names = zip(curve_names(outcome.hybrid), _CURVE_STYLES, strict=True)
    return Curves(
        f"paper kernel, L = {outcome.settings.num_leapfrog}: log p(x, z)",
        "mean of log p(x, z) less its posterior mean, in nats, ± 2 standard errors",
        [_curve(name, style, rows) for name, style in names],
    )


def _curve(name: str, style: tuple[str, str], rows: list["Row"]) -> "Curve":
    from aisle.report.gradients import Curve

    own = sorted(
        (row.num_transitions, row.log_joint_bias, row.log_joint_error)
        for row in rows
        if row.estimator == name
    )
    return Curve(name, *style, *zip(*own, strict=True))
