"""How long `aisle train` takes from the command to its first update."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def seconds_to_first_update() -> list[float]:
    """Start twice: with no compiled program kept from before, and with those of the first start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # One batch, so that the first numbers that a run writes are those of its first update.
        np.save(folder / "x.npy", np.random.default_rng(0).random((142, 784), np.float32))
        return [_start(folder, f"run{i}") for i in range(2)]


def _start(folder: Path, run: str) -> float:
    command = [sys.executable, "-m", "aisle", "train", "x.npy", "--method", "ais", "--epochs", "1"]
    command += ["--out", run]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled")}
    metrics = folder / run / "metrics.jsonl"
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.02)
    seconds = time.perf_counter() - begin
    if process.wait():
        raise RuntimeError(f"{' '.join(command)} failed with code {process.returncode}")
    return seconds
