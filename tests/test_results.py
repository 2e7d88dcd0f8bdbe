"""The README's figures are those in results/, which commands wrote."""

import json
import re
from pathlib import Path

import pytest

from aisle.cli.demo import texts
from aisle.experiments.cells import Row
from aisle.statistics import Mean

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_demonstration_of_the_readme_is_the_one_on_record():
    content = json.loads((ROOT / "results/demo/results.json").read_text())
    for record in content["results"]:
        better = record.pop("better_than_vae")
        means = {name: Mean(**record[name]) for name in ("log_likelihood", "gap")}
        line = texts(Row(**record | means), better and Mean(**better))
        assert rf"│ {' │ '.join(line)}" in re.sub(r" +", " ", README).replace("│ │", "│  │")


@pytest.mark.parametrize("row", re.findall(r"^\| [a-z0-9-]*-K\d.*\|$", README, re.MULTILINE))
def test_every_row_of_a_table_is_on_record(row):
    pages = (ROOT / "results/tables").glob("*.md")
    assert any(row in page.read_text().splitlines() for page in pages)


def test_no_result_names_a_place_of_its_machine():
    for file in (ROOT / "results").rglob("*"):
        if file.suffix in (".json", ".md", ".csv"):
            assert not re.search(r"[\"' ]/(home|work|root|tmp|Users)/", file.read_text()), file
