"""`python -m aisle`, the same as the command `aisle`."""

from aisle.cli import main

main()
