"""The command line: it reads arguments, calls the library and prints.

JAX and everything that needs it are imported inside the commands, so that `--help` and mistakes
are answered at once.
"""

from aisle.cli.main import main

__all__ = ["main"]
