"""The one exception that means: the caller gave something that cannot be used."""


class InputError(ValueError):
    """A mistake in the input, told in one line: the value, the rule it breaks and the fix.

    The command line prints it without a traceback and exits with code 2.
    """
