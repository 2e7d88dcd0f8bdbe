"""`aisle reproduce` for tables: run their cells one after another, and write what is there."""

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from aisle.cli.output import (
    Columns,
    csv_text,
    make_folder,
    markdown_table,
    screen_table,
    table_console,
    with_error,
    write_json,
    write_text,
)
from aisle.errors import InputError

if TYPE_CHECKING:
    from aisle.experiments.cells import Cell, Finished, Row
    from aisle.experiments.tables import TableSpec

_COLUMNS: Columns = {
    "cell": "left",
    "updates": "right",
    "decoder gradients": "right",
    "seconds": "right",
    "log p(x)": "right",
    "gap": "right",
    "ELBO": "right",
    "one chain": "right",
    "active": "right",
    "paper": "right",
    "difference": "right",
    "seed": "right",
    "note": "left",
}
_PLAN_COLUMNS: Columns = {
    "cell": "left",
    "updates": "right",
    "decoder gradients": "right",
    "minutes here": "right",
    "paper": "right",
    "command": "left",
}
_CLAIM_COLUMNS: Columns = {"claim": "left", "better by": "right", "verdict": "left"}

_ABOUT = (
    "log p(x): mean test log-likelihood in nats, a stochastic lower bound, with its standard error "
    "over examples; where not all are annealed at length, it is the mean of a short run on all, "
    "corrected by the mean difference to the long run on some of them. gap: of bidirectional Monte "
    "Carlo on simulated examples. ELBO and active: evidence lower bound, and latents that the "
    "encoder uses, on the examples of the long run. one chain: mean log-weight of one chain with "
    "T = 11 and L = 2 by the tuned kernel, on the same examples, where it was asked for. Decoder "
    "gradients and seconds are those of the cell's own training, without that of the cell that it "
    "starts from. A claim is compared on the same examples, and decided by two standard errors, "
    "unless the gap is larger than the difference."
)

# Standard errors of a paired difference that make a claim one that holds, or one that does not.
_CLEAR = 2.0


def reproduce(
    name: str, out: Path, budget: str, patterns: list[str], seed: int, is_plan: bool
) -> int:
    """Run the chosen cells of a table, and write the table of all that are done."""
    import jax

    from aisle.experiments import cells, tables
    from aisle.learning.trainer import check_seed

    check_seed(seed)
    spec = tables.named(name, budget, seed)
    chosen, console = _choose(spec, patterns), table_console()
    if is_plan:
        console.print(_plan(spec.title, chosen))
        return 0
    make_folder(out)
    for number, cell in enumerate(chosen):
        console.print(f"{cell.name} ({number + 1} of {len(chosen)})")
        if cell.evaluation is None:
            cells.train_cell(cell, out)
        else:
            done = cells.run_cell(cell, out)
            console.print(f"log p(x) >= {with_error(done.row.log_likelihood)}")
        # The next cell has programs of its own: those of dozens of cells are too many to keep.
        jax.clear_caches()
    shown = [(cell, cells.finished(cell, out)) for cell in spec.cells if cell.evaluation]
    _report(spec, out / name, {cell.name: done for cell, done in shown if done is not None})
    return 0


def _choose(spec: "TableSpec", patterns: list[str]) -> list["Cell"]:
    """Return the cells whose names match, with those that they start from."""
    for pattern in patterns:
        if not any(fnmatch(cell.name, pattern) for cell in spec.cells):
            names = ", ".join(cell.name for cell in spec.cells)
            raise InputError(f"--cells {pattern} matches no cell: choose from {names}")
    chosen: list[Cell] = []
    # From the last one: a cell comes after the one that it starts from.
    for cell in reversed(spec.cells):
        is_asked = not patterns or any(fnmatch(cell.name, pattern) for pattern in patterns)
        if is_asked or cell.name in [one.start for one in chosen]:
            chosen.insert(0, cell)
    return chosen


