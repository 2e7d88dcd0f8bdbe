"""Put the tables of a folder on record in results/tables, and their figures into the README.

`python scripts/record.py runs/tables-cpu` copies the tables and, in cells/, what each cell has
found, with log p(x) of each example, and the weights that other cells start from. With a copy of
results/tables as its --out, `aisle reproduce` goes on with what is on record, on any machine.
"""

import shutil
import sys
from pathlib import Path

from readme import ROOT, write

from aisle.experiments import tables
from aisle.learning import weights_file

_RECORD = ROOT / "results" / "tables"


def record(out: Path) -> None:
    """Copy what `aisle reproduce` has written."""
    for table in out.glob("*.json"):
        for end in ("md", "csv", "json"):
            shutil.copy(table.with_suffix(f".{end}"), _RECORD)
    cells = [cell for name in tables.TABLES for cell in tables.named(name, "cpu", seed=0).cells]
    starts = {f"{cell.start}{weights_file.SUFFIX}" for cell in cells}
    for file in (out / "cells").iterdir():
        if file.suffix == ".json" or file.name in starts:
            shutil.copy(file, _RECORD / "cells")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
    write()
