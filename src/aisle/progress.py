"""How long work shows itself: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time

from rich import progress
from rich.console import Console

# Seconds between two plain lines, where there is no terminal to draw a bar on.
_PLAIN_INTERVAL = 10.0


class Progress:
    """A bar between two texts, with the time left, on standard error."""

    def __init__(
        self,
        total: int,
        text: str,
        unit: str,
        *,
        units_per_step: int = 1,
        first: int = 0,
        is_shown: bool = True,
    ):
        """Start at step `first` of `total`, with `text` before the bar; speed is in `unit`/s."""
        self._is_shown = is_shown
        self._total = total
        self._unit, self._units_per_step = unit, units_per_step
        # Speed is measured from the end of the first step on: that one was spent compiling.
        self._first: int | None = None
        self._start = self._last_line = time.perf_counter()
        self._bar = progress.Progress(
            progress.TextColumn("{task.fields[before]}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[after]}", markup=False),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True, markup=False, emoji=False),
            disable=not (is_shown and sys.stderr.isatty()),
        )
        self._task = self._bar.add_task("", total=total, completed=first, before=text, after="")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, done: int, text: str, note: str = "") -> None:
        """Show that `done` steps are done, with `text` before the bar and `note` after it."""
        now = time.perf_counter()
        if self._first is None:
            self._first, self._start = done, now
        rate = (done - self._first) / max(now - self._start, 1e-9)
        speed = f"{rate * self._units_per_step:,.0f} {self._unit}/s" if rate else ""
        after = "  ".join(filter(None, (note, speed)))
        self._bar.update(self._task, completed=done, before=text, after=after)
        is_due = now - self._last_line > _PLAIN_INTERVAL or done >= self._total
        if self._is_shown and self._bar.disable and is_due:
            self._last_line = now
            is_known = rate and done < self._total
            left = f"{(self._total - done) / rate:.0f} s left" if is_known else ""
            self.say("  ".join(filter(None, (text, after, left))))

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(line, highlight=False, soft_wrap=True)
