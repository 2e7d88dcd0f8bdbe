"""The files of a table: what its cells have found, and what that decides of the claims.

A table may have lines of cells that are not here, as they were run elsewhere. These lines are kept.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aisle.errors import InputError
from aisle.provenance import provenance
from paper.output import (
    Columns,
    csv_text,
    markdown_table,
    screen_table,
    show,
    write_json,
    write_text,
)
from paper.tables import claims
from paper.tables.cells import Cell, CellResult, FinishedCell, as_plain, from_plain
from paper.tables.claims import Claim, Verdict
from paper.tables.contents import TableSpec
from paper.tables.plans import first_command

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
    "Carlo on data simulated from the model. ELBO and active: evidence lower bound, and latents "
    "that the encoder uses, on the examples of the long run. one chain: mean log-weight of one "
    "chain with T = 11 and L = 2 by the tuned kernel, on the same examples, where it was asked "
    "for. Decoder gradients and seconds are those of the cell's own training, without that of the "
    "cell that it starts from. A claim is judged on the examples of the long run, so the gain need "
    "not be the difference of two lines. It is decided if the gain exceeds the gap of the cell "
    "behind by two standard errors, those of both."
)


class TableRecord(NamedTuple):
    """A table on record.

    Attributes:
        results: by the names of their cells.
        verdicts: by what is claimed.
    """

    results: dict[str, CellResult]
    verdicts: dict[str, Verdict]


def read(base: Path) -> TableRecord:
    """Read the table that is there; one without lines if there is none."""
    path = _file(base, "json")
    if not path.exists():
        return TableRecord({}, {})
    try:
        content = json.loads(path.read_text())
        results = {row["cell"]: from_plain(CellResult, row) for row in content["rows"]}
        verdicts = [from_plain(Verdict, verdict) for verdict in content["claims"]]
        return TableRecord(results, {verdict.claim: verdict for verdict in verdicts})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not a table of this version ({error}): choose another --out, or remove it"
        ) from None


def merge(spec: TableSpec, done: Mapping[str, FinishedCell], before: TableRecord) -> TableRecord:
    """Put what the cells here have found together with the lines of cells from elsewhere."""
    results = {}
    for cell in spec.cells:
        known = before.results.get(cell.name)
        if cell.name in done:
            results[cell.name] = done[cell.name].result
        # With other settings it is another cell.
        elif known is not None and known.command in _commands(cell):
            results[cell.name] = known._replace(command=cell.command)
    verdicts = [claims.judge(c, done) or _known_verdict(c, results, before) for c in spec.claims]
    return TableRecord(results, {verdict.claim: verdict for verdict in verdicts if verdict})


def _commands(cell: Cell) -> tuple[str, str]:
    """Return the commands that a line of this cell may have: of this version, and of the first."""
    return cell.command, first_command(cell.training, cell.start)


def _known_verdict(
    claim: Claim, results: Mapping[str, CellResult], before: TableRecord
) -> Verdict | None:
    """Judge by the gain on record, if both cells still have the results that it was taken from."""
    for name in (claim.better, claim.worse):
        now, then = results.get(name), before.results.get(name)
        if now is None or then is None or not _is_same(now, then):
            return None
    known = before.verdicts.get(claim.text)
    if known is None or known.gain is None:
        return known
    return claims.by_gain(claim, known.gain, results[claim.better], results[claim.worse])


def _is_same(now: CellResult, then: CellResult) -> bool:
    # Another machine may round otherwise.
    return abs(now.log_likelihood.mean - then.log_likelihood.mean) < 1e-3


def show_table(spec: TableSpec, table: TableRecord, base: Path) -> None:
    """Print the table, what it decides of the claims, and where they are written."""
    show(
        screen_table(spec.title, *_lines(table)),
        screen_table("claims", _CLAIM_COLUMNS, _claim_lines(table)),
        *(_file(base, end) for end in ("md", "csv", "json")),
    )


def write(spec: TableSpec, table: TableRecord, base: Path) -> None:
    """Write the table, and what it decides of the claims."""
    results = list(table.results.values())
    parts = [f"# {spec.title}", _ABOUT, markdown_table(*_lines(table))]
    parts += [markdown_table(_CLAIM_COLUMNS, _claim_lines(table))]
    parts += [f"    {result.command}" for result in results]
    write_text(_file(base, "md"), "\n\n".join(parts) + "\n")
    write_text(_file(base, "csv"), csv_text([flat(result) for result in results]))
    verdicts = [as_plain(verdict) for verdict in table.verdicts.values()]
    content = {"rows": [as_plain(result) for result in results], "claims": verdicts}
    write_json(_file(base, "json"), content | provenance())


def flat(result: CellResult) -> dict[str, Any]:
    """Return a result with one name for each number."""
    numbers: dict[str, Any] = {}
    for name, value in as_plain(result).items():
        # A mean that only some cells have must not become a column without its parts.
        if value is None:
            continue
        nested = value.items() if isinstance(value, dict) else [("", value)]
        numbers |= {f"{name}_{end}" if end else name: each for end, each in nested}
    return numbers


def _file(base: Path, end: str) -> Path:
    return base.with_name(f"{base.name}.{end}")


def _lines(table: TableRecord) -> tuple[Columns, list[list[str]]]:
    """Return the lines of the table, without the columns that are empty in all of them."""
    texts, names = [_texts(result) for result in table.results.values()], list(_COLUMNS)
    kept = [i for i in range(len(names)) if not texts or any(line[i] for line in texts)]
    return {names[i]: _COLUMNS[names[i]] for i in kept}, [[line[i] for i in kept] for line in texts]


def _texts(result: CellResult) -> list[str]:
    return [
        result.cell,
        f"{result.updates:,}",
        f"{result.decoder_gradients:,}",
        f"{result.seconds:.0f}",
        str(result.log_likelihood),
        str(result.gap),
        "" if result.elbo is None else f"{result.elbo.mean:.1f}",
        "" if result.short is None else f"{result.short.mean:.1f}",
        "" if result.active_units is None else str(result.active_units),
        "" if result.paper is None else f"{result.paper:.2f}",
        "" if result.difference is None else f"{result.difference:+.2f}",
        str(result.seed),
        ", ".join(filter(None, [result.start and f"from {result.start}", result.note])),
    ]


def _claim_lines(table: TableRecord) -> list[list[str]]:
    return [
        [
            verdict.claim,
            "" if verdict.gain is None else str(verdict.gain),
            verdict.verdict,
        ]
        for verdict in table.verdicts.values()
    ]
