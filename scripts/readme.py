"""Write the figures of results/ into the README, between the comments that name them.

`python scripts/readme.py` rewrites it; a test sees to it that there would be nothing to do.
"""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from aisle.cli.demo import COLUMNS, TITLE, texts
from aisle.cli.output import Columns, markdown_table, screen_table, with_error
from aisle.experiments.cells import from_plain
from aisle.statistics import Mean

ROOT = Path(__file__).parents[1]
_WIDTH = 110
_SHORT: Columns = {
    "cell": "left",
    "updates": "right",
    "seconds": "right",
    "log p(x)": "right",
    "gap": "right",
    "paper": "right",
}


def fill(text: str) -> str:
    """Return the README with the figures on record in their places."""
    for name, make in PARTS.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        text = place.sub(lambda found, make=make: found[1] + make() + found[2], text)
    return text


def _demo() -> str:
    lines = []
    for record in _read("demo/results.json")["results"]:
        better = record.pop("better_than_vae")
        lines.append(texts(from_plain(record), better and Mean(**better)))
    screen = io.StringIO()
    Console(file=screen, width=_WIDTH).print(screen_table(TITLE, COLUMNS, lines))
    shown = "\n".join(line.rstrip() for line in screen.getvalue().splitlines())
    return f"```\n{shown}\n```"


def _table() -> str:
    records = [r for name in ("table1", "beyond") for r in _read(f"tables/{name}.json")["rows"]]
    # The tables share cells.
    rows = {record["cell"]: from_plain(record) for record in records}
    lines = [
        [
            row.cell,
            f"{row.updates:,}",
            f"{row.seconds:.0f}",
            with_error(row.log_likelihood),
            with_error(row.gap),
            "" if row.paper is None else f"{row.paper:.2f}",
        ]
        for row in rows.values()
    ]
    return markdown_table(_SHORT, lines)


def write() -> None:
    """Rewrite the README."""
    readme = ROOT / "README.md"
    readme.write_text(fill(readme.read_text()))


PARTS: dict[str, Callable[[], str]] = {"demo": _demo, "tables": _table}


def _read(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / name).read_text())


if __name__ == "__main__":
    write()
