"""Imports go one way: a folder may import from the folders listed for it, and from itself."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aisle

ROOT = Path(aisle.__file__).parent

LEAVES = {
    "compilation",
    "context",
    "errors",
    "files",
    "objects",
    "types",
    "provenance",
    "processes",
    "progress",
    "statistics",
}
MATHS = LEAVES | {"annealing", "models", "data"}
RUNS = MATHS | {"learning", "evaluation"}
ALLOWED = {
    **{leaf: set() for leaf in LEAVES},
    "context": {"errors", "types"},
    "files": {"errors"},
    "processes": {"errors"},
    "data": LEAVES,
    "annealing": LEAVES,
    "models": LEAVES,
    "learning": MATHS,
    "evaluation": MATHS,
    "runs": RUNS,
    "report": RUNS | {"runs"},
    "estimator": RUNS | {"runs"},
    "__main__": {"cli"},
    "cli": RUNS | {"runs", "report"},
}

MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def layer(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_layers(source):
    """Return the layers of aisle that a source imports, wherever in it the import stands."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("aisle.")}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    wrong = imported_layers(path.read_text()) - ALLOWED[layer(path)] - {layer(path)}
    assert not wrong, f"{layer(path)} may not import {wrong}"


def test_the_rule_sees_a_wrong_arrow():
    source = "def f():\n    from aisle.models import LinearGaussian\n    import aisle.cli.main"
    assert imported_layers(source) == {"models", "cli"}


def test_the_command_line_starts_without_jax():
    code = "import sys, aisle.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_can_be_imported():
    for name in aisle.__all__:
        assert getattr(aisle, name) is not None


def test_imports_leave_the_backend_alone():
    """A cluster is joined before JAX starts its backend; one that does not exist shows it."""
    code = "import aisle.cli, aisle.runs.training, aisle.runs.evaluating, aisle.report.page"
    environment = os.environ | {"JAX_PLATFORMS": "nowhere"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == 0
