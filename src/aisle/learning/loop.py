"""The training loop: chunks of updates, with metrics, looks and checkpoints between them."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from aisle import processes
from aisle.errors import TrainingError
from aisle.learning.batches import Chunk, Feeder
from aisle.learning.history import (
    Fitted,
    Records,
    check_converged,
    mean_of,
    numbers,
    report,
)
from aisle.learning.interruption import listening
from aisle.learning.looks import Bounder, EarlyStopping, Look
from aisle.learning.plan import Plan
from aisle.learning.recording import Best, Recorder, Snapshot
from aisle.learning.updates import Step, TrainState, UpdateLog, enter, init_state, make_chunk
from aisle.progress import Progress
from aisle.statistics import Mean
from aisle.types import PRNGKey

# Updates that one compiled call may make, and the seconds that it should take.
CHUNK_CAPACITY = 64
CHUNK_SECONDS = 1.0

# Updates in a row without a finite gradient, after which training is given up.
MAX_SKIPPED_IN_ROW = 100


class Stage(NamedTuple):
    """A phase that is ready to run, from update `begin` up to update `end`.

    Attributes:
        number: of the phase, from 0.
        look_every: updates between two looks by callbacks.
        bound_every: looks between two bounds on held-out examples.
    """

    number: int
    step: Step
    begin: int
    end: int
    gradients_per_update: int
    look_every: int
    bound_every: int


@dataclass(frozen=True)
class Loop:
    """Everything about a training run that does not change while it runs."""

    plan: Plan
    stages: list[Stage]
    feeder: Feeder
    bounder: Bounder | None
    recorder: Recorder
    show_progress: bool

    def run(self, params: PyTree, *, resume: bool) -> Fitted:
        """Train to the end, or until a callback or a signal ends it."""
        history: Records = []
        with ExitStack() as stack:
            processes.first_does(lambda: stack.enter_context(self.recorder))
            state, best = self._start(params, resume)
            first = int(state.update)
            stack.enter_context(closing(self.feeder))
            seconds_before = [0.0]
            processes.first_does(lambda: seconds_before.append(self.recorder.begin(first)))
            interruption = stack.enter_context(listening())
            progress = stack.enter_context(self._progress(first))
            begun_at = time.perf_counter() - seconds_before[-1]
            since_look: list[float] = []
            number = 0
            chunks = () if self._has_ended(best) else self._chunks(state, first)
            for stage, chunk, state, log in chunks:
                if log is None:
                    best = self._best_at_start(state, best)
                    continue
                done = chunk.first_update + chunk.num_updates
                records = list(self._records(stage, chunk, log))
                since_look += [float(record["bound"]) for record in records]
                is_over = False
                if done % stage.look_every == 0 or done == stage.end:
                    look, best = self._look(stage, state, best, done, since_look)
                    if look.held_out is not None:
                        records.append(self._held_out(look, look.held_out))
                    # All of them, though one may be enough to end.
                    answers = [callback(look, state) for callback in self.plan.callbacks]
                    is_over = any(answers)
                    since_look = []
                now = {"seconds": round(time.perf_counter() - begun_at, 3)}
                records = [record | now for record in records]
                history += records
                processes.first_does(partial(self.recorder.write, records))
                bound = mean_of(numbers(records, "bound"))
                progress.advance(done, self._epoch(done), f"bound {bound:.2f}")
                _check_skipped(state)
                number = processes.largest(interruption.signal_number or 0)
                is_over = is_over or number > 0 or done == self._last.end
                # By the first one's clock: all must wait for it, or none.
                if processes.from_first(np.int32(is_over or self.recorder.is_due())):
                    processes.first_does(partial(self._save, state, best))
                if is_over:
                    break
        return self._finish(state, best, history, number)

    @property
    def key(self) -> PRNGKey:
        """The root of all draws of training."""
        return jax.random.key(self.plan.seed)

    @property
    def _last(self) -> Stage:
        return self.stages[-1]

    def _finish(
        self, state: TrainState, best: Best | None, history: Records, signal_number: int
    ) -> Fitted:
        if signal_number:
            report(
                f"{signal.Signals(signal_number).name} ended training at update "
                f"{int(state.update):,} of {self._last.end:,}"
            )
        if signal_number == signal.SIGTERM:
            # A program that was asked to end must end, whoever called us.
            raise SystemExit(128 + signal_number)
        if not signal_number:
            check_converged(history)
        kept = best.weights if best is not None and np.isfinite(best.bound) else None
        if signal_number and best is not None and self._is_start(best) and not best.num_since:
            # Whoever interrupts before the first look wants what was trained, not the start of it.
            kept = None
        arrays = current(state) if kept is None else kept
        model, proposal = eqx.combine(processes.own_copy(arrays), self._last.step.static)
        return Fitted(model, proposal, state, history, signal_number > 0)

    def _start(self, params: PyTree, resume: bool) -> Snapshot:
        """Place the first state, or the newest snapshot's, on all devices."""
        found = [self._like(params, 0)]
        if resume:
            like = partial(self._like, params)
            processes.first_does(lambda: found.append(self.recorder.restore(like) or found[0]))
        state, best = processes.from_first(found[-1])
        return Snapshot(processes.place(state, self.feeder.everywhere), best)

    def _like(self, params: PyTree, update: int) -> Snapshot:
        """Return a snapshot as it is at an update: each phase has states of its own."""
        stage = next((s for s in self.stages if update <= s.end), self._last)
        best = None
        if self.bounder is not None:
            keeps_best = self.plan.validation is not None and self.plan.validation.keep == "best"
            best = Best.of(jax.tree.map(np.asarray, params) if keeps_best else None)
        return Snapshot(init_state(params, stage.step), best)

    def _save(self, state: TrainState, best: Best | None) -> None:
        """Write a checkpoint, whose best weights are the present ones before any bound."""
        if best is not None and best.weights is not None and not np.isfinite(best.bound):
            best = best._replace(weights=jax.tree.map(np.asarray, current(state)))
        self.recorder.save(Snapshot(state, best))

    def _chunks(
        self, state: TrainState, first: int
    ) -> Iterator[tuple[Stage, Chunk, TrainState, UpdateLog | None]]:
        """Run the updates from `first` on, in chunks of about a second.

        The last phase begins with an empty chunk, which has no log.
        """
        update, feeder = first, self.feeder
        key = processes.place(self.key, feeder.everywhere)
        capacity = feeder.largest_chunk(CHUNK_CAPACITY)
        for stage in self.stages:
            if update >= stage.end:
                continue
            if 0 < update == stage.begin:
                state = processes.place(enter(state, stage.step), feeder.everywhere)
            if update == stage.begin and stage is self._last:
                yield stage, Chunk(update, 0), state, None
            # Another method may be much slower.
            length, run = 1, make_chunk(stage.step, feeder.mesh, feeder.batch_size)
            is_compiled, following = False, self._chunk(update, length, stage)
            while following is not None:
                # Cut before this chunk is timed, as its examples are read at the same time.
                chunk, update = following, following.first_update + following.num_updates
                following = self._chunk(update, length, stage) if update < stage.end else None
                batches = feeder.batches(chunk, following, capacity)
                number = processes.place(np.int32(chunk.num_updates), feeder.everywhere)
                start = time.perf_counter()
                state, log = run(state, key, batches, number)
                log = jax.tree.map(np.asarray, log)
                seconds = time.perf_counter() - start
                yield stage, chunk, state, log
                if is_compiled:
                    ideal = round(CHUNK_SECONDS * chunk.num_updates / seconds)
                    # At most doubled: one slow chunk says little.
                    length = min(max(1, ideal), 2 * length, capacity)
                    length = int(processes.from_first(np.int32(length)))
                is_compiled = True

    def _has_ended(self, best: Best | None) -> bool:
        """Say whether early stopping has ended the run that is resumed."""
        if best is None or int(best.phase) < self._last.number:
            return False
        patience = [c.patience for c in self.plan.callbacks if isinstance(c, EarlyStopping)]
        return any(int(best.num_since) >= number for number in patience)

    def _chunk(self, update: int, length: int, stage: Stage) -> Chunk:
        """Cut the next chunk, within its epoch."""
        left_in_epoch = -update % self.feeder.updates_per_epoch or self.feeder.updates_per_epoch
        return Chunk(update, min(length, left_in_epoch, stage.end - update))

    def _is_start(self, best: Best) -> bool:
        """Say whether the best weights are those that the last phase starts from."""
        return int(best.update) == self._last.begin

    def _bound(self, stage: Stage, arrays: PyTree, state: TrainState) -> Mean:
        """Bound the held-out examples by arrays of (model, proposal), with a phase's method."""
        assert self.bounder is not None
        weights = eqx.combine(arrays, stage.step.static)
        return self.bounder(stage.step.method, weights, processes.own_copy(state.method))

    def _best_at_start(self, state: TrainState, best: Best | None) -> Best | None:
        """Return the best weights before the last phase, which are those that it starts from."""
        if best is None or best.weights is None:
            return best
        stage, arrays = self._last, processes.own_copy(current(state))
        found = best.after(self._bound(stage, arrays, state), arrays, stage.begin, stage.number)
        return found._replace(num_since=np.int32(0))

    def _look(
        self, stage: Stage, state: TrainState, best: Best | None, update: int, bounds: list[float]
    ) -> tuple[Look, Best | None]:
        """Bound the held-out examples, if it is time, and say what callbacks may know."""
        arrays = processes.own_copy(current(state))
        held_out = None
        is_time = update // stage.look_every % stage.bound_every == 0 or update == stage.end
        if self.bounder is not None and is_time:
            held_out = self._bound(stage, arrays, state)
            is_last = stage is self._last
            if is_last and best is not None and best.weights is not None and self._is_start(best):
                # Step sizes have changed since it was bounded.
                start = self._bound(stage, best.weights, state)
                best = best._replace(bound=np.float32(start.mean))
        if best is not None:
            best = best.after(held_out, arrays, update, stage.number)
        look = Look(
            update,
            update / self.feeder.updates_per_epoch,
            stage.number,
            stage is self._last,
            mean_of(bounds),
            held_out,
            0 if best is None else int(best.num_since),
            *eqx.combine(arrays, stage.step.static),
        )
        return look, best

    def _records(self, stage: Stage, chunk: Chunk, log: UpdateLog) -> Iterator[dict[str, Any]]:
        """Yield what is logged of each update of a chunk."""
        metrics, method = log.metrics, log.method
        # Step sizes, where these are the state of the method.
        is_array = isinstance(method, np.ndarray) and method.ndim == 2
        for i in range(chunk.num_updates):
            update = chunk.first_update + i + 1
            yield {
                "update": update,
                "epoch": update / self.feeder.updates_per_epoch,
                "phase": stage.number,
                "bound": metrics.bound[i],
                "loss_theta": log.losses.theta[i],
                "loss_phi": log.losses.phi[i],
                "effective_sample_size": metrics.effective_sample_size[i],
                "acceptance": metrics.acceptance[i],
                "step_size": method[i] if is_array else [],
                "num_nonfinite": round(float(metrics.num_nonfinite[i]) * self.feeder.batch_size),
                "is_skipped": bool(log.is_skipped[i]),
                "decoder_gradients": self._gradients_spent(update),
            }

    def _held_out(self, look: Look, bound: Mean) -> dict[str, Any]:
        """Return what is logged of a bound on held-out examples."""
        return {
            "update": look.update,
            "epoch": look.epoch,
            "phase": look.phase,
            "held_out_bound": bound.mean,
            "held_out_standard_error": bound.standard_error,
            "held_out_examples": bound.num_examples,
            "decoder_gradients": self._gradients_spent(look.update),
        }

    def _gradients_spent(self, update: int) -> int:
        """Count the gradients of log p(x, z) of all updates so far, whatever their method."""
        return sum(
            (min(update, stage.end) - stage.begin) * stage.gradients_per_update
            for stage in self.stages
            if stage.begin < update
        )

    def _progress(self, first: int) -> Progress:
        return Progress(
            self._last.end,
            self._epoch(first),
            "examples",
            units_per_step=self.feeder.batch_size,
            first=first,
            is_shown=self.show_progress and processes.is_first(),
        )

    def _epoch(self, update: int) -> str:
        per_epoch = self.feeder.updates_per_epoch
        return f"epoch {update / per_epoch:.1f}/{self._last.end / per_epoch:.0f}"


def current(state: TrainState) -> Any:
    """Return the weights to use: the running average, where there is one."""
    return state.params if state.average is None else state.average


def _check_skipped(state: TrainState) -> None:
    number = int(state.num_skipped_in_row)
    if number >= MAX_SKIPPED_IN_ROW:
        raise TrainingError(
            f"training diverged: the gradient was not finite in {number} updates in a row, at "
            f"update {int(state.update)}; check the data, or lower the learning rate"
        )
