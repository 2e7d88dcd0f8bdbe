"""Put the tables of a folder on record in results/tables, and their figures into the README.

`python scripts/record.py runs/tables-cpu` copies the tables and, in cells/, what each cell has
found, with log p(x) of each example. With a copy of results/tables as its --out, `aisle reproduce`
goes on with what is on record, on any machine.
"""

import shutil
import sys
from pathlib import Path

from readme import ROOT, write

_RECORD = ROOT / "results" / "tables"


def record(out: Path) -> None:
    """Copy what `aisle reproduce` has written."""
    for table in out.glob("*.json"):
        for end in ("md", "csv", "json"):
            shutil.copy(table.with_suffix(f".{end}"), _RECORD)
    shutil.copytree(out / "cells", _RECORD / "cells", dirs_exist_ok=True)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
    write()
