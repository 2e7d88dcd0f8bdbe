"""What the measurement of gradients prints, writes and draws."""

import math
from pathlib import Path

from aisle.provenance import provenance
from paper.gradients import study as measurement
from paper.gradients.bench import Settings
from paper.gradients.estimators import ESTIMATORS, EstimatorResult
from paper.gradients.picture import BiasCurve, Curves, DotPanel, Series, save_gradients
from paper.gradients.study import BATCH, GradientStudy, curve_names
from paper.gradients.verdicts import verdict
from paper.output import (
    Columns,
    csv_text,
    markdown_table,
    screen_table,
    show,
    write_json,
    write_text,
)

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


def reproduce(run_path: Path, settings: Settings, out: Path | None, data_dir: Path | None) -> None:
    """Measure, print the table and write the files."""
    study, folder = measurement.measure_run(run_path, settings, out=out, data_dir=data_dir)
    paths = _save(study, folder, run_path)
    for heading, results in _groups(study):
        lines = [_texts(result) for result in results]
        show(screen_table(heading, _COLUMNS, lines))
    show(*_about(study), *verdict(study.results), *paths)


def _save(study: GradientStudy, folder: Path, run_path: Path) -> list[Path]:
    numbers, page, table, picture = paths = [
        folder / f"gradients.{end}" for end in ("json", "md", "csv", "png")
    ]
    write_json(numbers, _content(study, run_path))
    write_text(page, _page(study, run_path))
    write_text(table, csv_text([result._asdict() for result in (*study.results, *study.curve)]))
    _save_picture(picture, study)
    return paths


def _content(study: GradientStudy, run_path: Path) -> dict[str, object]:
    """Return everything that was measured, with what it was measured by."""
    reference = study.reference
    return {
        "verdict": verdict(study.results),
        "run": run_path.resolve().name,
        "training": study.training,
        "config": study.settings._asdict(),
        "seed": study.settings.seed,
        "batch": BATCH,
        "reference": {
            "norm": reference.norm,
            "relative_noise": reference.relative_noise,
            "weights_change": reference.weights_change._asdict(),
            "effective_share": float(reference.effective_share.mean()),
            "smallest_effective_share": float(reference.effective_share.min()),
        },
        "estimators": {name: e._asdict() for name, e in ESTIMATORS.items()},
        "hybrid": study.hybrid,
        "rows": [result._asdict() for result in study.results],
        "curve": [result._asdict() for result in study.curve],
        **provenance(),
    }


def _page(study: GradientStudy, run_path: Path) -> str:
    """Return the table in Markdown, with what it shows."""
    lines = [f"# Gradients of log p(x) on {run_path}", *_about(study)]
    for heading, results in _groups(study):
        lines += [f"## {heading}", markdown_table(_COLUMNS, [_texts(result) for result in results])]
    lines += ["## What it says", *verdict(study.results), "![](gradients.png)"]
    return "\n\n".join(lines) + "\n"


def _groups(study: GradientStudy) -> list[tuple[str, list[EstimatorResult]]]:
    """Return the results under a heading for each kernel and cost, in one order."""
    order, groups = list(ESTIMATORS), {}
    for result in sorted(study.results, key=lambda result: order.index(result.estimator)):
        groups.setdefault((result.kernel, result.num_temperatures), []).append(result)
    return [(_heading(results[0]), results) for _, results in sorted(groups.items())]


def _heading(result: EstimatorResult) -> str:
    return (
        f"{result.kernel} kernel, {result.num_transitions} transitions of "
        f"{result.num_leapfrog} steps, {result.gradients:,} gradients"
    )


def _texts(result: EstimatorResult) -> list[str]:
    return [
        result.estimator,
        _root(result.squared_bias, result.squared_bias_error),
        _root(result.squared_noise, result.squared_noise_error),
        _root(result.squared_total, result.squared_total_error),
        f"{result.log_joint_bias:+.2f} +- {result.log_joint_error:.2f}",
        f"{result.effective_sample_size:.2f}",
        f"{result.acceptance:.2f}",
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


def _about(study: GradientStudy) -> list[str]:
    """Say what the columns are, and what the reference is worth."""
    settings, reference = study.settings, study.reference
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


def _save_picture(path: Path, study: GradientStudy) -> None:
    panels = [_panels(study, T) for T in study.settings.temperatures]
    caption = (
        f"Bars: two standard errors to both sides. Noise: of the chains, in a batch of {BATCH}. "
        "Tuned kernel: at equal cost."
    )
    save_gradients(path, list(ESTIMATORS), panels, _curves(study), caption)


def _panels(study: GradientStudy, num_temperatures: int) -> list[DotPanel]:
    L = study.settings.num_leapfrog
    titles = (f"T = {num_temperatures}, L = {L}: bias", f"T = {num_temperatures}, L = {L}: noise")
    labels = ("bias / norm of the gradient", "noise / norm of the gradient")
    fields = ("squared_bias", "squared_noise")
    own = [result for result in study.results if result.num_temperatures == num_temperatures]
    return [
        DotPanel(title, label, [_series(own, kernel, field) for kernel in _KERNEL_STYLES])
        for title, label, field in zip(titles, labels, fields, strict=True)
    ]


def _series(results: list[EstimatorResult], kernel: str, field: str) -> Series:
    own = {result.estimator: result for result in results if result.kernel == kernel}
    squares = [getattr(own[name], field) for name in ESTIMATORS]
    errors = [getattr(own[name], f"{field}_error") for name in ESTIMATORS]
    lows, highs = zip(*map(_bar, squares, errors), strict=True)
    values = [math.sqrt(max(square, 0.0)) for square in squares]
    return Series(f"{kernel} kernel", *_KERNEL_STYLES[kernel], values, lows, highs)


def _curves(study: GradientStudy) -> Curves:
    results = [result for result in (*study.results, *study.curve) if result.kernel == "paper"]
    names = zip(curve_names(study.hybrid), _CURVE_STYLES, strict=True)
    return Curves(
        f"paper kernel, L = {study.settings.num_leapfrog}: log p(x, z)",
        "mean of log p(x, z) less its posterior mean, in nats, ± 2 standard errors",
        [_curve(name, style, results) for name, style in names],
    )


def _curve(name: str, style: tuple[str, str], results: list[EstimatorResult]) -> BiasCurve:
    own = sorted(
        (result.num_transitions, result.log_joint_bias, result.log_joint_error)
        for result in results
        if result.estimator == name
    )
    return BiasCurve(name, *style, *zip(*own, strict=True))
