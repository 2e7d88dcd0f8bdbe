import json
import subprocess
import sys

import pytest

from aisle.experiments import selfcheck
from aisle.experiments.selfcheck import Check
from commands import assert_mistake, run

GOOD = Check("good", "equals", 1.0, 1.01, 0.01, 1.0)
BAD = Check("bad", "equals", 1.0, 2.0, 0.01, 100.0)


@pytest.mark.parametrize(
    ("check", "code", "verdict"), [(GOOD, 0, "1 of 1 checks passed"), (BAD, 1, "FAILED")]
)
def test_selfcheck_exits_with_one_if_a_check_fails(
    capsys, monkeypatch, tmp_path, check, code, verdict
):
    monkeypatch.setattr(selfcheck, "GROUPS", {"group": lambda key: [check]})
    path = tmp_path / "figures.json"
    found, out, _ = run(capsys, "selfcheck", "--json", str(path), "--seed", "3")
    assert found == code
    assert verdict in out
    figures = json.loads(path.read_text())
    assert figures["is_passed"] == (code == 0)
    assert figures["checks"] == [
        {"group": "group", **check._asdict(), "is_passed": check.is_passed}
    ]
    assert figures["seed"] == 3
    assert figures["packages"]["jax"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Expected one of {"),
        (["nonsense"], "Unrecognized options: nonsense; Available subcommands: "),
        (["selfcheck", "--seed", "x"], "--seed: invalid literal for int() with base 10: 'x'"),
        (
            ["selfcheck", "--sede", "1"],
            "options: --sede, 1; Perhaps you meant: --seed",
        ),
        (["selfcheck", "--json", "no/such/folder/a.json"], "give a file in an existing folder"),
        (["selfcheck", "--json", "."], ". is a folder: give a file"),
    ],
)
def test_a_mistake_gets_one_line_and_code_two(capsys, arguments, words):
    assert_mistake(run(capsys, *arguments), words)


def test_help_names_the_commands(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "selfcheck" in out


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["data", "list"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(arguments):
    command = [sys.executable, "-m", "aisle", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode
