"""Every deliberate break can still be made, and names tests that are there."""

import ast
from pathlib import Path

import pytest

from scripts.breaks.__main__ import BREAKS, _in_repository

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("item", BREAKS, ids=[item.name for item in BREAKS])
def test_the_text_stands_in_the_sources_once_and_its_tests_are_there(item):
    text = (ROOT / _in_repository(item.file, "src/aisle")).read_text()
    assert text.count(item.old) == 1
    ast.parse(text.replace(item.old, item.new))
    file, *names = item.tests.split("::")
    tests = ast.parse((ROOT / _in_repository(file, "tests")).read_text())
    found = [
        node
        for node in ast.walk(tests)
        if isinstance(node, ast.FunctionDef) and node.name in (names[-1:] or [node.name])
    ]
    # Slow tests are not run.
    assert [node for node in found if node.name.startswith("test_") and not is_slow(node)]


def is_slow(node):
    return any(ast.unparse(decorator) == "pytest.mark.slow" for decorator in node.decorator_list)
