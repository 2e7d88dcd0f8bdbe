"""`make bench`: measure everything, print tables, write benchmarks/latest.json.

Figures are ratios of things measured in the same run on the same machine. Leave it alone meanwhile.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from aisle.provenance import provenance

# Group, devices (None: one for each core), and what it is.
PLAN = [
    ("updates", "updates", None),
    ("updates, one device", "updates", 1),
    ("plain PyTorch", "torch", 1),
    ("BlackJAX", "blackjax", 1),
    ("baselines", "baselines", None),
    ("plain Optax loop", "optax", 1),
    ("memory", "memory", None),
    ("evaluation", "evaluation", None),
]


def main() -> None:
    """Measure and report."""
    console, start = Console(width=120), time.perf_counter()
    found: dict[str, Any] = {}
    path = Path(__file__).with_name("latest.json")
    for name, group, devices in PLAN:
        console.print(f"measuring: {name}")
        found[name] = measure(group, devices)
        # What was measured is kept if a later group fails.
        path.write_text(json.dumps(found, indent=1) + "\n")
    for table in tables(found):
        console.print(table)
    found |= {"seconds": time.perf_counter() - start, **provenance()}
    path.write_text(json.dumps(found, indent=1) + "\n")
    console.print(str(path))


def measure(group: str, devices: int | None) -> dict[str, Any]:
    """Run a group in a process of its own and return its figures."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices or os.cpu_count() or 1)}
    command = [sys.executable, "-m", "benchmarks.worker", group]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def tables(found: dict[str, Any]) -> list[Table]:
    """Return the tables of everything that was measured."""
    return [_updates(found), _baselines(found), _memory(found), _evaluation(found)]


def _updates(found: dict[str, Any]) -> Table:
    table = _table(
        "an update by annealing, L = 5, batch 128, against matrix multiplication and others",
        ["K", "T", "ms", "of the limit", "leapfrogs alone", "one device", "PyTorch", "BlackJAX"],
    )
    rows = found["updates"]["rows"]
    for i, row in enumerate(rows):
        others = [_ratio(found, name, i, row) for name in _PEERS]
        table.add_row(
            str(row["K"]),
            str(row["T"]),
            f"{1e3 * row['seconds']:.1f}",
            f"{row['fraction']:.0%}",
            f"{row['leapfrog_fraction']:.0%}",
            *others,
        )
    return table


_PEERS = ("updates, one device", "plain PyTorch", "BlackJAX")


def _ratio(found: dict[str, Any], name: str, i: int, row: dict[str, Any]) -> str:
    """Return how many times longer another takes for the same row."""
    rows = found[name]["rows"]
    return f"{rows[i]['seconds'] / row['seconds']:.2f} x" if i < len(rows) else "-"


def _baselines(found: dict[str, Any]) -> Table:
    title = "an update by a baseline, against a plain loop of jit and Optax"
    table = _table(title, ["method", "K", "ms", "plain loop"])
    for i, row in enumerate(found["baselines"]["rows"]):
        ratio = _ratio(found, "plain Optax loop", i, row)
        table.add_row(row["method"], str(row["K"]), f"{1e3 * row['seconds']:.1f}", ratio)
    return table


def _memory(found: dict[str, Any]) -> Table:
    table = _table(
        "temporary memory of an update, on each device", ["K", "T", "MB", "of the first"]
    )
    rows = found["memory"]["rows"]
    for row in rows:
        share = row["bytes"] / rows[0]["bytes"]
        table.add_row(str(row["K"]), str(row["T"]), f"{row['bytes'] / 1e6:.1f}", f"{share:.2f}")
    return table


def _evaluation(found: dict[str, Any]) -> Table:
    table = _table("evaluation, L = 4", ["chains", "T", "gradients a second", "of the limit"])
    for row in found["evaluation"]["rows"]:
        rate = f"{row['gradients_per_second']:,.0f}"
        table.add_row(str(row["chains"]), str(row["T"]), rate, f"{row['fraction']:.0%}")
    return table


def _table(title: str, headings: list[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


if __name__ == "__main__":
    main()
