"""The training loop: chunks of updates, with metrics, validation and checkpoints between them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from aisle import processes
from aisle.errors import TrainingError
from aisle.learning import checkpoints
from aisle.learning.batches import Chunk, Feeder
from aisle.learning.interruption import listening
from aisle.learning.run_directory import MetricsWriter, held, last_metrics
from aisle.learning.updates import Recipe, TrainState, UpdateLog, make_chunk
from aisle.progress import Progress
from aisle.statistics import Mean
from aisle.types import PRNGKey

# Updates that one compiled call may make, and the seconds that it should take.
CHUNK_CAPACITY = 64
CHUNK_SECONDS = 1.0

# Updates in a row without a finite gradient, after which training is given up.
MAX_SKIPPED_IN_ROW = 100


class Phase(NamedTuple):
    """A stretch of training with one method, up to update `end`."""

    recipe: Recipe
    end: int
    gradients_per_update: int


@dataclass(frozen=True)
class Loop:
    """Everything about a training run that does not change while it runs.

    Of several processes only the first one has a folder `out`, and so it alone writes.
    """

    phases: list[Phase]
    feeder: Feeder
    mesh: jax.sharding.Mesh
    batch_size: int
    key: PRNGKey
    validation: Callable[..., Mean] | None
    validate_every: int
    out: Path | None
    checkpoint_seconds: float
    keep_checkpoints: int
    tensorboard: bool
    show_progress: bool

    def run(
        self, state: TrainState, resume: bool
    ) -> tuple[TrainState, list[dict[str, Any]], int | None]:
        """Train to the end, or until a signal asks to stop; return state, history and signal."""
        history: list[dict[str, Any]] = []
        saved_at = time.perf_counter()
        with ExitStack() as stack:
            processes.first_does(lambda: self._hold(stack))
            state, first = self._start(state, resume)
            stack.enter_context(closing(self.feeder))
            writers: list[MetricsWriter] = []
            processes.first_does(lambda: writers.extend(self._writers(stack, first)))
            signal_number = 0
            interruption = stack.enter_context(listening())
            progress = stack.enter_context(self._progress(first))
            begun_at = time.perf_counter() - self._seconds_before(first)
            for chunk, new_state, log in self._chunks(state, first):
                state = new_state
                done = chunk.first_update + chunk.num_updates
                records = [*self._records(chunk, log), *self._validate(state, done)]
                seconds = {"seconds": round(time.perf_counter() - begun_at, 3)}
                records = [record | seconds for record in records]
                history += records
                processes.first_does(partial(_write, writers, records))
                progress.advance(done, self._epoch(done), f"bound {_mean_bound(records):.2f}")
                self._check_skipped(state)
                signal_number = processes.largest(interruption.signal_number or 0)
                is_last = done == self.phases[-1].end or signal_number > 0
                is_due = is_last or time.perf_counter() - saved_at > self.checkpoint_seconds
                # By the first one's clock: all must wait for it, or none.
                if processes.from_first(np.int32(is_due)):
                    processes.first_does(partial(self._save, state, done))
                    saved_at = time.perf_counter()
                if signal_number:
                    break
        if not signal_number:
            self._check_bounds(history)
        return state, history, signal_number or None

    def _hold(self, stack: ExitStack) -> None:
        if self.out is not None:
            stack.enter_context(held(self.out))

    def _start(self, state: TrainState, resume: bool) -> tuple[TrainState, int]:
        """Place the first state, or the newest checkpoint's, on all devices."""
        found: list[tuple[int, TrainState]] = [(0, state)]
        if resume:
            processes.first_does(lambda: found.extend(self._restored(state)))
        first, state = processes.from_first(found[-1])
        return processes.place(state, jax.NamedSharding(self.mesh, jax.P())), int(first)

    def _restored(self, state: TrainState) -> list[tuple[int, TrainState]]:
        assert self.out is not None
        like = jax.eval_shape(lambda: state)
        found = checkpoints.restore(self.out, like, report=report)
        return [] if found is None else [found]

    def _chunks(
        self, state: TrainState, first: int
    ) -> Iterator[tuple[Chunk, TrainState, UpdateLog]]:
        """Run the updates from `first` on, in chunks of about a second."""
        update = first
        everywhere = jax.NamedSharding(self.mesh, jax.P())
        key = processes.place(self.key, everywhere)
        capacity = self.feeder.largest_chunk(CHUNK_CAPACITY)
        for phase in self.phases:
            if update >= phase.end:
                continue
            # Another method may be much slower.
            length, run = 1, make_chunk(phase.recipe, self.mesh, self.batch_size)
            is_compiled, following = False, self._chunk(update, length, phase.end)
            while following is not None:
                # Cut before this chunk is timed, as its examples are read at the same time.
                chunk, update = following, following.first_update + following.num_updates
                following = self._chunk(update, length, phase.end) if update < phase.end else None
                batches = self.feeder.batches(chunk, following, capacity)
                number = processes.place(np.int32(chunk.num_updates), everywhere)
                start = time.perf_counter()
                state, log = run(state, key, batches, number)
                log = jax.tree.map(np.asarray, log)
                seconds = time.perf_counter() - start
                yield chunk, state, log
                if is_compiled:
                    ideal = round(CHUNK_SECONDS * chunk.num_updates / seconds)
                    # At most doubled: one slow chunk says little.
                    length = min(max(1, ideal), 2 * length, capacity)
                    length = int(processes.from_first(np.int32(length)))
                is_compiled = True

    def _chunk(self, update: int, length: int, end: int) -> Chunk:
        """Cut the next chunk, within its epoch."""
        left_in_epoch = -update % self.feeder.updates_per_epoch or self.feeder.updates_per_epoch
        return Chunk(update, min(length, left_in_epoch, end - update))

    def _records(self, chunk: Chunk, log: UpdateLog) -> Iterator[dict[str, Any]]:
        """Yield what is logged of each update of a chunk."""
        for i in range(chunk.num_updates):
            update = chunk.first_update + i + 1
            metrics = log.metrics
            yield {
                "update": update,
                "epoch": update / self.feeder.updates_per_epoch,
                "bound": metrics.bound[i],
                "loss_theta": log.losses.theta[i],
                "loss_phi": log.losses.phi[i],
                "effective_sample_size": metrics.effective_sample_size[i],
                "acceptance": metrics.acceptance[i],
                "step_size": log.step_sizes[i] if metrics.acceptance.size else [],
                "num_nonfinite": round(float(metrics.num_nonfinite[i]) * self.batch_size),
                "is_skipped": bool(log.is_skipped[i]),
                "decoder_gradients": self._gradients_spent(update),
            }

    def _gradients_spent(self, update: int) -> int:
        """Count the gradients of log p(x, z) of all updates so far, whatever their method."""
        total, begin = 0, 0
        for phase in self.phases:
            total += max(0, min(update, phase.end) - begin) * phase.gradients_per_update
            begin = phase.end
        return total

    def _validate(self, state: TrainState, update: int) -> Iterator[dict[str, Any]]:
        every = self.validate_every * self.feeder.updates_per_epoch
        if self.validation is None or (update % every and update != self.phases[-1].end):
            return
        trained = eqx.combine(processes.own_copy(best_params(state)), self.phases[-1].recipe.static)
        bound = self.validation(jax.random.fold_in(self.key, update), *trained)
        yield {
            "update": update,
            "epoch": update / self.feeder.updates_per_epoch,
            "held_out_bound": bound.mean,
            "held_out_standard_error": bound.standard_error,
            "held_out_examples": bound.num_examples,
            "decoder_gradients": self._gradients_spent(update),
        }

    def _check_skipped(self, state: TrainState) -> None:
        if int(state.num_skipped_in_row) < MAX_SKIPPED_IN_ROW:
            return
        last = None if self.out is None else checkpoints.latest(self.out)
        where = "no checkpoint was made" if last is None else f"the last good checkpoint is {last}"
        raise TrainingError(
            f"the gradient was not finite in {int(state.num_skipped_in_row)} updates in a row, at "
            f"update {int(state.update)}: {where}; check the data, or lower the learning rate"
        )

    def _check_bounds(self, history: list[dict[str, Any]]) -> None:
        bounds = [record["bound"] for record in history if "bound" in record]
        if bounds and not np.isfinite(bounds).any():
            raise TrainingError(
                f"the bound was not finite in any of {len(bounds)} updates: check the data, that "
                "the model can have made them, and the scale of both"
            )

    def _save(self, state: TrainState, update: int) -> None:
        if self.out is not None:
            checkpoints.save(self.out, update, state, keep=self.keep_checkpoints)

    def _seconds_before(self, first: int) -> float:
        """Return the time that the run took before it was interrupted."""
        if not first or self.out is None:
            return 0.0
        return last_metrics(self.out).get("seconds", 0.0)

    def _writers(self, stack: ExitStack, first: int) -> list[MetricsWriter]:
        """Return what writes the records, if they are to be written."""
        if self.out is None:
            return []
        writer = MetricsWriter(self.out, resume_at=first, tensorboard=self.tensorboard)
        return [stack.enter_context(writer)]

    def _progress(self, first: int) -> Progress:
        return Progress(
            self.phases[-1].end,
            self._epoch(first),
            "examples",
            units_per_step=self.batch_size,
            first=first,
            is_shown=self.show_progress,
        )

    def _epoch(self, update: int) -> str:
        per_epoch = self.feeder.updates_per_epoch
        return f"epoch {update / per_epoch:.1f}/{self.phases[-1].end / per_epoch:.0f}"


def best_params(state: TrainState) -> Any:
    """Return the weights to use: the running average, where there is one."""
    return state.params if state.average is None else state.average


def _mean_bound(records: list[dict[str, Any]]) -> float:
    return float(np.mean([record["bound"] for record in records if "bound" in record]))


def _write(writers: list[MetricsWriter], records: list[dict[str, Any]]) -> None:
    for writer in writers:
        writer.write(records)


def report(line: str) -> None:
    """Tell the user something that is not an error."""
    sys.stderr.write(f"aisle: {line}\n")
