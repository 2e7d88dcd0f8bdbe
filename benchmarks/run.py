"""`make bench`: measure everything, print tables, write benchmarks/latest.json and latest.md.

Numbers are ratios of things measured in the same run on the same machine. Leave it alone meanwhile.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from aisle.cli.output import Columns, markdown_table, screen_table
from aisle.provenance import git_commit, provenance
from benchmarks.plot import plot_scaling
from benchmarks.startup import seconds_to_first_update

# Group, devices (None: one for each core), and what it is.
PLAN = [
    ("updates", "updates", None),
    ("updates, one device", "updates", 1),
    ("plain PyTorch", "torch", 1),
    ("BlackJAX", "blackjax", 1),
    ("NumPyro", "numpyro", 1),
    ("baselines", "baselines", None),
    ("plain Optax loop", "optax", 1),
    ("scaling", "scaling", None),
    ("evaluation", "evaluation", None),
    ("networks", "networks", 1),
    ("optimisers", "muon", None),
]


PATH = Path(__file__).with_name("latest.json")


def main() -> None:
    """Measure, and report; with names of groups, measure those anew and keep the others."""
    names, console = sys.argv[1:], Console(width=120)
    found: dict[str, Any] = json.loads(PATH.read_text()) if names else {}
    for name, group, devices in PLAN:
        if not names or name in names:
            console.print(f"measuring: {name}")
            found[name] = measure(group, devices) | _stamp()
            # What was measured is kept if a later group fails.
            _write(found)
    if not names or "start-up" in names:
        console.print("measuring: start-up")
        found["start-up"] = {"seconds": seconds_to_first_update(), **_stamp()}
    _write(found | provenance())
    plot_scaling(found["scaling"]["rows"], PATH.with_name("scaling.png"))
    _report(found, console)


def _report(found: dict[str, Any], console: Console) -> None:
    """Print the tables, and write them as Markdown."""
    parts = []
    for table in tables(found):
        console.print(screen_table(table.title, table.columns, table.rows))
        parts += [f"**{table.title}**", markdown_table(table.columns, table.rows)]
    PATH.with_suffix(".md").write_text("\n\n".join(parts) + "\n")
    console.print(str(PATH))


def _write(found: dict[str, Any]) -> None:
    PATH.write_text(json.dumps(found, indent=1) + "\n")


def _stamp() -> dict[str, Any]:
    """Return when a group was measured, and of which code: others may be older."""
    return {"when": datetime.now(UTC).isoformat(timespec="seconds"), "git_commit": git_commit()}


def measure(group: str, devices: int | None) -> dict[str, Any]:
    """Run a group in a process of its own and return its numbers."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices or os.cpu_count() or 1)}
    command = [sys.executable, "-m", "benchmarks.worker", group]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


class Measured(NamedTuple):
    """A table: rows of texts under headings."""

    title: str
    headings: list[str]
    rows: list[list[str]]

    @property
    def columns(self) -> Columns:
        """The headings, all over numbers."""
        return dict.fromkeys(self.headings, "right")


def tables(found: dict[str, Any]) -> list[Measured]:
    """Return the tables of everything that was measured."""
    parts = (_updates, _parts, _baselines, _scaling, _evaluation, _networks, _optimizers, _startup)
    return [part(found) for part in parts]


def _updates(found: dict[str, Any]) -> Measured:
    rows = []
    for i, row in enumerate(found["updates"]["rows"]):
        own = [f"{1e3 * row['seconds']:.1f}", f"{row['fraction']:.0%}"]
        own += [f"{row['leapfrog_fraction']:.0%}"]
        others = [_ratio(found, name, i, row) for name in _PEERS]
        rows.append([str(row["K"]), str(row["T"]), *own, *others])
    return Measured(
        "An update by annealing, L = 5, batch 128, against matrix multiplication and others",
        ["K", "T", "ms", "of the limit", "leapfrogs alone", "one device", *_PEERS[1:]],
        rows,
    )


