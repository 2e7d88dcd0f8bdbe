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
from aisle.experiments.cells import Row, from_plain
from aisle.statistics import Mean

ROOT = Path(__file__).parents[1]
_WIDTH = 110
_BY_DATA: Columns = {
    "cell": "left",
    "MNIST": "right",
    "MNIST, paper": "right",
    "Omniglot": "right",
    "Omniglot, paper": "right",
}
_TABLES = ("table1", "table2", "beyond")

# In nats, of a figure that counts as certified.
_LARGEST_GAP = 0.2


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
        lines.append(texts(from_plain(Row, record), better and Mean(**better)))
    screen = io.StringIO()
    Console(file=screen, width=_WIDTH).print(screen_table(TITLE, COLUMNS, lines))
    shown = "\n".join(line.rstrip() for line in screen.getvalue().splitlines())
    return f"```\n{shown}\n```"


def _table() -> str:
    """Put the data sets side by side; the tables share cells."""
    records = [r for name in _TABLES for r in _read(f"tables/{name}.json")["rows"]]
    rows = {record["cell"]: from_plain(Row, record) for record in records}
    lines = [
        [name, *_figures(rows.get(f"mnist-{name}")), *_figures(rows.get(f"omniglot-{name}"))]
        for name in dict.fromkeys(cell.split("-", 1)[1] for cell in rows)
    ]
    certified = [row.gap for row in rows.values() if row.gap.mean <= _LARGEST_GAP]
    others = f", but for ‡, where it is more than {_LARGEST_GAP}: log p(x) may be higher there"
    about = (
        f"The largest gap is {with_error(max(certified))}"
        f"{others if len(certified) < len(rows) else ''}. * fewer updates than the others made. † "
        "goes on from the same method with the next smaller K, or, if longer, with the same K, for "
        "some updates more."
    )
    return f"{markdown_table(_BY_DATA, lines)}\n\n{about}"


def _figures(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    mark = "" if row.gap.mean <= _LARGEST_GAP else "‡"
    if "fewer" in row.note:
        mark += "*" if row.start is None or row.start.endswith("start") else "†"
    return with_error(row.log_likelihood) + mark, "" if row.paper is None else f"{row.paper:.2f}"


def write() -> None:
    """Rewrite the README."""
    readme = ROOT / "README.md"
    readme.write_text(fill(readme.read_text()))


PARTS: dict[str, Callable[[], str]] = {"demo": _demo, "tables": _table}


def _read(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / name).read_text())


if __name__ == "__main__":
    write()
