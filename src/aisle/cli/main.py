"""The `aisle` command: its subcommands, and what a mistake looks like."""

import contextlib
import dataclasses
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import NoReturn, Protocol, runtime_checkable

from tyro.extras import subcommand_cli_from_dict

from aisle.cli.data import Data
from aisle.cli.demo import Demo
from aisle.cli.evaluate import Evaluate
from aisle.cli.gradients import Gradients
from aisle.cli.kernels import Kernels
from aisle.cli.report import Report
from aisle.cli.reproduce import Reproduce
from aisle.cli.sample import Export, Sample
from aisle.cli.selfcheck import Selfcheck
from aisle.cli.signals import Stop
from aisle.cli.train import Train
from aisle.errors import InputError, Interrupted, TrainingError

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
    "kernels": Kernels,
    "gradients": Gradients,
    "sample": Sample,
    "export": Export,
    "report": Report,
    "data": Data,
    "reproduce": Reproduce,
    "selfcheck": Selfcheck,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code: 0, 1 for a failure, 2 for a mistake."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that has no such character shows a question mark.
            stream.reconfigure(errors="replace")
    try:
        try:
            _run(arguments)
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
        _fail(f"no space left for {place}: make room, and run the command again", code=1)


def _run(arguments: list[str] | None) -> NoReturn:
    command, stop = parse(arguments), Stop()
    try:
        sys.exit(command.run())
    except InputError as error:
        _fail(_as_typed(str(error), command))
    except TrainingError as error:
        _fail(str(error), code=1)
    except (KeyboardInterrupt, ImportError) as error:
        # A module that is interrupted while it is being loaded may say ImportError.
        if isinstance(error, ImportError) and stop.number is None:
            raise
        if isinstance(error, Interrupted):
            stop.number = error.signal_number
        words = error.args if isinstance(error, KeyboardInterrupt) else ()
        sys.stderr.write(f"aisle: {': '.join(['interrupted', *map(str, words)])}\n")
        stop.leave(is_own_process=arguments is None)


def parse(arguments: list[str] | None) -> Command:
    """Return the command that the words stand for, or exit with a line that says why not."""
    if (sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        sys.stdout.write(f"aisle {version('aisle')}\n")
        sys.exit(0)
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return subcommand_cli_from_dict(
                COMMANDS, prog="aisle", description=_DESCRIPTION, args=arguments
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        _fail(_one_line(captured.getvalue()))


def _one_line(framed: str) -> str:
    """Turn tyro's framed message, sections between rules, into one line.

    The frame is of box-drawing characters, or of ASCII where the terminal has no others.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", framed)
    inside = [line.strip("│| ") for line in plain.splitlines()[1:-1]]
    sections = re.split(r"[─-]{4,}", " ".join(inside))
    sentences = [" ".join(section.split()).removesuffix(".").rstrip() for section in sections]
    return "; ".join(sentence for sentence in sentences if sentence)


def _as_typed(message: str, command: object) -> str:
    """Call an option as it is typed, where the library's message begins with its name and value.

    A file may be called like an option, but what is said of it does not begin like a value.
    """
    found = re.match(r"(\w+) is (?=[-\d'(]|nan|inf)", message)
    if found is None or found[1] not in _option_names(command):
        return message
    return f"--{found[1].replace('_', '-')}{message[found.end(1) :]}"


def _option_names(options: object) -> Iterator[str]:
    if dataclasses.is_dataclass(options):
        for option in dataclasses.fields(options):
            yield option.name
            yield from _option_names(getattr(options, option.name))


def _fail(message: str, code: int = 2) -> NoReturn:
    sys.stderr.write(f"aisle: {message}\n")
    sys.exit(code)
