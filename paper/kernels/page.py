"""What the comparison of kernels prints and writes."""

from pathlib import Path
from typing import Any

from aisle.provenance import provenance
from paper.core.trained import LogLikelihood, as_json
from paper.kernels import study
from paper.kernels.study import Config, KernelResult, Study, ratios, savings
from paper.output import (
    Columns,
    csv_text,
    markdown_table,
    screen_table,
    show,
    write_json,
    write_text,
)

_TITLE = "log p(x) less the mean log-weight of one chain, in nats, for so many leapfrog steps"

# A truth that may be too low by more than this is not called one.
_LARGEST_GAP = 0.1


def reproduce(run_path: Path, config: Config, out: Path | None, data_dir: Path | None) -> None:
    """Compare, print the table and write the files."""
    begun = study.begin(run_path, config, out=out, data_dir=data_dir)
    truth = study.estimate_truth(begun)
    show(*_certificate(truth))
    results = []
    for result in study.compare(begun, truth.log_p):
        results.append(result)
        show(_line(result))
    floors = list(study.floors(begun, truth.log_p))
    show(screen_table(_TITLE, *_texts(results)))
    show(*_headlines(results, floors), *save(begun, truth, results, floors))


def _certificate(truth: LogLikelihood) -> list[str]:
    """Say what stands for log p(x), and whether that is near enough."""
    assert truth.bdmc is not None
    gap = truth.bdmc.gap
    lines = [
        f"log p(x) >= {truth.estimate:.3f} by {truth.num_chains} chains of "
        f"{truth.num_temperatures:,} temperatures; gap of bidirectional Monte Carlo "
        f"{gap:.3f}"
    ]
    if not gap.mean < _LARGEST_GAP:
        lines.append(
            f"That gap is not below {_LARGEST_GAP}: log p(x) is too low by up to {gap.mean:.3f}, "
            "and so are the gaps of all kernels; give more --truth-temperatures."
        )
    return lines


def _line(result: KernelResult) -> str:
    words = [
        f"{result.variant}, {result.steps}:",
        f"T={result.num_temperatures} L={result.preset.num_leapfrog}, {result.gradients} gradients",
        f"gap {result.gap:.3f}",
        f"acceptance {result.acceptance:.2f}",
        f"{result.seconds:.0f} s",
    ]
    return "   ".join(words)


def _texts(results: list[KernelResult]) -> tuple[Columns, list[list[str]]]:
    """Return the table, a line for each kernel and a column for each number of steps."""
    numbers = dict.fromkeys(result.steps for result in results)
    gaps: dict[str, list[str]] = {}
    for result in results:
        gaps.setdefault(result.variant, []).append(f"{result.gap:.3f}")
    columns: Columns = {"kernel": "left", **{f"{number:,}": "right" for number in numbers}}
    return columns, [[name, *texts] for name, texts in gaps.items()]


def _headlines(results: list[KernelResult], floors: list[KernelResult]) -> list[str]:
    """Say how much tuned gains over paper, and what its temperatures alone leave."""
    same = [
        f"gap of tuned / gap of paper at {found.steps:,}: "
        f"{found.ratio:.3f} +- {found.standard_error:.3f}"
        for found in ratios(results)
    ]
    less = [
        f"tuned at {found.tuned_steps:,} against paper at {found.paper_steps:,}: "
        f"its gap is smaller by {found.difference:.3f}"
        for found in savings(results)
    ]
    least = [
        f"tuned at {floor.steps:,} with {study.MANY_MOVES} moves at each temperature, which cost "
        f"as many times more: a gap of {floor.gap:.3f}"
        for floor in floors
    ]
    return same + less + least


def save(
    begun: Study, truth: LogLikelihood, results: list[KernelResult], floors: list[KernelResult]
) -> list[Path]:
    """Write the numbers, the page and the table, each whole or not at all."""
    numbers, page, table = (begun.folder / f"kernels.{end}" for end in ("json", "md", "csv"))
    write_json(numbers, _content(begun, truth, results, floors))
    write_text(page, _page(begun, truth, results, floors))
    write_text(table, csv_text([plain(result) for result in results]))
    return [numbers, page, table]


def _content(
    begun: Study, truth: LogLikelihood, results: list[KernelResult], floors: list[KernelResult]
) -> dict[str, object]:
    """Return everything that was measured, with what it was measured by."""
    # These have an entry for each temperature, and are in the truth's own folder.
    long = {"acceptance", "step_sizes", "betas", "provenance"}
    return {
        "what": f"{_TITLE}: T x L of them",
        "run": begun.subject.path.resolve().name,
        "update": begun.subject.update,
        "training": begun.subject.command,
        "config": begun.config._asdict(),
        "seed": begun.config.seed,
        "seconds": round(truth.seconds + sum(r.seconds for r in results + floors), 3),
        "truth": {name: value for name, value in as_json(truth).items() if name not in long},
        "rows": [plain(result) for result in results],
        "tuned_by_paper": [found._asdict() for found in ratios(results)],
        "tuned_against_more_steps_of_paper": [
            {"tuned_steps": s.tuned_steps, "paper_steps": s.paper_steps} | s.difference._asdict()
            for s in savings(results)
        ],
        "many_moves": [plain(floor) for floor in floors],
        **provenance(),
    }


def plain(result: KernelResult) -> dict[str, Any]:
    """Return a result as plain values."""
    return {
        "variant": result.variant,
        **result.preset._asdict(),
        "steps": result.steps,
        "num_temperatures": result.num_temperatures,
        "gradients": result.gradients,
        "log_weight": result.log_weight.mean,
        "log_weight_standard_error": result.log_weight.standard_error,
        "gap": result.gap.mean,
        "gap_standard_error": result.gap.standard_error,
        "acceptance": result.acceptance,
        "num_nonfinite": result.num_nonfinite,
        "seconds": round(result.seconds, 3),
    }


def _page(
    begun: Study, truth: LogLikelihood, results: list[KernelResult], floors: list[KernelResult]
) -> str:
    """Return the table in Markdown, with what it shows."""
    config, subject = begun.config, begun.subject
    about = (
        f"{_TITLE}: {len(subject.indices):,} test examples, {config.chains} chains each, of "
        f"{subject.path.resolve().name} at update {subject.update:,}; +- one standard error over "
        "examples. The steps are those of all temperatures together, the number of temperatures "
        "rounded down; kernels.csv has the gradients of a chain, one for each step and one to "
        "start. Step sizes were tuned on training examples and frozen. The smaller the gap, the "
        "tighter."
    )
    table = markdown_table(*_texts(results))
    said = [f"- {line}" for line in (*_certificate(truth), *_headlines(results, floors))]
    title = "# Annealing kernels at the same cost"
    return "\n\n".join([title, about, table, "\n".join(said)]) + "\n"
