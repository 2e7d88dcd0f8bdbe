"""Ctrl-C and SIGTERM, wherever in a command they come."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

# JAX has the garbage collector call this function; Python drops what is raised inside of it.
_DEAF = "_xla_gc_callback"
_LATER = 0.05


class Stop:
    """Turns signals into KeyboardInterrupt, and knows which signal it was."""

    def __init__(self) -> None:
        """Listen from now on, as far as this thread may."""
        self.number: int | None = None
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._raise)

    def leave(self, *, is_own_process: bool) -> NoReturn:
        """Exit with the code of a process that such a signal has ended."""
        code = 128 + (self.number or signal.SIGINT)
        if is_own_process:
            # JAX may still be compiling in threads of its own, and crash if Python ends below them.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        sys.exit(code)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        while frame is not None:
            if frame.f_code.co_name == _DEAF:
                threading.Timer(_LATER, os.kill, (os.getpid(), number)).start()
                return
            frame = frame.f_back
        raise KeyboardInterrupt
