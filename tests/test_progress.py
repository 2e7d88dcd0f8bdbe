import io
import sys
from types import SimpleNamespace

import pytest

from aisle import progress
from aisle.progress import Progress


class Clock:
    """A clock that stands still until it is set on."""

    def __init__(self):
        self.now = 1000.0

    def perf_counter(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    return clock


def lines(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_elsewhere_than_on_a_terminal_there_is_a_line_now_and_then(capsys, clock):
    with Progress(100, "work", "steps") as shown:
        for done in range(1, 101):
            clock.now += 1
            shown.advance(done, f"at {done}")
    assert lines(capsys) == [
        *(f"at {n}  1 steps/s  {100 - n} s left" for n in range(11, 100, 11)),
        "at 100  1 steps/s",
    ]


def test_the_last_step_is_always_shown(capsys, clock):
    with Progress(2, "work", "steps") as shown:
        shown.advance(1, "first", "a note")
        shown.advance(2, "second", "a note")
    assert lines(capsys) == ["second  a note  1,000,000,000 steps/s"]


def test_the_speed_leaves_out_the_first_step_which_compiles(capsys, clock):
    """And the steps that an earlier process made."""
    with Progress(60, "work", "gradients", units_per_step=500, first=20) as shown:
        clock.now += 1000
        shown.advance(30, "work")
        clock.now += 20
        shown.advance(40, "work")
    # Of the first step nothing is known but that it is done.
    assert lines(capsys) == ["work", "work  250 gradients/s  40 s left"]


def test_nothing_is_shown_if_not_asked_for(capsys, clock):
    with Progress(2, "work", "steps", is_shown=False) as hidden:
        clock.now += 100
        hidden.advance(1, "work")
        hidden.advance(2, "work")
    assert lines(capsys) == []


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_line_of_its_own_is_neither_wrapped_nor_coloured(capsys, clock, is_shown):
    line = f"update 12 of {'a long path/' * 30} took 3.5 s"
    with Progress(2, "work", "steps", is_shown=is_shown) as shown:
        shown.say(line)
    assert lines(capsys) == [line]


def test_a_terminal_gets_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    with Progress(4, "work", "steps") as shown:
        for done in range(1, 5):
            shown.advance(done, f"at {done}", "a note")
        shown.say("a line")
    drawn = terminal.getvalue()
    assert "━" in drawn and "\x1b[" in drawn
    assert "at 4" in drawn and "a note" in drawn and "steps/s" in drawn
    assert "a line\n" in drawn
    # No plain lines beside it.
    assert "left" not in drawn


def test_an_error_ends_the_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    with pytest.raises(RuntimeError), Progress(4, "work", "steps") as shown:
        shown.advance(1, "work")
        raise RuntimeError
    # The cursor is shown again.
    assert terminal.getvalue().endswith("\x1b[?25h")
