"""The README's figures are those in results/, which commands wrote."""

import re
import runpy
from pathlib import Path

from benchmarks.certificates import pages

ROOT = Path(__file__).parents[1]


def test_the_figures_of_the_readme_are_on_record():
    script = runpy.run_path(str(ROOT / "scripts/readme.py"))
    readme = (ROOT / "README.md").read_text()
    assert all(f"<!-- {name} -->" in readme for name in script["PARTS"])
    assert script["fill"](readme) == readme


def test_no_result_names_a_place_of_its_machine():
    for file in (ROOT / "results").rglob("*"):
        if file.suffix in (".json", ".jsonl", ".md", ".csv"):
            assert not re.search(r"[\"' ]/(home|work|root|tmp|Users)/", file.read_text()), file


def test_tables_of_certificates_are_of_what_was_found():
    """`python -m benchmarks.certificates pages` would change nothing."""
    folder = ROOT / "results/certificates"
    for name in pages.TABLES:
        lines = pages.read(folder / f"{name}.jsonl")
        assert pages.page(name, lines) == (folder / f"{name}.md").read_text()
