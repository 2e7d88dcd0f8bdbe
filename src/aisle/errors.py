"""Exceptions with one-line messages, and the checks that raise them."""

import math
from numbers import Integral, Real


class InputError(ValueError):
    """A mistake in the input, in one line: the value, the rule it breaks and the fix.

    The command line prints it without a traceback and exits with code 2. Where the mistake is in
    one argument, `argument` names it and `message` is the rest, so that the command line can call
    the argument as it is typed.
    """

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(f"{argument} {message}" if argument else message)
        self.argument, self.message = argument, message


class TrainingError(RuntimeError):
    """Training failed, though nothing was wrong with the input; what was written is kept.

    The command line prints it without a traceback and exits with code 1.
    """


def first_line(error: Exception) -> str:
    """Return the beginning of what an error of somebody else says, or its kind if it is silent."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


def check(is_kept: bool, argument: str, value: object, rule: str) -> None:
    """Refuse a value that breaks its rule. A comparison with NaN is False, so NaN is refused."""
    if not is_kept:
        raise InputError(f"is {value!r}: it must be {rule}", argument=argument)


def check_count(argument: str, value: object, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    check(is_whole, argument, value, "a whole number")
    check(int(value) >= least, argument, value, f"at least {least}")  # pyright: ignore


def check_positive(argument: str, value: object) -> None:
    """Refuse what is not a finite number above zero."""
    check_real(argument, value)
    check(0 < value < math.inf, argument, value, "finite and positive")  # pyright: ignore


def check_real(argument: str, value: object) -> None:
    """Refuse what is not a number, such as text."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    check(is_number, argument, value, "a number")


def check_seed(seed: object) -> None:
    """Refuse a seed that does not fit the random generators."""
    check_count("seed", seed, 0)
    check(int(seed) < 2**32, "seed", seed, f"from 0 to {2**32 - 1}")  # pyright: ignore
