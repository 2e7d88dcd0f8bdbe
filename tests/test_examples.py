"""What the README, the documentation and the examples show is run here, as it stands."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aisle.cli.main import parse
from aisle.learning import estimators

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# What they show is run from top to bottom in one folder, in this order.
WALKED = [ROOT / "README.md", ROOT / "docs/first-steps.md", ROOT / "docs/evaluating.md"]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def python_blocks():
    for page in PAGES:
        for i, code in enumerate(blocks(page, "python")):
            if page not in WALKED:
                yield pytest.param(code, id=f"{page.name}-{i}")


def commands():
    """Yield every line that starts aisle, continued lines joined, without its comment."""
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                if match := re.search(r"(?:^|\s)aisle (.*)", line):
                    words = shlex.split(
                        match[1].removesuffix("&").replace("$id", "0"), comments=True
                    )
                    yield pytest.param(words, id=f"{page.name}-{' '.join(words)}")


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("code", list(python_blocks()))
def test_every_python_block_runs(code, tmp_path, monkeypatch):
    # A block may register a method of its own.
    monkeypatch.setattr(estimators, "METHODS", dict(estimators.METHODS))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("words", list(commands()))
def test_every_command_is_understood(words):
    parse(words)


@pytest.mark.slow
def test_a_walk_through_the_pages(tmp_path):
    for page in WALKED:
        for language, code in re.findall(r"```(sh|python)\n(.*?)```", page.read_text(), re.DOTALL):
            if not code.startswith("make "):
                run_block(language, code, tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 10_000


def run_block(language, code, folder):
    scripts = str(Path(sys.executable).parent)
    program = [sys.executable, "-"] if language == "python" else ["bash", "-e"]
    environment = {"PATH": f"{scripts}:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(
        program, input=code, cwd=folder, env=environment, text=True, capture_output=True
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def run_example(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    return runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


@pytest.mark.slow
def test_a_model_of_your_own(tmp_path, monkeypatch):
    found = run_example("own_model.py", tmp_path, monkeypatch)
    assert found["fitted"].history[-1]["held_out_bound"] > 10


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
def test_counts_are_fitted_as_well_as_by_the_model_that_made_them(tmp_path, monkeypatch):
    found = run_example("counts.py", tmp_path, monkeypatch)
    assert abs(found["found"].bdmc.gap.mean) < 0.1
    assert abs(found["difference"].mean()) < 0.2


@pytest.mark.slow
def test_a_decoder_from_elsewhere(tmp_path, monkeypatch):
    found = run_example("evaluate_elsewhere.py", tmp_path, monkeypatch)
    errors = found["result"].log_p - found["exact"]
    assert -1.0 < errors.mean() < 0
    assert abs(errors.mean() + found["result"].bdmc.gap.mean) < 0.2


def test_every_example_is_tested():
    tested = {"own_model.py", "counts.py", "evaluate_elsewhere.py"}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == tested
