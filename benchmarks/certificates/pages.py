"""Tables and pictures of what the studies found."""

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from aisle.cli.output import markdown_table
from aisle.statistics import Mean
from applications.core.pictures import COLOURS, INK, intervals, panels

Lines = list[dict[str, Any]]


def read(file: Path) -> Lines:
    """Read the lines of a study, if there are any."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write(folder: Path) -> None:
    """Write a page for each study, and the pictures of two."""
    for name in TABLES:
        lines = read(folder / f"{name}.jsonl")
        (folder / f"{name}.md").write_text(page(name, lines))
        if lines and name in PICTURES:
            PICTURES[name](lines).savefig(folder / f"{name}.png", dpi=150)


def page(name: str, lines: Lines) -> str:
    """Return the table of a study, after its picture if it has one."""
    if not lines:
        return "Not recorded yet.\n"
    picture = f"![{name}](results/certificates/{name}.png)\n\n" if name in PICTURES else ""
    return picture + TABLES[name](lines) + "\n"


def _mean(value: dict[str, Any], spec: str = ".3f") -> str:
    return f"{Mean(**value):{spec}}"


def _table(texts: list[dict[str, str]]) -> str:
    first = next(iter(texts[0]))
    sides = {
        name: "left" if name in (first, "way", "method", "what") else "right" for name in texts[0]
    }
    return markdown_table(sides, [list(row.values()) for row in texts])  # pyright: ignore[reportArgumentType]


def bounds(lines: Lines) -> str:
    """Return the table of gaps before and after."""
    return _table(
        [
            {
                "model": line["case"]["model"],
                "T": f"{line['case']['num_temperatures']}",
                "gradients": f"{line['found']['gradients']:,}",
                "gap, reverse chains alone": _mean(line["found"]["before"]),
                "gap, as reported": _mean(line["found"]["after"]),
                "simulated examples": f"{line['found']['before']['num_examples']} / "
                f"{line['found']['after']['num_examples']}",
            }
            for line in lines
        ]
    )


def planning(lines: Lines) -> str:
    """Return the table of costs of a certified tolerance."""
    rows = []
    for line in lines:
        case, found = line["case"], line["found"]
        start = "refitted, " * found.get("is_refitted", False)
        start += "small steps, " * found.get("is_careful", False)
        least = found.get("least_by_doubling")
        rows.append(
            {
                "model": case["model"],
                "way": case["way"],
                "T": f"{found['T']}",
                "chosen by the pilot": start.rstrip(", "),
                "log p(x)": _mean(found["log_p"], ".2f"),
                "gap": _mean(found["gap"]),
                "rounds": f"{found['rounds']}",
                "reached": "yes" if found["is_reached"] else "no",
                "gradients": f"{found['gradients']:,}",
                "of doubling's least": "" if least is None else f"{found['gradients'] / least:.2f}",
                "10,000 examples": ""
                if least is None
                else f"{found['of_10000'] / 1e6:.0f} million",
            }
        )
    return _table(rows)


def tried(lines: Lines) -> str:
    """Return the table of other starts and schedules."""
    return _table(
        [
            {
                "model": line["case"]["model"],
                "what": line["case"]["what"],
                "gap": _mean(line["found"]["gap"]),
                "variance of log w": f"{line['found']['variance']:.2f}",
                "share of gradients with T for each example": f"{line['found']['oracle']:.2f}",
            }
            for line in lines
        ]
    )


def others(lines: Lines) -> str:
    """Return the table of errors, a column for each number of gradients."""
    columns = sorted({line["case"]["gradients"] for line in lines})
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for line in lines:
        case = line["case"]
        row = rows.setdefault((case["model"], case["way"]), {})
        row[f"{case['gradients']:,}"] = _mean(line["found"]["error"])
    return _table(
        [
            {"model": model, "way": way} | {f"{n:,}": row.get(f"{n:,}", "") for n in columns}
            for (model, way), row in rows.items()
        ]
    )


def exact(lines: Lines) -> str:
    """Return the table of sums."""
    return _table(
        [
            {
                "data": line["case"]["data"],
                "method": line["case"]["method"],
                "sum of p(x)": f"{_sum(line):.4f}",
                "errors from 1": f"{(found['sum'] - 1) / found['standard_error']:+.1f}",
                "test log p(x)": _mean(found["test_log_p"]),
                "of patterns in the training data": f"{found['sum_of_seen']:.3f}",
            }
            for line in lines
            for found in [line["found"]]
        ]
    )


def _sum(line: dict[str, Any]) -> Mean:
    found = line["found"]
    return Mean(found["sum"], found["standard_error"], found["num_patterns"])


def draw_exact(lines: Lines) -> Figure:
    """Draw the sums with two standard errors."""
    data = list(dict.fromkeys(line["case"]["data"] for line in lines))
    figure, axes = panels(len(data), height=2.4)
    for one, name in zip(axes, data, strict=True):
        own = [line for line in lines if line["case"]["data"] == name]
        one.axvline(1, color=COLOURS[0], lw=0.8)
        number = own[0]["found"]["num_patterns"]
        methods = [line["case"]["method"] for line in own]
        title = f"{name}: sum of p(x) over {number:,} patterns"
        intervals(one, methods, [_sum(line) for line in own], title)
    return figure


def draw_others(lines: Lines) -> Figure:
    """Draw how far each way is below the long run, against gradients."""
    models = list(dict.fromkeys(line["case"]["model"] for line in lines))
    ways = list(dict.fromkeys(line["case"]["way"] for line in lines))
    figure, axes = panels(len(models), 5.0, 3.4)
    for one, model in zip(axes, models, strict=True):
        for way, colour in zip(ways, COLOURS[1:], strict=False):
            wanted = {"model": model, "way": way}.items()
            own = [line for line in lines if wanted <= line["case"].items()]
            own.sort(key=lambda line: line["case"]["gradients"])
            errors = [Mean(**line["found"]["error"]) for line in own]
            one.errorbar(
                [line["case"]["gradients"] for line in own],
                [-error.mean for error in errors],
                yerr=[2 * error.standard_error for error in errors],
                fmt="o-",
                ms=4,
                lw=1.2,
                color=colour,
                label=way,
            )
        # Linear below one nat: an estimate may also be above the long run's.
        one.set_yscale("symlog", linthresh=1)
        one.set_yticks([0, 1, 2, 5, 10, 20, 50], labels=["0", "1", "2", "5", "10", "20", "50"])
        one.axhline(0, color=INK, lw=0.6)
        numbers = sorted({line["case"]["gradients"] for line in lines})
        one.set_xscale("log")
        one.set_xticks(numbers, labels=[f"{number:,}" for number in numbers])
        one.minorticks_off()
        one.set_xlabel("gradients of an example", fontsize=8, color=INK)
        one.set_ylabel("nats below the long run", fontsize=8, color=INK)
        one.set_title(model, fontsize=9, color=INK)
        one.legend(fontsize=7, frameon=False)
    return figure


TABLES = {"bounds": bounds, "planning": planning, "tried": tried, "others": others, "exact": exact}
PICTURES = {"others": draw_others, "exact": draw_exact}
