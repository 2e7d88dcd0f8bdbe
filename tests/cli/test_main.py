import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from aisle.cli.main import COMMANDS
from aisle.cli.selfcheck import Selfcheck
from aisle.cli.signals import Stop
from aisle.evaluation import selfcheck
from aisle.evaluation.selfcheck import Check
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
    path = tmp_path / "numbers.json"
    found, out, _ = run(capsys, "selfcheck", "--json", str(path), "--seed", "3")
    assert found == code
    assert verdict in out
    numbers = json.loads(path.read_text())
    assert numbers["is_passed"] == (code == 0)
    assert numbers["checks"] == [
        {"group": "group", **check._asdict(), "is_passed": check.is_passed}
    ]
    assert numbers["seed"] == 3
    assert numbers["packages"]["jax"]
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
        (["selfcheck", "--json", "a.npy"], "a.npy does not end in .json: give a file that does"),
        (["selfcheck", "--seed", str(2**63)], "--seed is 9223372036854775808: it must be from 0"),
        (["sample", "run", "--seed", "-1"], "--seed is -1: it must be at least 0"),
        (["selfcheck", "--seed", "0.5"], "--seed: invalid literal for int() with base 10: '0.5'"),
    ],
)
def test_a_mistake_gets_one_line_and_code_two(capsys, arguments, words):
    assert_mistake(run(capsys, *arguments), words)


def test_help_names_the_commands_in_a_line_each(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"• {name} " in out for name in COMMANDS)
    assert len(out.splitlines()) <= 12 + len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_holds_without_an_option(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = run(capsys, command, "--help")
    lines = [line.strip("│ ") for line in out.splitlines()]
    words = " ".join(" ".join(lines).split())
    assert code == 0
    assert "usage: aisle" in words
    assert "default: None" not in words
    assert (
        command == "data" or "For example: aisle " in words or "minute" in words or "file" in words
    )
    # A line that is not the first of its option begins a sentence.
    broken = [line for line in lines if line.endswith((" the", " a", " be given,", " and", " of"))]
    assert broken == []


def test_ctrl_c_while_modules_are_loaded_ends_it_like_any_other_process():
    program = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "tyro":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from aisle.__main__ import main
main()
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (-signal.SIGINT, b"")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_a_process_that_may_use_one_core_has_one_device():
    program = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from aisle.cli.devices import set_up_jax
set_up_jax()
import jax
print(jax.device_count())
"""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "1\n"


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["data", "list"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(arguments):
    command = [sys.executable, "-m", "aisle", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a full device")  # noqa: PTH110
def test_a_full_disk_below_the_output_is_told_in_one_line():
    command = [sys.executable, "-m", "aisle", "data", "list"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith(b"aisle: no space left for what this command writes: make room")
    assert found.stderr.count(b"\n") == 1


def test_the_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"aisle {version('aisle')}\n")


@pytest.fixture
def stop():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Stop()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_and_gives_the_exit_code(stop, number):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    with pytest.raises(SystemExit) as caught:
        stop.leave(is_own_process=False)
    assert caught.value.code == 128 + number


def test_a_signal_in_a_callback_that_drops_exceptions_comes_again(stop):
    def _xla_gc_callback():
        signal.raise_signal(signal.SIGINT)

    _xla_gc_callback()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(60)


def test_training_that_ctrl_c_has_ended_gives_its_exit_code(capsys, monkeypatch):
    def ended(self):
        raise KeyboardInterrupt("in a cell")

    monkeypatch.setattr(Selfcheck, "run", ended)
    assert run(capsys, "selfcheck") == (130, "", "aisle: interrupted: in a cell\n")


def test_a_module_that_breaks_for_a_signal_is_no_traceback(capsys, monkeypatch, stop):
    def broken(self):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise ImportError("initializing the extension")

    monkeypatch.setattr(Selfcheck, "run", broken)
    assert run(capsys, "selfcheck") == (143, "", "aisle: interrupted\n")


def test_a_folder_that_is_called_like_an_option_keeps_its_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    assert run(capsys, "sample", "out")[2].startswith("aisle: out is not a run")
