"""The table, the page, the picture and the numbers of figure 1."""

import time
from pathlib import Path

import numpy as np
from rich.table import Table

from aisle.errors import check_seed
from aisle.provenance import provenance
from paper.figure1 import study
from paper.figure1.picture import CostCurve, DensityPanel, Distances, save_comparison
from paper.figure1.study import SamplerResult, SamplerStudy, comparisons, verdict
from paper.figure1.target import BINS_PER_AXIS, NUM_BATCHES
from paper.output import (
    Columns,
    check_writable,
    make_folder,
    markdown_table,
    show,
    write_json,
    write_text,
)

_NAMES = {"target": "target, exact draws", "proposal": "proposal", "is": "IS", "ais": "AIS"}

# Safe for colour-blind readers (Okabe & Ito, 2008).
_COLORS = {"target": "#6b6b6b", "proposal": "#6b6b6b", "is": "#D55E00", "ais": "#0072B2"}

_DISTANCE = "KL(sampler ‖ target) in nats, over bins of equal probability under the target"

_TIMES = "\N{MULTIPLICATION SIGN}"

_COLUMNS: Columns = {
    "sampler": "left",
    "cost": "right",
    f"K, or L {_TIMES} K {_TIMES} T": "right",
    "real cost": "right",
    "KL to the target": "right",
    "long-axis variance": "right",
    "closer": "left",
}


def reproduce(out: Path, num_draws: int, correlation: float, seed: int) -> None:
    """Run the study, write its files into `out` and print its table."""
    check_seed(seed)
    study.check_arguments(num_draws, correlation)
    picture, page, numbers = paths = [out / f"figure1.{end}" for end in ("png", "md", "json")]
    make_folder(out)
    for path in paths:
        check_writable(path, path.suffix)
    start = time.perf_counter()
    found = study.measure(seed, num_draws, correlation)
    settings = {"num_draws": num_draws, "seed": seed, "seconds": time.perf_counter() - start}
    _save_picture(picture, found)
    write_text(page, _page(found, num_draws))
    write_json(numbers, _content(found) | settings)
    show(_table(found), verdict(found.results), *paths)


def _table(found: SamplerStudy) -> Table:
    table = Table(title=_DISTANCE, title_justify="left")
    for heading, justify in _COLUMNS.items():
        table.add_column(heading, justify=justify)
    for number, texts in enumerate(_texts(found)):
        table.add_row(*texts, end_section=number % 2 == 1)
    return table


def _texts(found: SamplerStudy) -> list[list[str]]:
    """Return the table's rows; each AIS stands below the IS that it is compared with."""
    verdicts = {c.cost: f"{c.closer}, z = {c.z:.1f}" for c in comparisons(found.results)}
    texts = []
    for result in found.results:
        is_control, is_annealed = result.truth is not None, result.sampler == "ais"
        control = f"must be {result.truth:.4f}, z = {result.control_z:.1f}" if is_control else ""
        texts.append(
            [
                _NAMES[result.sampler],
                "" if is_control else f"{result.cost:,}",
                "" if is_control else _parts(result),
                "" if is_control else _real_cost(result),
                f"{result.divergence:.4f} ± {result.standard_error:.4f}",
                f"{result.long_variance:.3f} ± {result.long_variance_error:.3f}",
                verdicts[result.cost] if is_annealed else control,
            ]
        )
    return texts


def _parts(result: SamplerResult) -> str:
    numbers = (result.num_leapfrog, result.num_samples, result.num_temperatures)
    return f" {_TIMES} ".join(f"{n:,}" for n in numbers if n)


def _real_cost(result: SamplerResult) -> str:
    if result.gradients:
        return f"{result.gradients:,} gradients"
    return f"{result.evaluations:,} values"


def _page(found: SamplerStudy, num_draws: int) -> str:
    """Return the table in Markdown, with what it shows."""
    about = (
        f"{_DISTANCE}, of which there are {BINS_PER_AXIS**2:,}: a lower bound of the KL of the "
        "densities. The target has two variables of variance 1 with a correlation of "
        f"{found.correlation:g}; the proposal is the independent normal that minimises the KL to "
        f"it. {num_draws:,} draws each; standard errors by a jackknife over {NUM_BATCHES} "
        "batches. Cost is the paper's count, the real cost a draw's values or gradients of log p. "
        "The variance along the long axis is a share of the target's."
    )
    table = markdown_table(_COLUMNS, _texts(found))
    title = "# Figure 1: q_IS and q_AIS at the same cost"
    return "\n\n".join([title, about, table, verdict(found.results)]) + "\n"


def _content(found: SamplerStudy) -> dict[str, object]:
    """Return everything that was measured, with what it was measured by."""
    return {
        "verdict": verdict(found.results),
        "rows": [result._asdict() for result in found.results],
        "comparisons": [c._asdict() for c in comparisons(found.results)],
        "distance": _DISTANCE,
        "num_bins": BINS_PER_AXIS**2,
        "num_batches": NUM_BATCHES,
        "correlation": found.correlation,
        "schedule": "linear",
        "step_sizes": [
            {"num_leapfrog": L, "num_temperatures": T, "values": values}
            for (L, T), values in found.step_sizes.items()
        ],
        **provenance(),
    }


def _save_picture(path: Path, found: SamplerStudy) -> None:
    target, proposal = found.results[:2]
    curves = [_curve(sampler, found.results) for sampler in ("is", "ais")]
    panels = [_panel(*pair) for pair in zip(found.results, found.draws, strict=True)]
    save_comparison(
        path,
        [[panels[1], *panels[2::2]], [panels[0], *panels[3::2]]],
        np.array([[1, found.correlation], [found.correlation, 1]]),
        Distances(
            "KL to the target in nats, ± 2 standard errors",
            curves,
            proposal.divergence,
            2 * target.standard_error,
        ),
        "Lines hold 50, 90 and 99 % of the target. Shades: density of the draws, on one scale. "
        f"AIS: leapfrog steps {_TIMES} chains {_TIMES} temperatures.",
    )


def _panel(result: SamplerResult, draws: np.ndarray) -> DensityPanel:
    title = _NAMES[result.sampler]
    if result.sampler == "is":
        title = f"IS, K = {result.num_samples:,}"
    if result.sampler == "ais":
        title = f"AIS, {_parts(result)} = {result.cost:,}"
    note = f"KL {result.divergence:z.3f} ± {result.standard_error:.3f}"
    return DensityPanel(title, note, _COLORS[result.sampler], draws)


def _curve(sampler: str, results: list[SamplerResult]) -> CostCurve:
    own = [result for result in results if result.sampler == sampler]
    costs, distances, errors = zip(
        *((result.cost, result.divergence, result.standard_error) for result in own), strict=True
    )
    return CostCurve(_NAMES[sampler], _COLORS[sampler], costs, distances, errors)
