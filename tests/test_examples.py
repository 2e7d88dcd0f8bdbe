"""What the README and the examples show is run here, as it stands."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks():
    for page in PAGES:
        for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            yield pytest.param(code, id=f"{page.name}-{i}")


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("code", list(blocks()))
def test_every_python_block_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {"__name__": "__main__"})


def run_example(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    return runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def test_a_model_of_your_own(tmp_path, monkeypatch):
    found = run_example("own_model.py", tmp_path, monkeypatch)
    assert found["fitted"].history[-1]["held_out_bound"] > 10


@pytest.mark.slow
def test_a_decoder_from_elsewhere(tmp_path, monkeypatch):
    found = run_example("evaluate_elsewhere.py", tmp_path, monkeypatch)
    errors = found["result"].log_p - found["exact"]
    assert -1.0 < errors.mean() < 0
    assert abs(errors.mean() + found["result"].bdmc.gap.mean) < 0.2


def test_every_example_is_tested():
    tested = {"own_model.py", "evaluate_elsewhere.py"}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == tested
