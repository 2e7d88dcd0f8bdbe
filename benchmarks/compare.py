"""Another checkout beside this one: `python -m benchmarks.compare OTHER [GROUP ...]`.

The speed of a shared machine changes from minute to minute, by more than what is looked for. So
both checkouts measure a group at the same time, each on a core of its own, and again with the
cores exchanged; the geometric mean of the two ratios counts. Both use this environment.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parents[1]
GROUPS = ("updates", "baselines", "evaluation")

Rows = list[dict[str, Any]]


def main() -> None:
    """Measure side by side, and print how many times longer this checkout takes."""
    other, names = Path(sys.argv[1]).resolve(), sys.argv[2:] or GROUPS
    first, second = sorted(os.sched_getaffinity(0))[:2]
    console = Console(width=100)
    for name in names:
        there, here = at_once(name, {first: other, second: HERE})
        here_again, there_again = at_once(name, {first: HERE, second: other})
        console.print(_table(name, [(there, here), (there_again, here_again)]))


def at_once(group: str, roots: dict[int, Path]) -> list[Rows]:
    """Run a group with the sources of each checkout, on one core each."""
    started = []
    for core, root in roots.items():
        environment = os.environ | {
            "JAX_NUM_CPU_DEVICES": "1",
            "PYTHONPATH": f"{root / 'src'}:{root}",
        }
        command = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.worker", group]
        started.append(
            subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
        )
    printed = [one.communicate()[0] for one in started]
    for one in started:
        if one.returncode:
            raise subprocess.CalledProcessError(one.returncode, one.args)
    return [json.loads(text.splitlines()[-1])["rows"] for text in printed]


def _table(name: str, turns: list[tuple[Rows, Rows]]) -> Table:
    table = Table("what", "there, ms", "here, ms", "here / there", "in each turn", title=name)
    for i, row in enumerate(turns[0][0]):
        pairs = [(_seconds(there[i]), _seconds(here[i])) for there, here in turns]
        ratios = [here / there for there, here in pairs]
        words = [f"{k}={row[k]}" for k in ("method", "chains", "K", "T") if k in row]
        times = [f"{1e3 * min(side):.4g}" for side in zip(*pairs, strict=True)]
        each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        table.add_row(" ".join(words), *times, f"{math.sqrt(math.prod(ratios)):.3f}", each)
    return table


def _seconds(row: dict[str, Any]) -> float:
    # Of an evaluation, the time of a gradient.
    return row["seconds"] if "seconds" in row else 1 / row["gradients_per_second"]


if __name__ == "__main__":
    main()
