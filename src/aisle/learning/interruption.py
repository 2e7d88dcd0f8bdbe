"""Ctrl-C and SIGTERM, as a request that a loop can honour when its state is whole."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Which signal asked to stop, if any."""

    signal_number: int | None = None

    def request(self, number: int, frame: FrameType | None) -> None:
        """Note the signal; a second Ctrl-C stops at once, as usual."""
        del frame
        self.signal_number = number
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def listening() -> Iterator[Interruption]:
    """Note signals instead of dying of them, as far as this thread may."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.signal(number, interruption.request) for number in _SIGNALS}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
