"""`python -m paper` as the tests call it, in this process."""

import pytest

from paper.options import main


def run(capsys, *arguments):
    """Run a command and return its exit code and what it printed."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


def assert_mistake(result, *words):
    """Check that a mistake cost exit code 2 and one line that has the given words."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("paper: ")
    assert err.count("\n") == 1 and err.endswith("\n")
    for word in words:
        assert word in err