def _parts(found: dict[str, Any]) -> Measured:
    """Split updates into what grows with T and the rest: a line through the shortest and longest T.

    Each share of the limit is that of the part's own matrix products.
    """
    by_size: dict[int, list[dict[str, Any]]] = {}
    for row in found["updates"]["rows"]:
        by_size.setdefault(row["K"], []).append(row)
    rows = []
    for K, (first, *_, last) in by_size.items():
        limit = (first["limit_gflops"] + last["limit_gflops"]) / 2
        products = [row["fraction"] * row["seconds"] * row["limit_gflops"] for row in (first, last)]
        more = last["T"] - first["T"]
        move = (last["seconds"] - first["seconds"]) / more
        rest = first["seconds"] - first["T"] * move
        move_gflop = (products[1] - products[0]) / more
        rest_gflop = products[0] - first["T"] * move_gflop
        texts = [
            text
            for seconds, gflop in ((move, move_gflop), (rest, rest_gflop))
            for text in (f"{1e3 * seconds:.1f}", f"{gflop / seconds / limit:.0%}")
        ]
        rows.append([str(K), *texts])
    return Measured(
        "The same updates: one more temperature, and all that is not the chains' moves",
        ["K", "ms a temperature", "of the limit", "ms of the rest", "rest: of the limit"],
        rows,
    )


_PEERS = ("updates, one device", "plain PyTorch", "BlackJAX", "NumPyro")


def _ratio(found: dict[str, Any], name: str, i: int, row: dict[str, Any]) -> str:
    """Return how many times longer another takes for the same row."""
    rows = found[name]["rows"]
    return f"{rows[i]['seconds'] / row['seconds']:.2f} x" if i < len(rows) else "-"


def _baselines(found: dict[str, Any]) -> Measured:
    rows = [
        [
            row["method"],
            str(row["K"]),
            f"{1e3 * row['seconds']:.1f}",
            _ratio(found, "plain Optax loop", i, row),
        ]
        for i, row in enumerate(found["baselines"]["rows"])
    ]
    title = "An update by a baseline, against a plain loop of jit and Optax"
    return Measured(title, ["method", "K", "ms", "plain loop"], rows)


def _scaling(found: dict[str, Any]) -> Measured:
    rows = []
    for row in found["scaling"]["rows"]:
        K, T, seconds = row["K"], row["T"], row["seconds"]
        each = 1e6 * seconds / (K * T * 128)
        memory = f"{row['bytes'] / 1e6:.1f}"
        rows.append([str(K), str(T), f"{1e3 * seconds:.0f}", f"{each:.2f}", memory])
    return Measured(
        "Time and temporary memory of an update against K and T",
        ["K", "T", "ms", "microseconds a chain and T", "MB a device"],
        rows,
    )


def _evaluation(found: dict[str, Any]) -> Measured:
    rows = [
        [
            str(row["chains"]),
            str(row["T"]),
            f"{row['gradients_per_second']:,.0f}",
            f"{row['fraction']:.0%}",
        ]
        for row in found["evaluation"]["rows"]
    ]
    return Measured(
        "Evaluation, L = 4", ["chains", "T", "gradients a second", "of the limit"], rows
    )


def _networks(found: dict[str, Any]) -> Measured:
    rows = [
        [
            row["network"],
            f"{row['gradients_per_second']:,.0f}",
            f"{row['of_bare_gradients']:.0%}",
            f"{row['fraction']:.0%}",
        ]
        for row in found["networks"]["rows"]
    ]
    return Measured(
        "Evaluation by kind of networks, one device, L = 4, against gradients without annealing",
        ["networks", "gradients a second", "of bare gradients", "of the limit"],
        rows,
    )


def _optimizers(found: dict[str, Any]) -> Measured:
    rows = [
        [row["optimizer"], f"{1e3 * row['seconds']:.1f}"] for row in found["optimisers"]["rows"]
    ]
    title = "An update of the default recipe, K = 1, T = 11, L = 2, by optimiser"
    return Measured(title, ["optimiser", "ms"], rows)


def _startup(found: dict[str, Any]) -> Measured:
    seconds = zip(("first", "second"), found["start-up"]["seconds"], strict=True)
    rows = [[name, f"{each:.1f}"] for name, each in seconds]
    return Measured(
        "From `aisle train` to its first update, K = 5, T = 11", ["start", "seconds"], rows
    )


if __name__ == "__main__":
    main()
