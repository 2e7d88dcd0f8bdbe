"""Put the tables of a folder on record in results/tables, and their numbers into the README.

`python -m scripts.record runs/tables-cpu` copies the tables and, in cells/, what each cell has
found, with log p(x) of each example, and the weights that other cells start from. With a copy of
results/tables as its --out, `python -m paper table1` continues what is on record, on any machine.
"""

import shutil
import sys
from pathlib import Path

from paper.core.runs import WEIGHTS_SUFFIX
from paper.tables.contents import TABLES, make_table
from scripts.readme import ROOT, write

_RECORD = ROOT / "results" / "tables"


def record(out: Path) -> None:
    """Copy what `python -m paper` has written."""
    for table in out.glob("*.json"):
        for end in ("md", "csv", "json"):
            shutil.copy(table.with_suffix(f".{end}"), _RECORD)
    cells = [cell for name in TABLES for cell in make_table(name, "cpu", seed=0).cells]
    starts = {f"{cell.start}{WEIGHTS_SUFFIX}" for cell in cells}
    for file in (out / "cells").iterdir():
        if file.suffix == ".json" or file.name in starts:
            shutil.copy(file, _RECORD / "cells")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
    write()
