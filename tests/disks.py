"""A disk that is full."""

import resource
from contextlib import contextmanager


@contextmanager
def full_disk(size):
    """Make the system refuse files over some size, as a full disk does.

    Not for longer than that: pytest itself may write its report into a file.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
