"""Write the numbers of results/ into the README, between the comments that name them.

`python -m scripts.readme` rewrites it; a test checks that there would be nothing to do.
"""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from aisle.cli.demo import COLUMNS, TITLE, Compared, texts
from aisle.cli.output import Columns, markdown_table, screen_table
from aisle.statistics import Mean
from paper.hours.page import published
from paper.hours.study import stages
from paper.tables.cells import CellResult, from_plain

ROOT = Path(__file__).parents[1]
_WIDTH = 110
_BY_DATA: Columns = {
    "cell": "left",
    "MNIST": "right",
    "MNIST, paper": "right",
    "Omniglot": "right",
    "Omniglot, paper": "right",
}
_TABLES = ("table1", "beyond")
_HOURS: Columns = {
    "data": "left",
    "stochastic layers": "left",
    "options": "left",
    "hours": "right",
    "log p(x)": "right",
    "gap": "right",
    "training data": "right",
    "best published": "right",
}

_NO_OPTIONS = ("", "hours", "model", "init-from")

# In nats, of a log-likelihood that counts as certified.
_LARGEST_GAP = 0.2
_MARKS = {
    "*": "fewer updates than the others made",
    "†": "starts from the same method with the next smaller K, and makes some updates more",
    "‡": f"has a larger gap, of more than {_LARGEST_GAP}: log p(x) may be higher",
}


def fill(text: str) -> str:
    """Return the README with the numbers on record in their places."""
    for name, make in PARTS.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        text = place.sub(lambda found, make=make: found[1] + make() + found[2], text)
    return text


def _demo() -> str:
    lines = []
    for record in _read("demo/results.json")["results"]:
        known = {name: record[name] for name in Compared._fields}
        lines.append(texts(from_plain(Compared, known)))
    screen = io.StringIO()
    Console(file=screen, width=_WIDTH).print(screen_table(TITLE, COLUMNS, lines))
    shown = "\n".join(line.rstrip() for line in screen.getvalue().splitlines())
    return f"```\n{shown}\n```"


def _table() -> str:
    """Put the data sets side by side; the tables share cells."""
    records = [r for name in _TABLES for r in _read(f"tables/{name}.json")["rows"]]
    results = {record["cell"]: from_plain(CellResult, record) for record in records}
    lines = [
        [name, *(text for data in ("mnist", "omniglot") for text in _texts(results, data, name))]
        for name in dict.fromkeys(cell.split("-", 1)[1] for cell in results)
        if not name.endswith("longer")
    ]
    certified = [result.gap for result in results.values() if result.gap.mean <= _LARGEST_GAP]
    table = markdown_table(_BY_DATA, lines)
    marks = [f" {mark} {text}." for mark, text in _MARKS.items() if mark in table]
    return f"{table}\n\nThe largest gap is {max(certified)}.{''.join(marks)}"


def _hours() -> str:
    """Return a line for each long training."""
    lines = []
    for path in sorted((ROOT / "results/hours").glob("*/hours.json")):
        record = json.loads(path.read_text())
        best = published(record["data"], record["model"], record["command"])
        test, gap, train = (Mean(**record[name]) for name in ("test", "gap", "train"))
        link = f"[{record['data']}](results/hours/{path.parent.name}/hours.md)"
        hours = f"{sum(stage.seconds for stage in stages(record)) / 3600:.1f}"
        paper = "" if best is None else f"{best.value:.2f} ({best.source})"
        layers = record["model"].removesuffix("-layer")
        lines.append(
            [link, layers, _options(record), hours, str(test), str(gap), str(train), paper]
        )
    return markdown_table(_HOURS, lines)


def _options(record: dict[str, Any]) -> str:
    """Return what the commands ask for beside data, networks, first weights and time."""
    texts = []
    for stage in stages(record):
        words = stage.command.removeprefix(f"aisle train {record['data']}").split(" --")
        others = [word for word in words if word.split(" ")[0] not in _NO_OPTIONS]
        texts.append(f"`--{' --'.join(others)}`" if others else "the defaults")
    return ", then ".join(texts)


def _texts(results: dict[str, CellResult], data: str, name: str) -> tuple[str, str]:
    """Return our log-likelihood and the paper's, as far as there are any."""
    result = results.get(f"{data}-{name}")
    if result is None:
        return "", ""
    mark = "" if result.gap.mean <= _LARGEST_GAP else "‡"
    if "fewer" in result.note:
        mark += "*" if result.start is None or result.start.endswith("start") else "†"
    paper = "" if result.paper is None else f"{result.paper:.2f}"
    return str(result.log_likelihood) + mark, paper


def write() -> None:
    """Rewrite the README."""
    readme = ROOT / "README.md"
    readme.write_text(fill(readme.read_text()))


PARTS: dict[str, Callable[[], str]] = {"demo": _demo, "hours": _hours, "tables": _table}


def _read(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / name).read_text())


if __name__ == "__main__":
    write()
