"""What can go wrong in ways that are told to the user in one line."""

from collections.abc import Mapping


class InputError(ValueError):
    """A mistake in the input, told in one line: the value, the rule it breaks and the fix.

    The command line prints it without a traceback and exits with code 2.
    """


class TrainingError(RuntimeError):
    """Training cannot go on, though nothing was wrong with the input; nothing is lost.

    The command line prints it without a traceback and exits with code 1.
    """


def check_seed(seed: int) -> None:
    """Refuse a seed that does not fit the random generators."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}: it must be from 0 to {2**32 - 1}")


def check_rules(given: Mapping[str, object], rules: Mapping[str, tuple[bool, str]]) -> None:
    """Refuse the first value whose rule is not kept, in one line that names both."""
    for name, (is_kept, rule) in rules.items():
        if not is_kept:
            raise InputError(f"{name} is {given[name]}: it must be {rule}")