def _plan(title: str, chosen: list["Cell"]) -> Table:
    """Time some updates of each cell, and say what the whole would take."""
    from aisle.experiments import commands
    from aisle.experiments.estimating import estimate

    rows, total = [], 0.0
    for cell in chosen:
        found = estimate(cell)
        total += found.seconds
        figures = (
            f"{found.updates:,}",
            f"{found.decoder_gradients:,}",
            f"{found.seconds / 60:.0f}",
        )
        paper = "" if cell.paper is None else f"{cell.paper:.2f}"
        rows.append([cell.name, *figures, paper, commands.train(cell.config, cell.start)])
    rows.append(["all", "", "", f"{total / 60:.0f}", "", ""])
    return screen_table(f"{title}: training, without evaluation", _PLAN_COLUMNS, rows)


def _report(spec: "TableSpec", base: Path, done: dict[str, "Finished"]) -> None:
    """Print the table and what it says of the claims, and write both."""
    from aisle.experiments.cells import as_plain
    from aisle.provenance import provenance

    rows = [one.row for one in done.values()]
    columns, texts = _filled(_COLUMNS, [_texts(row) for row in rows])
    claims, console = _claims(spec, done), table_console()
    console.print(screen_table(spec.title, columns, texts))
    console.print(screen_table("claims", _CLAIM_COLUMNS, claims))
    parts = [f"# {spec.title}", _ABOUT, markdown_table(columns, texts)]
    parts += [markdown_table(_CLAIM_COLUMNS, claims), *(f"    {row.command}" for row in rows)]
    paths = {end: base.with_name(f"{base.name}.{end}") for end in ("md", "csv", "json")}
    write_text(paths["md"], "\n\n".join(parts) + "\n")
    write_text(paths["csv"], csv_text([_flat(row) for row in rows]))
    verdicts = [dict(zip(_CLAIM_COLUMNS, claim, strict=True)) for claim in claims]
    content = {"rows": [as_plain(row) for row in rows], "claims": verdicts}
    write_json(paths["json"], content | provenance())
    for path in paths.values():
        console.print(str(path), soft_wrap=True, highlight=False)


def _filled(columns: Columns, texts: list[list[str]]) -> tuple[Columns, list[list[str]]]:
    """Leave out the columns that have nothing in any row."""
    names = list(columns)
    kept = [i for i in range(len(names)) if not texts or any(line[i] for line in texts)]
    return {names[i]: columns[names[i]] for i in kept}, [[line[i] for i in kept] for line in texts]


def _texts(row: "Row") -> list[str]:
    return [
        row.cell,
        f"{row.updates:,}",
        f"{row.decoder_gradients:,}",
        f"{row.seconds:.0f}",
        with_error(row.log_likelihood),
        with_error(row.gap),
        "" if row.elbo is None else f"{row.elbo.mean:.1f}",
        "" if row.short is None else f"{row.short.mean:.1f}",
        "" if row.active_units is None else str(row.active_units),
        "" if row.paper is None else f"{row.paper:.2f}",
        "" if row.difference is None else f"{row.difference:+.2f}",
        str(row.seed),
        ", ".join(filter(None, [row.start and f"from {row.start}", row.note])),
    ]


def _claims(spec: "TableSpec", done: dict[str, "Finished"]) -> list[list[str]]:
    """Compare on the same examples, as far as both cells are done."""
    from aisle.experiments.cells import difference

    lines = []
    for claim in spec.claims:
        if claim.better in done and claim.worse in done:
            gain = difference(done[claim.better], done[claim.worse])
            verdict = "undecided"
            if abs(gain.mean) > _CLEAR * gain.standard_error:
                verdict = "holds" if gain.mean > 0 else "does not hold"
            # Bounds that may be off by more than they differ decide nothing.
            gap = max(done[name].row.gap.mean for name in (claim.better, claim.worse))
            if gap > abs(gain.mean):
                verdict = "undecided: the gap is larger"
            lines.append([claim.text, with_error(gain), verdict])
    return lines


def _flat(row: "Row") -> dict[str, Any]:
    """Return a row with one name for each figure."""
    from aisle.experiments.cells import as_plain

    flat: dict[str, Any] = {}
    for name, value in as_plain(row).items():
        # A figure that some cells have is then not also a column without its parts.
        if value is None:
            continue
        nested = value.items() if isinstance(value, dict) else [("", value)]
        flat |= {f"{name}_{end}" if end else name: each for end, each in nested}
    return flat
