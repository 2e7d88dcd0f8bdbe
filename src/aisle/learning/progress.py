"""How training shows itself: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType

from rich import progress
from rich.console import Console

# Seconds between two plain lines, where there is no terminal to draw a bar on.
_PLAIN_INTERVAL = 10.0


class TrainingProgress:
    """Epoch, bound, examples per second and time left, on standard error."""

    def __init__(
        self,
        num_updates: int,
        updates_per_epoch: int,
        batch_size: int,
        first: int,
        is_shown: bool,
    ):
        """Start at update `first` of `num_updates`."""
        self._is_shown = is_shown
        self._num_updates = num_updates
        self._updates_per_epoch = updates_per_epoch
        self._batch_size = batch_size
        # Speed is measured from the end of the first chunk on: that one was spent compiling.
        self._first: int | None = None
        self._start = self._last_line = time.perf_counter()
        self._bar = progress.Progress(
            progress.TextColumn("epoch {task.fields[epoch]}"),
            progress.BarColumn(),
            progress.TextColumn("bound {task.fields[bound]}"),
            progress.TextColumn("{task.fields[rate]} examples/s"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
            disable=not (is_shown and sys.stderr.isatty()),
        )
        self._task = self._bar.add_task(
            "", total=num_updates, completed=first, epoch=self._epoch(first), bound="-", rate="-"
        )

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def advance(self, update: int, bound: float) -> None:
        """Show that `update` updates are done, the last ones with this mean bound."""
        now = time.perf_counter()
        if self._first is None:
            self._first, self._start = update, now
        rate = (update - self._first) / max(now - self._start, 1e-9)
        epoch, shown = self._epoch(update), f"{bound:.2f}"
        examples = f"{rate * self._batch_size:,.0f}" if rate else "-"
        self._bar.update(self._task, completed=update, epoch=epoch, bound=shown, rate=examples)
        is_due = now - self._last_line > _PLAIN_INTERVAL or update == self._num_updates
        if self._is_shown and self._bar.disable and is_due:
            self._last_line = now
            left = f"{(self._num_updates - update) / rate:.0f} s" if rate else "-"
            self.say(f"epoch {epoch}  bound {shown}  {examples} examples/s  {left} left")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(line, highlight=False, soft_wrap=True)

    def _epoch(self, update: int) -> str:
        done, total = update / self._updates_per_epoch, self._num_updates / self._updates_per_epoch
        return f"{done:.1f}/{total:.0f}"
