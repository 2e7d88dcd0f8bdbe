"""What is published: a source archive and a wheel, which work by themselves."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from aisle.errors import InputError
from aisle.models.doors.assembly import needed

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*words, cwd, code=0):
    """Run a program, as in a fresh shell; return what it prints, or its complaint."""
    # Nothing of this repository is on the path, and programs are compiled as users have them.
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")}
    done = subprocess.run(words, cwd=cwd, env=kept, capture_output=True, text=True)
    assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stderr if code else done.stdout


def left_out(folder, names):
    """Return what of a folder is no source; a package of aisle's is called `runs`, too."""
    made = ("build", "runs") if Path(folder) == ROOT else ()
    return {
        n for n in names if n in made or n[0] == "." or n.endswith((".egg-info", "__pycache__"))
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build both from a copy of the repository."""
    try:
        importlib.metadata.version("build")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package `build` is not installed: make env installs it")
    home = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT, home / "copy", ignore=left_out)
    run(sys.executable, "-m", "build", "--outdir", home / "dist", home / "copy", cwd=home)
    return home / "dist"


@pytest.mark.slow
def test_archives_hold_the_package_and_nothing_else(built):
    (source,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(source) as archive:
        inside = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    assert {path.parts[0] for path in inside if path.parts} == {
        *("CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md"),
        *("pyproject.toml", "setup.cfg", "src"),
    }
    files = {path.relative_to(ROOT / "src") for path in (ROOT / "src" / "aisle").rglob("*.*")}
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name) for name in archive.namelist()}
    own = {path for path in names if path.parts[0] == "aisle"}
    assert own == {path for path in files if "__pycache__" not in path.parts}
    assert {path.parts[0] for path in names - own} == {f"aisle-{PROJECT['version']}.dist-info"}


@pytest.mark.slow
def test_the_wheel_alone_is_enough(built, tmp_path):
    run(sys.executable, "-m", "venv", "fresh", cwd=tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pinned = ("--constraint", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", *pinned, wheel, cwd=tmp_path)
    aisle = python.with_name("aisle")
    assert run(aisle, "--version", cwd=tmp_path) == f"aisle {PROJECT['version']}\n"
    run(aisle, "selfcheck", cwd=tmp_path)
    shown = run(aisle, "demo", "--epochs", "1", cwd=tmp_path)
    assert "no report.html" in shown and "aisle[report]" in " ".join(shown.split())
    assert (tmp_path / "runs" / "demo" / "samples.png").exists()
    for words, extra in (
        (("report", "runs/demo/vae", "--out", "page.html"), "report"),
        (("train", "digits", "--updates", "2", "--tensorboard", "--out", "board"), "tensorboard"),
    ):
        assert f"aisle[{extra}]" in run(aisle, *words, cwd=tmp_path, code=2)
    assert not (tmp_path / "page.html").exists() and not (tmp_path / "board").exists()


def test_the_oldest_versions_are_those_of_the_lower_bounds():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["report"], *extras["tables"]]
    bounds = dict(line.split(">=") for line in wanted)
    for name, least in bounds.items():
        found = pinned[name].split(".")
        assert found[: least.count(".") + 1] == least.split("."), name
        assert all(part == "0" for part in found[least.count(".") + 1 :]), name


def test_a_missing_extra_is_named():
    with pytest.raises(InputError, match=r"from_x needs absent, .*pip install 'aisle\[x\]'"):
        needed("absent", "from_x", "x")
