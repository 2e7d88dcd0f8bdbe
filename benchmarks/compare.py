"""Another checkout against this one, in turns: `python -m benchmarks.compare OTHER [GROUP ...]`.

Groups of measurements run in turns, here and there, some times over, as the speed of a shared
machine changes from minute to minute; the best of each counts. Both use this environment.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parents[1]
GROUPS = ("updates", "baselines", "evaluation")
NUM_TURNS = 3


def main() -> None:
    """Measure in turns, and print how many times longer this checkout takes."""
    other, names = Path(sys.argv[1]).resolve(), sys.argv[2:] or GROUPS
    console = Console(width=100)
    for name in names:
        turns = [[measure(root, name) for root in (other, HERE)] for _ in range(NUM_TURNS)]
        console.print(_table(name, turns))


def measure(root: Path, group: str) -> list[dict[str, Any]]:
    """Run a group with the sources of a checkout."""
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": str(os.cpu_count() or 1),
        "PYTHONPATH": f"{root / 'src'}:{root}",
    }
    command = [sys.executable, "-m", "benchmarks.worker", group]
    done = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])["rows"]


def _table(name: str, turns: list[list[list[dict[str, Any]]]]) -> Table:
    table = Table("what", "there, ms", "here, ms", "here / there", title=name)
    for i, row in enumerate(turns[0][0]):
        there, here = (min(_seconds(turn[side][i]) for turn in turns) for side in (0, 1))
        words = [f"{k}={row[k]}" for k in ("method", "chains", "K", "T") if k in row]
        table.add_row(
            " ".join(words), f"{1e3 * there:.4g}", f"{1e3 * here:.4g}", f"{here / there:.3f}"
        )
    return table


def _seconds(row: dict[str, Any]) -> float:
    # Of an evaluation, the time of a gradient.
    return row["seconds"] if "seconds" in row else 1 / row["gradients_per_second"]


if __name__ == "__main__":
    main()
