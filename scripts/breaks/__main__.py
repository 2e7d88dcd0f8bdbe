"""Break the code on purpose, and see the tests notice: `make breaks`.

Each break is one edit of a copy of the sources; the fast tests that should notice are then run
against the copy. A break that no test notices, or one whose text is no longer in the sources, fails
the script.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.breaks import (
    annealing,
    beside,
    data,
    estimator,
    evaluation,
    learning,
    models,
    report,
    runs,
)
from scripts.breaks.item import Break

ROOT = Path(__file__).parents[2]

LAYERS = (annealing, models, data, learning, evaluation, runs, report, estimator, beside)
BREAKS = [item for layer in LAYERS for item in layer.BREAKS]


def main() -> int:
    """Apply each break in turn; return 1 if any goes unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="breaks whose name contains this text")
    parser.add_argument("--jobs", type=int, default=1, help="breaks that are tried at once")
    options = parser.parse_args()
    only, jobs = options.only, options.jobs
    chosen = [b for b in BREAKS if only in b.name]
    if not chosen:
        parser.error(f"--only {only} is in no break's name")
    print(f"{'unbroken':66s}", end=" ", flush=True)
    status = _run(None, sorted({item.tests for item in chosen}))
    print(status)
    unnoticed = [] if status == "tests pass" else ["unbroken sources fail"]
    with ThreadPoolExecutor(jobs) as pool:
        for item, status in zip(
            chosen, pool.map(lambda item: _run(item, [item.tests]), chosen), strict=True
        ):
            print(f"{item.name:66s} {status}", flush=True)
            unnoticed += [] if status.startswith("caught") else [item.name]
    print(f"{len(chosen)} breaks, {len(unnoticed)} unnoticed")
    return 1 if unnoticed else 0


def _run(item: Break | None, tests: list[str]) -> str:
    """Return 'tests pass', or the first test that failed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "paper", "applications", "conftest.py", "pyproject.toml"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        if item is not None:
            _apply(item, copy / _in_repository(item.file, "src/aisle"))
        start = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow"]
        command += [_in_repository(name, "tests") for name in tests]
        # The copy must win over the installed package.
        environment = os.environ | {"PYTHONPATH": str(copy / "src")}
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - start
    if done.returncode == 0:
        return "tests pass"
    failed = re.search(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        return f"tests did not run: {done.stdout[-500:]}"
    return f"caught in {seconds:3.0f} s by {failed.group(1)}"


def _in_repository(name: str, usual: str) -> str:
    return name if name.startswith(("paper/", "applications/")) else f"{usual}/{name}"


def _apply(item: Break, path: Path) -> None:
    text = path.read_text()
    if text.count(item.old) != 1:
        sys.exit(f"{item.name}: its text stands {text.count(item.old)} times in {item.file}, not 1")
    path.write_text(text.replace(item.old, item.new))


if __name__ == "__main__":
    sys.exit(main())
