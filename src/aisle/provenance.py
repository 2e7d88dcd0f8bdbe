"""Where a figure comes from: the versions, the commit and the machine that made it."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

_PACKAGES = ("aisle", "jax", "jaxlib", "equinox", "optax", "numpy")


def provenance() -> dict[str, object]:
    """Return what a result file records beside its figures."""
    import jax

    return {
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "git_commit": git_commit(),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
            "devices": [str(device) for device in jax.devices()],
        },
    }


def git_commit() -> str | None:
    """Return the commit of the checkout that the package runs from, '+' marking local changes."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # A package installed into somebody's own repository must not report that one's commit.
        git("ls-files", "--error-unmatch", __file__)
        commit = git("rev-parse", "HEAD")
        return commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
