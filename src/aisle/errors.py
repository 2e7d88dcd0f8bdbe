"""What can go wrong in ways that are told to the user in one line."""


class InputError(ValueError):
    """A mistake in the input, told in one line: the value, the rule it breaks and the fix.

    The command line prints it without a traceback and exits with code 2.
    """


class TrainingError(RuntimeError):
    """Training cannot go on, though nothing was wrong with the input; nothing is lost.

    The command line prints it without a traceback and exits with code 1.
    """
