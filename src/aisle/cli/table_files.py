"""The files of a table: what its cells have found, and what that says of the claims.

What a table on record says of cells that are not here, as they were run elsewhere, is kept.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from aisle.errors import InputError

if TYPE_CHECKING:
    from aisle.experiments.cells import Row
    from aisle.experiments.claims import Claim, Verdict
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
_CLAIM_COLUMNS: Columns = {"claim": "left", "better by": "right", "verdict": "left"}

_ABOUT = (
    "log p(x): mean test log-likelihood in nats, a stochastic lower bound, with its standard error "
    "over examples; where not all are annealed at length, it is the mean of a short run on all, "
    "corrected by the mean difference to the long run on some of them. gap: of bidirectional Monte "
    "Carlo on simulated examples. ELBO and active: evidence lower bound, and latents that the "
    "encoder uses, on the examples of the long run. one chain: mean log-weight of one chain with "
    "T = 11 and L = 2 by the tuned kernel, on the same examples, where it was asked for. Decoder "
    "gradients and seconds are those of the cell's own training, without that of the cell that it "
    "starts from. A claim is compared on the examples of the long run, so it need not be the "
    "difference of two lines. It is decided if the difference exceeds the gap of the cell behind "
    "by two standard errors, those of both."
)


class Record(NamedTuple):
    """A table on record.

    Attributes:
        rows: by the names of their cells.
        verdicts: by what is claimed.
    """

    rows: dict[str, "Row"]
    verdicts: dict[str, "Verdict"]


def read(base: Path) -> Record:
    """Read the table that is there; one without lines if there is none."""
    from aisle.experiments.cells import Row, from_plain
    from aisle.experiments.claims import Verdict

    path = _file(base, "json")
    if not path.exists():
        return Record({}, {})
    try:
        content = json.loads(path.read_text())
        rows = {row["cell"]: from_plain(Row, row) for row in content["rows"]}
        verdicts = [from_plain(Verdict, verdict) for verdict in content["claims"]]
        return Record(rows, {verdict.claim: verdict for verdict in verdicts})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not a table of this version ({error}): choose another --out, or remove it"
        ) from None


def together(spec: "TableSpec", out: Path, before: Record) -> Record:
    """Put what the cells of a folder have found together with those that were on record."""
    from aisle.experiments import cells, claims, commands

    here = {cell.name: cells.finished(cell, out) for cell in spec.cells if cell.evaluation}
    done = {name: one for name, one in here.items() if one is not None}
    rows = {}
    for cell in spec.cells:
        known = before.rows.get(cell.name)
        if cell.name in done:
            rows[cell.name] = done[cell.name].row
        # With other settings it is another cell.
        elif known is not None and known.command == commands.train(cell.config, cell.start):
            rows[cell.name] = known
    verdicts = [claims.judge(claim, done) or _kept(claim, rows, before) for claim in spec.claims]
    return Record(rows, {verdict.claim: verdict for verdict in verdicts if verdict})


def _kept(claim: "Claim", rows: dict[str, "Row"], before: Record) -> "Verdict | None":
    """Judge by the difference on record, if it was of the same figures."""
    from aisle.experiments.claims import by_gain

    for name in (claim.better, claim.worse):
        now, then = rows.get(name), before.rows.get(name)
        if now is None or then is None or not _is_same(now, then):
            return None
    known = before.verdicts.get(claim.text)
    if known is None or known.gain is None:
        return known
    return by_gain(claim, known.gain, rows[claim.better], rows[claim.worse])


def _is_same(now: "Row", then: "Row") -> bool:
    # Another machine may round otherwise.
    return abs(now.log_likelihood.mean - then.log_likelihood.mean) < 1e-3


def show(spec: "TableSpec", found: Record, base: Path) -> None:
    """Print the table, what it says of the claims, and where they are written."""
    console = table_console()
    console.print(screen_table(spec.title, *_lines(found)))
    console.print(screen_table("claims", _CLAIM_COLUMNS, _claim_lines(found)))
    for end in ("md", "csv", "json"):
        console.print(str(_file(base, end)), soft_wrap=True, highlight=False)


def write(spec: "TableSpec", found: Record, base: Path) -> None:
    """Write the table, and what it says of the claims."""
    from aisle.experiments.cells import as_plain
    from aisle.provenance import provenance

    rows = list(found.rows.values())
    parts = [f"# {spec.title}", _ABOUT, markdown_table(*_lines(found))]
    parts += [markdown_table(_CLAIM_COLUMNS, _claim_lines(found))]
    parts += [f"    {row.command}" for row in rows]
    write_text(_file(base, "md"), "\n\n".join(parts) + "\n")
    write_text(_file(base, "csv"), csv_text([_flat(row) for row in rows]))
    verdicts = [as_plain(verdict) for verdict in found.verdicts.values()]
    content = {"rows": [as_plain(row) for row in rows], "claims": verdicts}
    write_json(_file(base, "json"), content | provenance())


def _file(base: Path, end: str) -> Path:
    return base.with_name(f"{base.name}.{end}")


def _lines(found: Record) -> tuple[Columns, list[list[str]]]:
    """Return the lines of the table, without the columns that have nothing in any of them."""
    texts, names = [_texts(row) for row in found.rows.values()], list(_COLUMNS)
    kept = [i for i in range(len(names)) if not texts or any(line[i] for line in texts)]
    return {names[i]: _COLUMNS[names[i]] for i in kept}, [[line[i] for i in kept] for line in texts]


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


def _claim_lines(found: Record) -> list[list[str]]:
    return [
        [
            verdict.claim,
            "" if verdict.gain is None else with_error(verdict.gain),
            verdict.verdict,
        ]
        for verdict in found.verdicts.values()
    ]


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
