"""`aisle kernels`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from aisle.cli.devices import set_up_jax
from aisle.cli.output import (
    Columns,
    csv_text,
    markdown_table,
    screen_table,
    table_console,
    with_error,
    write_json,
    write_text,
)
from aisle.cli.sample import RunPath
from aisle.experiments.options import optional

if TYPE_CHECKING:
    from rich.console import Console

    from aisle.evaluation import LogLikelihood
    from aisle.experiments.kernels import Row, Study

_TITLE = "log p(x) less the mean log-weight of one chain, in nats, for so many leapfrog steps"

# A truth that may be too low by more than this is not called one.
_LARGEST_GAP = 0.1


@dataclass
class Kernels:
    """Compare annealing kernels at equal cost on a trained model.

    For example: aisle kernels runs/mnist --budgets 22 55

    Chains of many kernels are annealed from the encoder to the posterior, each with step sizes that
    were tuned on training examples and frozen. The tighter a kernel, the nearer the mean log-weight
    of one of its chains is to log p(x), which a much longer run estimates with a certificate. A
    comparison that was killed goes on with the same command.
    """

    run_path: Positional[RunPath]
    """Folder of a training run."""

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the results; by default kernels in the run's folder."""

    num_examples: int = 256
    """Test examples, spread evenly."""

    chains: int = 8
    """Chains of each example and kernel."""

    budgets: tuple[int, ...] = (22, 55, 220)
    """Leapfrog steps of a chain in all: temperatures times steps of a transition."""

    truth_temperatures: int = 2000
    """Temperatures of the runs that stand for log p(x)."""

    truth_chains: int = 16
    """Chains of each example in those."""

    seed: int = 0
    """Seed of all draws."""

    data_dir: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the named data sets, or of the file, if it has moved since training."""

    def run(self) -> int:
        """Compare, print the table and say where the figures are."""
        set_up_jax()
        from aisle.experiments import kernels

        console = table_console()
        config = kernels.Config(
            self.num_examples,
            self.chains,
            self.budgets,
            self.truth_temperatures,
            self.truth_chains,
            self.seed,
        )
        study = kernels.begin(self.run_path, config, out=self.out, data_dir=self.data_dir)
        try:
            truth, rows = _measure(study, console)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on where it was") from None
        console.print(screen_table(_TITLE, *_texts(rows)))
        for line in _headlines(rows):
            console.print(line, soft_wrap=True, highlight=False)
        for path in _save(study, truth, rows):
            console.print(str(path), soft_wrap=True, highlight=False)
        return 0


def _measure(study: "Study", console: "Console") -> tuple["LogLikelihood", list["Row"]]:
    """Run everything, with a line for each part that is done."""
    from aisle.experiments import kernels

    truth = kernels.estimate_truth(study)
    for line in _certificate(truth):
        console.print(line, soft_wrap=True, highlight=False)
    rows = []
    for row in kernels.compare(study, truth):
        rows.append(row)
        console.print(_line(row), soft_wrap=True, highlight=False)
    return truth, rows


def _certificate(truth: "LogLikelihood") -> list[str]:
    """Say what stands for log p(x), and whether that is near enough."""
    assert truth.bdmc is not None
    gap = truth.bdmc.gap
    lines = [
        f"log p(x) >= {with_error(truth.estimate, 3)} by {truth.num_chains} chains of "
        f"{truth.num_temperatures:,} temperatures; gap of bidirectional Monte Carlo "
        f"{with_error(gap, 3)}"
    ]
    if not gap.mean < _LARGEST_GAP:
        lines.append(
            f"That gap is not below {_LARGEST_GAP}: log p(x) is too low by up to {gap.mean:.3f}, "
            "and so are the gaps of all kernels; give more --truth-temperatures."
        )
    return lines


def _line(row: "Row") -> str:
    words = [
        f"{row.variant}, {row.budget}:",
        f"T={row.num_temperatures} L={row.preset.num_leapfrog}, {row.gradients} gradients",
        f"gap {with_error(row.gap, 3)}",
        f"acceptance {row.acceptance:.2f}",
        f"{row.seconds:.0f} s",
    ]
    return "   ".join(words)


def _texts(rows: list["Row"]) -> tuple[Columns, list[list[str]]]:
    """Return the table, a line for each kernel and a column for each budget."""
    budgets = dict.fromkeys(row.budget for row in rows)
    gaps: dict[str, list[str]] = {}
    for row in rows:
        gaps.setdefault(row.variant, []).append(with_error(row.gap, 3))
    columns: Columns = {"kernel": "left", **{f"{budget:,}": "right" for budget in budgets}}
    return columns, [[name, *texts] for name, texts in gaps.items()]


def _headlines(rows: list["Row"]) -> list[str]:
    """Say how much tuned gains over paper: at the same budget, and with less."""
    from aisle.experiments.kernels import ratios, savings

    same = [
        f"gap of tuned / gap of paper at {found.budget:,}: "
        f"{found.ratio:.3f} +- {found.standard_error:.3f}"
        for found in ratios(rows)
    ]
    less = [
        f"tuned at {found.tuned_budget:,} against paper at {found.paper_budget:,}: "
        f"its gap is smaller by {with_error(found.difference, 3)}"
        for found in savings(rows)
    ]
    return same + less


def _save(study: "Study", truth: "LogLikelihood", rows: list["Row"]) -> list[Path]:
    """Write the figures, the page and the table, each whole or not at all."""
    figures, page, table = (study.folder / f"kernels.{end}" for end in ("json", "md", "csv"))
    write_json(figures, _content(study, truth, rows))
    write_text(page, _page(study, truth, rows))
    write_text(table, csv_text([_record(row) for row in rows]))
    return [figures, page, table]


def _content(study: "Study", truth: "LogLikelihood", rows: list["Row"]) -> dict[str, object]:
    """Return everything that was measured, with what it was measured by."""
    from aisle.evaluation.results import as_json
    from aisle.experiments import commands
    from aisle.experiments.kernels import ratios, savings
    from aisle.provenance import provenance

    # These have an entry for each temperature, and are in the truth's own folder.
    long = {"acceptance", "step_sizes", "betas", "provenance"}
    return {
        "what": f"{_TITLE}: each budget is T x L",
        "run": study.run.path.resolve().name,
        "update": study.run.update,
        "training": commands.train_anywhere(study.run.config),
        "config": study.config._asdict(),
        "seed": study.config.seed,
        "seconds": round(truth.seconds + sum(row.seconds for row in rows), 3),
        "truth": {name: value for name, value in as_json(truth).items() if name not in long},
        "rows": [_record(row) for row in rows],
        "tuned_by_paper": [found._asdict() for found in ratios(rows)],
        "tuned_against_the_next_budget_of_paper": [
            {"tuned_budget": s.tuned_budget, "paper_budget": s.paper_budget}
            | s.difference._asdict()
            for s in savings(rows)
        ],
        **provenance(),
    }


def _record(row: "Row") -> dict[str, Any]:
    """Return a row as plain values."""
    return {
        "variant": row.variant,
        **row.preset._asdict(),
        "budget": row.budget,
        "num_temperatures": row.num_temperatures,
        "gradients": row.gradients,
        "log_weight": row.log_weight.mean,
        "log_weight_standard_error": row.log_weight.standard_error,
        "gap": row.gap.mean,
        "gap_standard_error": row.gap.standard_error,
        "acceptance": row.acceptance,
        "num_nonfinite": row.num_nonfinite,
        "seconds": round(row.seconds, 3),
    }


def _page(study: "Study", truth: "LogLikelihood", rows: list["Row"]) -> str:
    """Return the table in Markdown, with what it shows."""
    config, run = study.config, study.run
    about = (
        f"{_TITLE}: {len(study.indices):,} test examples, {config.chains} chains each, of "
        f"{run.path.resolve().name} at update {run.update:,}; +- one standard error over examples. "
        "The steps are those of all temperatures together, the number of temperatures rounded "
        "down; kernels.csv has the gradients of a chain, one for each step and one to start. Step "
        "sizes were tuned on training examples and frozen. The smaller the gap, the tighter."
    )
    table = markdown_table(*_texts(rows))
    said = [f"- {line}" for line in (*_certificate(truth), *_headlines(rows))]
    title = "# Annealing kernels at the same cost"
    return "\n\n".join([title, about, table, "\n".join(said)]) + "\n"
