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


@pytest.mark.parametrize("code", list(blocks()))
def test_every_python_block_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(path), run_name="__main__")
    assert found["fitted"].history[-1]["held_out_bound"] > 10
