"""The command line as the tests call it, in this process or as a program."""

from pathlib import Path

import pytest

from aisle.cli import main

# The command line as a program, compiled as in this process, to the bit.
PROGRAM = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import compiling
from aisle.cli import main
main()
"""


def call(*arguments):
    """Run a command and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    return stop.value.code or 0


def run(capsys, *arguments):
    """Run a command and return its exit code and what it printed."""
    capsys.readouterr()
    code = call(*arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def assert_mistake(result, *words):
    """Check that a mistake cost exit code 2 and one line that has the given words."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("aisle: ")
    assert err.count("\n") == 1 and err.endswith("\n")
    for word in words:
        assert word in err


def contents(folder):
    """Return every file of a folder with what is in it."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
