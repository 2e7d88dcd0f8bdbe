"""The `aisle` command: its subcommands, and what a mistake looks like."""

import contextlib
import dataclasses
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple, NoReturn, Protocol, Union, runtime_checkable

import tyro
from tyro.conf import subcommand

from aisle.cli.compare import Compare
from aisle.cli.data import Data
from aisle.cli.demo import Demo
from aisle.cli.evaluate import Evaluate
from aisle.cli.impute import Impute
from aisle.cli.report import Report
from aisle.cli.sample import Export, Sample
from aisle.cli.score import Score
from aisle.cli.select import Select
from aisle.cli.selfcheck import Selfcheck
from aisle.cli.signals import Stop
from aisle.cli.train import Train
from aisle.errors import InputError, TrainingError

_DESCRIPTION = (
    "Train latent-variable models by maximum likelihood with annealed importance sampling, and "
    "measure them with log-likelihoods that carry a certificate. aisle --version names the version."
)


@runtime_checkable
class Command(Protocol):
    """A dataclass of arguments that can be run."""

    def run(self) -> int:
        """Do the work and return the exit code."""
        ...


COMMANDS: dict[str, type[Command]] = {
    "demo": Demo,
    "train": Train,
    "evaluate": Evaluate,
    "compare": Compare,
    "select": Select,
    "score": Score,
    "sample": Sample,
    "impute": Impute,
    "export": Export,
    "report": Report,
    "data": Data,
    "selfcheck": Selfcheck,
}


# Arguments of objects that are typed by another name.
_TYPED = {"refresh": "momentum_refresh", "average": "ema", "every": "validate_every"}


class Program(NamedTuple):
    """A set of commands that share how mistakes, signals and a full disk are reported.

    Attributes:
        name: stands before each message.
        called: how a user starts it.
        description: the first lines of its help.
        commands: its subcommands by name.
    """

    name: str
    called: str
    description: str
    commands: Mapping[str, type[Command]]


AISLE = Program("aisle", "aisle", _DESCRIPTION, COMMANDS)


def main(arguments: list[str] | None = None, program: Program = AISLE) -> None:
    """Run the command and exit with its code: 0, 1 for a failure, 2 for a mistake."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that has no such character shows a question mark.
            stream.reconfigure(errors="replace")
    try:
        try:
            _run(arguments, program)
        finally:
            sys.stdout.flush()
    except OSError as error:
        # What is left to print has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The reader has seen enough, as in `aisle --help | head`: end quietly, as others do.
            sys.exit(128 + signal.SIGPIPE)
        if error.errno != errno.ENOSPC:
            raise
        place = error.filename or "what this command writes"
        _fail(program, f"no space left for {place}: make room, and run the command again", code=1)


def _run(arguments: list[str] | None, program: Program) -> NoReturn:
    command, stop = parse(arguments, program), Stop()
    try:
        sys.exit(command.run())
    except InputError as error:
        _fail(program, _as_typed(error, command))
    except TrainingError as error:
        _fail(program, str(error), code=1)
    except (KeyboardInterrupt, ImportError) as error:
        # A module that is interrupted while it is being loaded may say ImportError.
        if isinstance(error, ImportError) and stop.number is None:
            raise
        words = error.args if isinstance(error, KeyboardInterrupt) else ()
        sys.stderr.write(f"{program.name}: {': '.join(['interrupted', *map(str, words)])}\n")
        stop.leave(is_own_process=arguments is None)


def parse(arguments: list[str] | None, program: Program = AISLE) -> Command:
    """Return the command that the words stand for, or exit with a line that says why not."""
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        sys.stdout.write(f"aisle {version('aisle')}\n")
        sys.exit(0)
    commands, called = program.commands, program.called
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            if words and words[0] in commands:
                return tyro.cli(commands[words[0]], prog=f"{called} {words[0]}", args=words[1:])
            # A line for each: what a command does in full, its own help says.
            listed: Any = Union[tuple(_listed(*pair) for pair in commands.items())]  # noqa: UP007
            return tyro.cli(listed, prog=called, description=program.description, args=words)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        _fail(program, _one_line(captured.getvalue()))


def _listed(name: str, command: type[Command]) -> Any:
    line = (command.__doc__ or "").splitlines()[0]
    return Annotated[command, subcommand(name, description=line)]


def _one_line(framed: str) -> str:
    """Turn tyro's framed message, sections between rules, into one line.

    The frame is of box-drawing characters, or of ASCII where the terminal has no others.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", framed)
    inside = [line.strip("│| ") for line in plain.splitlines()[1:-1]]
    sections = re.split(r"[─-]{4,}", " ".join(inside))
    sentences = [" ".join(section.split()).removesuffix(".").rstrip() for section in sections]
    return "; ".join(sentence for sentence in sentences if sentence)


def _as_typed(error: InputError, command: object) -> str:
    """Call an argument as it is typed, where it is one of the command's options."""
    name = _TYPED.get(error.argument or "", error.argument)
    if name is None or name not in _option_names(command):
        return str(error)
    return f"--{name.replace('_', '-')} {error.message}"


def _option_names(options: object) -> Iterator[str]:
    if dataclasses.is_dataclass(options):
        for option in dataclasses.fields(options):
            yield option.name
            yield from _option_names(getattr(options, option.name))


def _fail(program: Program, message: str, code: int = 2) -> NoReturn:
    sys.stderr.write(f"{program.name}: {message}\n")
    sys.exit(code)
