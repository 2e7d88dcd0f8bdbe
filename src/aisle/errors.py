"""What can go wrong in ways that are told to the user in one line."""

from collections.abc import Iterable, Mapping
from numbers import Integral, Number
from typing import Any


class InputError(ValueError):
    """A mistake in the input, told in one line: the value, the rule it breaks and the fix.

    The command line prints it without a traceback and exits with code 2.
    """


class TrainingError(RuntimeError):
    """Training cannot go on, though nothing was wrong with the input; nothing is lost.

    The command line prints it without a traceback and exits with code 1.
    """


class Interrupted(KeyboardInterrupt):
    """A signal has ended training early, in order.

    The command line prints the words, and exits with the signal's code.
    """

    def __init__(self, signal_number: int, *words: str) -> None:
        super().__init__(*words)
        self.signal_number = signal_number


def check_seed(seed: int) -> None:
    """Refuse a seed that does not fit the random generators."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}: it must be from 0 to {2**32 - 1}")


def python_numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with NumPy's numbers as Python's own, which files can hold."""
    numbers: dict[str, Any] = {
        name: value for name, value in given.items() if isinstance(value, Number)
    }
    own = {name: value.item() for name, value in numbers.items() if hasattr(value, "item")}
    return {**given, **own}


def check_whole(given: Mapping[str, object], names: Iterable[str]) -> None:
    """Refuse a number that must be whole and is not."""
    for name in names:
        if not isinstance(given[name], Integral):
            raise InputError(f"{name} is {given[name]!r}: it must be a whole number")


def check_rules(given: Mapping[str, object], rules: Mapping[str, tuple[bool, str]]) -> None:
    """Refuse the first value whose rule is not kept, in one line that names both."""
    for name, (is_kept, rule) in rules.items():
        if not is_kept:
            raise InputError(f"{name} is {given[name]}: it must be {rule}")
