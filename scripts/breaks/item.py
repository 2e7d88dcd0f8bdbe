"""What a break is."""

from typing import NamedTuple


class Break(NamedTuple):
    """An edit that makes the code wrong, and the tests that should notice.

    Files are in src/aisle and tests, unless they are in paper/ or applications/.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str
