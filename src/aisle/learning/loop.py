"""The training loop: chunks of updates, with metrics, looks and checkpoints between them."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
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
from aisle.learning.interruption import listening
from aisle.learning.looks import Bounder, Callback, EarlyStopping, Look
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
    """A phase that is ready to run, up to update `end`.

    Attributes:
        look_every: updates between two looks by callbacks.
        bound_every: looks between two bounds on held-out examples.
    """

    step: Step
    end: int
    gradients_per_update: int
    look_every: int
    bound_every: int


@dataclass(frozen=True, repr=False)
class Fitted:
    """What training returns. Prints itself in one line.

    Attributes:
        model: with its trained weights: those of the best held-out bound where that is kept, or
            averaged ones if the recipe asked for them.
        proposal: likewise.
        state: everything that training changed.
        history: the records of metrics.jsonl, as far as they were made by this call.
        is_interrupted: whether Ctrl-C ended training before its time.
    """

    model: Any
    proposal: Any
    state: TrainState
    history: list[dict[str, Any]]
    is_interrupted: bool

    def __repr__(self) -> str:
        words = [f"{int(self.state.update):,} updates"]
        bounds = [record for record in self.history if "held_out_bound" in record]
        if bounds:
            last = bounds[-1]
            words.append(
                f"last held-out bound {last['held_out_bound']:.2f} +- "
                f"{last['held_out_standard_error']:.2f} nats"
            )
        elif self.history:
            words.append(f"bound {np.mean([r['bound'] for r in self.history[-10:]]):.2f} nats")
        return ", ".join([*words, *(["interrupted"] if self.is_interrupted else [])])


@dataclass(frozen=True)
class Loop:
    """Everything about a training run that does not change while it runs."""

    stages: list[Stage]
    feeder: Feeder
    mesh: jax.sharding.Mesh
    batch_size: int
    key: PRNGKey
    bounder: Bounder | None
    keeps_best: bool
    callbacks: Sequence[Callback]
    recorder: Recorder
    show_progress: bool

    def run(self, params: PyTree, *, resume: bool) -> Fitted:
        """Train to the end, or until a callback or a signal ends it."""
        history: list[dict[str, Any]] = []
        with ExitStack() as stack:
            processes.first_does(lambda: stack.enter_context(self.recorder))
            snapshot = self._start(params, resume)
            first = int(snapshot.state.update)
            stack.enter_context(closing(self.feeder))
            seconds_before = [0.0]
            processes.first_does(lambda: seconds_before.append(self.recorder.begin(first)))
            interruption = stack.enter_context(listening())
            progress = stack.enter_context(self._progress(first))
            begun_at = time.perf_counter() - seconds_before[-1]
            since_look: list[float] = []
            number = 0
            chunks = () if self._has_ended(snapshot) else self._chunks(snapshot.state, first)
            for chunk, state, log in chunks:
                if log is None:
                    snapshot = Snapshot(state, self._best_at_start(state, snapshot.best))
                    continue
                done = chunk.first_update + chunk.num_updates
                records = list(self._records(chunk, log))
                since_look += [float(record["bound"]) for record in records]
                is_over = False
                if self._is_look(done):
                    look, best = self._look(state, snapshot.best, done, since_look)
                    snapshot = Snapshot(state, best)
                    if look.held_out is not None:
                        records.append(self._held_out(look))
                    is_over = self._call(look, state)
                    since_look = []
                snapshot = Snapshot(state, snapshot.best)
                now = {"seconds": round(time.perf_counter() - begun_at, 3)}
                records = [record | now for record in records]
                history += records
                processes.first_does(partial(self.recorder.write, records))
                progress.advance(done, self._epoch(done), f"bound {_mean_bound(records):.2f}")
                self._check_skipped(state)
                number = processes.largest(interruption.signal_number or 0)
                is_over = is_over or number > 0 or done == self.stages[-1].end
                # By the first one's clock: all must wait for it, or none.
                if processes.from_first(np.int32(is_over or self.recorder.is_due())):
                    processes.first_does(partial(self.recorder.save, self._whole(snapshot)))
                if is_over:
                    break
        return self._finish(snapshot, history, number)

    def _finish(
        self, snapshot: Snapshot, history: list[dict[str, Any]], signal_number: int
    ) -> Fitted:
        state = snapshot.state
        if signal_number:
            report(
                f"{signal.Signals(signal_number).name} ended training at update "
                f"{int(state.update):,} of {self.stages[-1].end:,}"
            )
        if signal_number == signal.SIGTERM:
            # A program that was asked to end must end, whoever called us.
            raise SystemExit(128 + signal_number)
        if not signal_number:
            _check_converged(history)
        best = self._whole(snapshot).best
        kept = None if best is None else best.weights
        if signal_number and best is not None and best.update == self._begin and not best.num_since:
            # Whoever interrupts before the first look wants what was trained, not the start of it.
            kept = None
        arrays = current(state) if kept is None else kept
        static = self.stages[-1].step.static
        model, proposal = eqx.combine(processes.own_copy(arrays), static)
        return Fitted(model, proposal, state, history, signal_number > 0)

    def _start(self, params: PyTree, resume: bool) -> Snapshot:
        """Place the first state, or the newest snapshot's, on all devices."""
        found: list[Snapshot] = [self._like(params, 0)]
        if resume:
            processes.first_does(lambda: found.extend(self._restored(params)))
        snapshot = processes.from_first(found[-1])
        state = processes.place(snapshot.state, jax.NamedSharding(self.mesh, jax.P()))
        return Snapshot(state, snapshot.best)

    def _restored(self, params: PyTree) -> list[Snapshot]:
        found = self.recorder.restore(lambda update: self._like(params, update))
        return [] if found is None else [found]

    def _like(self, params: PyTree, update: int) -> Snapshot:
        """Return a snapshot as it is at an update: each phase has states of its own."""
        stage = next((s for s in self.stages if update <= s.end), self.stages[-1])
        best = None
        if self.bounder is not None:
            zero = np.zeros((), np.int32)
            weights = jax.tree.map(np.asarray, params) if self.keeps_best else None
            best = Best(weights, np.float32(-np.inf), zero, zero, zero)
        return Snapshot(init_state(params, stage.step), best)

    def _whole(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot whose best weights are the present ones before any bound."""
        state, best = snapshot
        if best is not None and best.weights is not None and not np.isfinite(best.bound):
            best = best._replace(weights=jax.tree.map(np.asarray, current(state)))
        return Snapshot(state, best)

    def _chunks(
        self, state: TrainState, first: int
    ) -> Iterator[tuple[Chunk, TrainState, UpdateLog | None]]:
        """Run the updates from `first` on, in chunks of about a second.

        The last phase begins with an empty chunk, which has no log.
        """
        update, begin = first, 0
        everywhere = jax.NamedSharding(self.mesh, jax.P())
        key = processes.place(self.key, everywhere)
        capacity = self.feeder.largest_chunk(CHUNK_CAPACITY)
        for stage in self.stages:
            is_new, begin = update == begin and update > 0, stage.end
            if update >= stage.end:
                continue
            if is_new:
                state = processes.place(enter(state, stage.step), everywhere)
            if update == self._begin and stage is self.stages[-1]:
                yield Chunk(update, 0), state, None
            # Another method may be much slower.
            length, run = 1, make_chunk(stage.step, self.mesh, self.batch_size)
            is_compiled, following = False, self._chunk(update, length, stage)
            while following is not None:
                # Cut before this chunk is timed, as its examples are read at the same time.
                chunk, update = following, following.first_update + following.num_updates
                following = self._chunk(update, length, stage) if update < stage.end else None
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

    def _has_ended(self, snapshot: Snapshot) -> bool:
        """Say whether early stopping has ended the run that is resumed."""
        best = snapshot.best
        if best is None or int(best.phase) < len(self.stages) - 1:
            return False
        patience = [c.patience for c in self.callbacks if isinstance(c, EarlyStopping)]
        return any(int(best.num_since) >= number for number in patience)

    def _chunk(self, update: int, length: int, stage: Stage) -> Chunk:
        """Cut the next chunk, within its epoch."""
        left_in_epoch = -update % self.feeder.updates_per_epoch or self.feeder.updates_per_epoch
        return Chunk(update, min(length, left_in_epoch, stage.end - update))

    def _phase(self, update: int) -> int:
        """Return the number of the phase that made an update."""
        return next((i for i, s in enumerate(self.stages) if update <= s.end), len(self.stages) - 1)

    @property
    def _begin(self) -> int:
        """The update after which the last phase begins."""
        return self.stages[-2].end if len(self.stages) > 1 else 0

    def _best_at_start(self, state: TrainState, best: Best | None) -> Best | None:
        """Return the best weights before the last phase, which are those that it starts from."""
        if best is None or best.weights is None or self.bounder is None:
            return best
        step, phase = self.stages[-1].step, len(self.stages) - 1
        arrays = processes.own_copy(current(state))
        weights = eqx.combine(arrays, step.static)
        held_out = self.bounder(step.method, weights, processes.own_copy(state.method))
        found = _better(best, held_out, arrays, self._begin, phase)
        return found._replace(num_since=np.zeros((), np.int32))

    def _compared(self, best: Best | None, stage: Stage, method_state: PyTree) -> Best | None:
        """Bound the start of the last phase anew while it is the best: step sizes have changed."""
        is_start = best is not None and int(best.update) == self._begin
        if best is None or best.weights is None or not is_start or stage is not self.stages[-1]:
            return best
        assert self.bounder is not None
        start = eqx.combine(best.weights, stage.step.static)
        found = self.bounder(stage.step.method, start, method_state)
        return best._replace(bound=np.float32(found.mean))

    def _is_look(self, update: int) -> bool:
        stage = self.stages[self._phase(update)]
        return update % stage.look_every == 0 or update == stage.end

    def _look(
        self, state: TrainState, best: Best | None, update: int, bounds: list[float]
    ) -> tuple[Look, Best | None]:
        """Bound the held-out examples, if it is time, and say what callbacks may know."""
        phase = self._phase(update)
        stage = self.stages[phase]
        arrays = processes.own_copy(current(state))
        weights = eqx.combine(arrays, stage.step.static)
        held_out = None
        number = update // stage.look_every
        if self.bounder is not None and (number % stage.bound_every == 0 or update == stage.end):
            method_state = processes.own_copy(state.method)
            held_out = self.bounder(stage.step.method, weights, method_state)
            best = self._compared(best, stage, method_state)
        if best is not None:
            best = _better(best, held_out, arrays, update, phase)
        look = Look(
            update,
            update / self.feeder.updates_per_epoch,
            phase,
            phase == len(self.stages) - 1,
            float(np.mean(bounds)) if bounds else float("nan"),
            held_out,
            0 if best is None else int(best.num_since),
            *weights,
        )
        return look, best

    def _call(self, look: Look, state: TrainState) -> bool:
        # All of them, though one may be enough to end.
        answers = [callback(look, state) for callback in self.callbacks]
        return any(answers)

    def _records(self, chunk: Chunk, log: UpdateLog) -> Iterator[dict[str, Any]]:
        """Yield what is logged of each update of a chunk."""
        for i in range(chunk.num_updates):
            update = chunk.first_update + i + 1
            metrics, method = log.metrics, log.method
            # Step sizes, where these are the state of the method.
            is_array = isinstance(method, np.ndarray) and method.ndim == 2
            yield {
                "update": update,
                "epoch": update / self.feeder.updates_per_epoch,
                "phase": self._phase(update),
                "bound": metrics.bound[i],
                "loss_theta": log.losses.theta[i],
                "loss_phi": log.losses.phi[i],
                "effective_sample_size": metrics.effective_sample_size[i],
                "acceptance": metrics.acceptance[i],
                "step_size": method[i] if is_array else [],
                "num_nonfinite": round(float(metrics.num_nonfinite[i]) * self.batch_size),
                "is_skipped": bool(log.is_skipped[i]),
                "decoder_gradients": self._gradients_spent(update),
            }

    def _held_out(self, look: Look) -> dict[str, Any]:
        """Return what is logged of a bound on held-out examples."""
        assert look.held_out is not None
        return {
            "update": look.update,
            "epoch": look.epoch,
            "phase": look.phase,
            "held_out_bound": look.held_out.mean,
            "held_out_standard_error": look.held_out.standard_error,
            "held_out_examples": look.held_out.num_examples,
            "decoder_gradients": self._gradients_spent(look.update),
        }

    def _gradients_spent(self, update: int) -> int:
        """Count the gradients of log p(x, z) of all updates so far, whatever their method."""
        total, begin = 0, 0
        for stage in self.stages:
            total += max(0, min(update, stage.end) - begin) * stage.gradients_per_update
            begin = stage.end
        return total

    def _check_skipped(self, state: TrainState) -> None:
        number = int(state.num_skipped_in_row)
        if number >= MAX_SKIPPED_IN_ROW:
            raise TrainingError(
                f"training diverged: the gradient was not finite in {number} updates in a row, at "
                f"update {int(state.update)}; check the data, or lower the learning rate"
            )

    def _progress(self, first: int) -> Progress:
        return Progress(
            self.stages[-1].end,
            self._epoch(first),
            "examples",
            units_per_step=self.batch_size,
            first=first,
            is_shown=self.show_progress and processes.is_first(),
        )

    def _epoch(self, update: int) -> str:
        per_epoch, end = self.feeder.updates_per_epoch, self.stages[-1].end
        return f"epoch {update / per_epoch:.1f}/{end / per_epoch:.0f}"


def current(state: TrainState) -> Any:
    """Return the weights to use: the running average, where there is one."""
    return state.params if state.average is None else state.average


def _better(best: Best, held_out: Mean | None, arrays: PyTree, update: int, phase: int) -> Best:
    """Return the best weights so far; bounds of different phases are not compared."""
    if phase > int(best.phase):
        zero = np.zeros((), np.int32)
        best = Best(best.weights, np.float32(-np.inf), zero, np.int32(phase), zero)
    if held_out is None:
        return best
    if not held_out.mean > best.bound:
        return best._replace(num_since=np.int32(best.num_since + 1))
    weights = None if best.weights is None else jax.tree.map(np.asarray, arrays)
    zero = np.zeros((), np.int32)
    return Best(weights, np.float32(held_out.mean), np.int32(update), np.int32(phase), zero)


def _check_converged(history: list[dict[str, Any]]) -> None:
    """Refuse to call a run trained that has no finite bound in the end."""
    bounds = [record["bound"] for record in history if "bound" in record]
    if bounds and not np.isfinite(bounds).any():
        raise TrainingError(
            f"training diverged: the bound was not finite in any of {len(bounds)} updates; check "
            "the data, that the model can have made them, and the scale of both"
        )
    held_out = [record["held_out_bound"] for record in history if "held_out_bound" in record]
    if (held_out and np.isnan(held_out[-1])) or (bounds and np.isnan(bounds[-1])):
        last = held_out[-1] if held_out else bounds[-1]
        raise TrainingError(
            f"training diverged: the last bound is {last}; lower the learning rate, or check the "
            "data"
        )


def _mean_bound(records: list[dict[str, Any]]) -> float:
    bounds = [record["bound"] for record in records if "bound" in record]
    return float(np.mean(bounds)) if bounds else float("nan")


def report(line: str) -> None:
    """Report something that is not an error."""
    sys.stderr.write(f"aisle: {line}\n")
