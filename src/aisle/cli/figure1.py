"""`aisle reproduce figure1`: the table, the page, the picture and the file of figures."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table

from aisle.cli.output import (
    check_writable,
    make_folder,
    markdown_table,
    table_console,
    write_json,
    write_text,
)
from aisle.errors import check_seed

if TYPE_CHECKING:
    import numpy as np

    from aisle.experiments.figure1 import Outcome, Row
    from aisle.report.figure1 import Curve, Panel

_NAMES = {"target": "target, exact draws", "proposal": "proposal", "is": "IS", "ais": "AIS"}

# Safe for colour-blind readers (Okabe & Ito, 2008).
_COLORS = {"target": "#6b6b6b", "proposal": "#6b6b6b", "is": "#D55E00", "ais": "#0072B2"}

_DISTANCE = "KL(sampler ‖ target) in nats, over cells of equal probability under the target"

_TIMES = "\N{MULTIPLICATION SIGN}"

# Headings, and how their columns are justified.
_COLUMNS: dict[str, Literal["left", "right"]] = {
    "sampler": "left",
    "cost": "right",
    f"K, or L {_TIMES} K {_TIMES} T": "right",
    "real cost": "right",
    "KL to the target": "right",
    "long-axis variance": "right",
    "closer": "left",
}


def reproduce(out: Path, num_draws: int, correlation: float, seed: int) -> int:
    """Run the experiment, write its files into `out` and print its table."""
    from aisle.experiments import figure1

    check_seed(seed)
    figure1.check_arguments(num_draws, correlation)
    picture, page, figures = paths = [out / f"figure1.{end}" for end in ("png", "md", "json")]
    make_folder(out)
    for path in paths:
        check_writable(path, path.suffix)
    start = time.perf_counter()
    outcome = figure1.run(seed, num_draws, correlation)
    settings = {"num_draws": num_draws, "seed": seed, "seconds": time.perf_counter() - start}
    _save_picture(picture, outcome)
    write_text(page, _page(outcome, num_draws))
    write_json(figures, _content(outcome) | settings)
    console = table_console()
    console.print(_table(outcome))
    for line in (figure1.verdict(outcome.rows), *map(str, paths)):
        console.print(line, soft_wrap=True, highlight=False)
    return 0


def _table(outcome: "Outcome") -> Table:
    table = Table(title=_DISTANCE, title_justify="left")
    for heading, justify in _COLUMNS.items():
        table.add_column(heading, justify=justify)
    for number, texts in enumerate(_texts(outcome)):
        table.add_row(*texts, end_section=number % 2 == 1)
    return table


def _texts(outcome: "Outcome") -> list[list[str]]:
    """Return the table's rows; each AIS stands below the IS that it is compared with."""
    from aisle.experiments.figure1 import comparisons

    verdicts = {c.budget: f"{c.closer}, z = {c.z:.1f}" for c in comparisons(outcome.rows)}
    texts = []
    for row in outcome.rows:
        is_control, is_annealed = row.truth is not None, row.sampler == "ais"
        control = f"must be {row.truth:.4f}, z = {row.control_z:.1f}" if is_control else ""
        texts.append(
            [
                _NAMES[row.sampler],
                "" if is_control else f"{row.budget:,}",
                "" if is_control else _parts(row),
                "" if is_control else _real_cost(row),
                f"{row.divergence:.4f} ± {row.standard_error:.4f}",
                f"{row.long_variance:.3f} ± {row.long_variance_error:.3f}",
                verdicts[row.budget] if is_annealed else control,
            ]
        )
    return texts


def _parts(row: "Row") -> str:
    numbers = (row.num_leapfrog, row.num_samples, row.num_temperatures)
    return f" {_TIMES} ".join(f"{n:,}" for n in numbers if n)


def _real_cost(row: "Row") -> str:
    return f"{row.gradients:,} gradients" if row.gradients else f"{row.evaluations:,} values"


def _page(outcome: "Outcome", num_draws: int) -> str:
    """Return the table in Markdown, with what it shows."""
    from aisle.experiments import figure1

    about = (
        f"{_DISTANCE}, of which there are {figure1.NUM_CELLS**2:,}: a lower bound of the KL of the "
        "densities. The target has two variables of variance 1 with a correlation of "
        f"{outcome.correlation:g}; the proposal is the independent normal that minimises the KL to "
        f"it. {num_draws:,} draws each; standard errors by a jackknife over {figure1.NUM_BATCHES} "
        "batches. Cost is the paper's count, the real cost a draw's values or gradients of log p. "
        "The variance along the long axis is a share of the target's."
    )
    table = markdown_table(_COLUMNS, _texts(outcome))
    title, verdict = "# Figure 1: q_IS and q_AIS at the same cost", figure1.verdict(outcome.rows)
    return "\n\n".join([title, about, table, verdict]) + "\n"


def _content(outcome: "Outcome") -> dict[str, object]:
    """Return everything that was measured, with what it was measured by."""
    from aisle.experiments import figure1
    from aisle.provenance import provenance

    return {
        "verdict": figure1.verdict(outcome.rows),
        "rows": [row._asdict() for row in outcome.rows],
        "comparisons": [c._asdict() for c in figure1.comparisons(outcome.rows)],
        "distance": _DISTANCE,
        "num_cells": figure1.NUM_CELLS**2,
        "num_batches": figure1.NUM_BATCHES,
        "correlation": outcome.correlation,
        "schedule": "linear",
        "step_sizes": [
            {"num_leapfrog": L, "num_temperatures": T, "values": values}
            for (L, T), values in outcome.step_sizes.items()
        ],
        **provenance(),
    }


def _save_picture(path: Path, outcome: "Outcome") -> None:
    import numpy as np

    from aisle.report.figure1 import Distances, save_comparison

    target, proposal = outcome.rows[:2]
    curves = [_curve(sampler, outcome.rows) for sampler in ("is", "ais")]
    panels = [_panel(*pair) for pair in zip(outcome.rows, outcome.draws, strict=True)]
    save_comparison(
        path,
        [[panels[1], *panels[2::2]], [panels[0], *panels[3::2]]],
        np.array([[1, outcome.correlation], [outcome.correlation, 1]]),
        Distances(
            "KL to the target in nats, ± 2 standard errors",
            curves,
            proposal.divergence,
            2 * target.standard_error,
        ),
        "Lines hold 50, 90 and 99 % of the target. Shades: density of the draws, on one scale. "
        f"AIS: leapfrog steps {_TIMES} chains {_TIMES} temperatures.",
    )


def _panel(row: "Row", draws: "np.ndarray") -> "Panel":
    from aisle.report.figure1 import Panel

    title = _NAMES[row.sampler]
    if row.sampler == "is":
        title = f"IS, K = {row.num_samples:,}"
    if row.sampler == "ais":
        title = f"AIS, {_parts(row)} = {row.budget:,}"
    note = f"KL {row.divergence:z.3f} ± {row.standard_error:.3f}"
    return Panel(title, note, _COLORS[row.sampler], draws)


def _curve(sampler: str, rows: list["Row"]) -> "Curve":
    from aisle.report.figure1 import Curve

    own = [row for row in rows if row.sampler == sampler]
    costs, distances, errors = zip(
        *((row.budget, row.divergence, row.standard_error) for row in own), strict=True
    )
    return Curve(_NAMES[sampler], _COLORS[sampler], costs, distances, errors)
