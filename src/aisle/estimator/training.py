"""Training for tables that may be small: how long, says what is held out; then all rows train.

Programs are compiled for a number of columns, and hardly for a number of rows: rows are filled up
to a power of two, batches are always full, and held-out rows are scored in tiles of one size. So
the folds of a cross-validation share their programs.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from aisle import processes
from aisle.annealing import Kernel, Ladder, schedules
from aisle.compilation import remembered
from aisle.context import Context, InContext
from aisle.data import View
from aisle.errors import TrainingError
from aisle.estimator.columns import Rows
from aisle.estimator.starting import Form, build, choose_factors, with_factors
from aisle.evaluation.rows import score_rows, tuned
from aisle.learning.methods import VAE
from aisle.learning.preparing import trained_arrays
from aisle.learning.protocol import Method
from aisle.learning.updates import Batches, Step, init_state, make_chunk
from aisle.models import WHOLE
from aisle.progress import Progress

Weights = tuple[Any, Any]

# Of the chains that score rows.
SCORE_KERNEL = Kernel.tuned(schedule=schedules.sigmoid)
BATCH = 64
_LEAST_ROWS = 256
# Updates of one compiled call; between two looks at held-out rows there are as many of these as one
# in four of those before.
_LOOK, _SPACING = 32, 4
# Updates without a better look, beside half of those before, after which a phase ends: networks
# that begin with nothing lose a little before they gain.
_PATIENCE = 320
# How long the first phase is at the most where nobody says: in passes over the data, and its limits
# in updates; and length and learning rate of the second one relative to it.
_EPOCHS, _UPDATES = 100, (4_000, 20_000)
_METHOD_SHARE, _METHOD_RATE = 0.5, 0.3
# Latents where more are needed than usual: few numbers, as programs are compiled for each.
_NUM_LATENTS = (20, 40)
# Rows below which nothing can be held out, and from which one fold is enough.
_FEW, _MANY = 8, 1000
_FOLDS, _SHARE = 3, 0.15


class Settings(NamedTuple):
    """What training depends on beside data.

    Attributes:
        method: of the second phase, or None where the VAE is all.
        learning_rate: Adam's, in the first phase.
        max_updates: of the first phase at the most, or None for what suits the data.
        num_chains: of a row's score.
        num_temperatures: of a row's score.
        seed: of everything.
        show_progress: whether to show a bar.
        may_grow: whether there may be more latents, where factor analysis needs them.
    """

    method: Method | None
    learning_rate: float
    max_updates: int | None
    num_chains: int
    num_temperatures: int
    seed: int
    show_progress: bool
    may_grow: bool = False


class Trained(NamedTuple):
    """Networks, their form, the ladder that rows are scored along, and the updates made."""

    model: Any
    proposal: Any
    form: Form
    ladder: Ladder
    num_updates: tuple[int, ...]


class _Phase(NamedTuple):
    """Training by one method: updates at the most, learning rate and seed."""

    method: Method
    length: int
    rate: float
    seed: int


def examples_of(x: np.ndarray) -> InContext:
    """Return rows as models see them, with what is observed of them."""
    return InContext(np.float32(x), Context(is_observed=~np.isnan(x)))


def train(form: Form, rows: Rows, settings: Settings) -> Trained:
    """Train networks, for as long as held-out rows gain."""
    x, every = rows.values, np.arange(len(rows.values))
    # Of real numbers a copy tells what is held out; of bits and counts it is another such row.
    folds = _folds(every if set(form.families) <= WHOLE else rows.patterns, settings.seed)
    parts = [np.delete(every, fold) for fold in folds]
    form, (*trials, whole) = _starts(form, x, folds, [*parts, every], settings)
    ladder = SCORE_KERNEL.ladder(settings.num_temperatures)

    def held_out(trials: Sequence[Weights]) -> float:
        """Return the mean score of what is held out, minus infinity where one is not finite."""
        pairs = zip(trials, folds, strict=True)
        scores = [
            score_rows(*own, examples_of(x[fold]), ladder, num_chains=settings.num_chains).log_p
            for own, fold in pairs
        ]
        found, weights = np.concatenate(scores), rows.weights[np.concatenate(folds)]
        return float(np.average(found, weights=weights)) if np.all(np.isfinite(found)) else -np.inf

    lengths = []
    for number, method in enumerate(m for m in (VAE(), settings.method) if m is not None):
        share, rate = (_METHOD_SHARE, _METHOD_RATE) if number else (1.0, 1.0)
        length = _length(len(x), settings.max_updates, share)
        phase = _Phase(method, length, rate * settings.learning_rate, settings.seed)
        found, trials = _best(phase, trials, parts, rows, held_out, settings.show_progress)
        (whole,) = _advanced(whole, phase, every, rows, [found])
        lengths.append(found)
        if not found:
            # Where networks gain nothing over the start, a better gradient of theirs will not, too.
            break
    target = SCORE_KERNEL.target_accept
    ladder = tuned(*whole, examples_of(x), ladder, num_chains=settings.num_chains, target=target)
    return Trained(*whole, form, ladder, tuple(lengths))


def _starts(
    form: Form,
    x: np.ndarray,
    folds: Sequence[np.ndarray],
    parts: Sequence[np.ndarray],
    settings: Settings,
) -> tuple[Form, list[Weights]]:
    """Return networks for each part of the rows, and their form, with as many latents as it takes.

    Where all columns are normal they are factor analysis of the part, or else they are the same.
    """
    if set(form.families) != {"gaussian"}:
        return form, [build(form, x, settings.seed)] * len(parts)
    most = _NUM_LATENTS[-1] if settings.may_grow else form.num_latents
    factors = choose_factors(x, folds, min(most, x.shape[1]), form.num_latents)
    enough = next(n for n in (form.num_latents, *_NUM_LATENTS) if n >= factors)
    form = form._replace(num_latents=enough)
    built = build(form, x, settings.seed, is_silent=True)
    return form, [with_factors(*built, x[part], factors) for part in parts]


def _folds(patterns: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return rows to hold out, in turn for small data; none where there are too few.

    Rows of the same pattern are held out together.
    """
    number = int(patterns.max()) + 1
    if number < _FEW:
        return []
    order = np.random.default_rng([seed, 1]).permutation(number)
    parts = np.array_split(order, _FOLDS)
    if number >= _MANY:
        parts = [order[: min(512, int(_SHARE * number))]]
    return [np.flatnonzero(np.isin(patterns, part)) for part in parts]


def _length(number: int, max_updates: int | None, share: float) -> int:
    """Return the updates of a phase at the most, in whole looks."""
    wanted = max_updates or np.clip(_EPOCHS * number / BATCH, *_UPDATES)
    return max(1, round(wanted * share / _LOOK)) * _LOOK


def _looks(length: int) -> list[int]:
    """Return after how many updates to look: the later, the less often, as less changes."""
    looks = [0]
    while looks[-1] < length:
        looks.append(min(looks[-1] + max(1, looks[-1] // (_SPACING * _LOOK)) * _LOOK, length))
    return looks


def _best(
    phase: _Phase,
    trials: list[Weights],
    parts: Sequence[np.ndarray],
    rows: Rows,
    held_out: Callable[[Sequence[Weights]], float],
    show_progress: bool,
) -> tuple[int, list[Weights]]:
    """Train on parts of the rows until what is held out gains no more.

    Return after how many updates it was best, and the networks as they were then.
    """
    if not parts:
        return 0, trials
    looks, name = _looks(phase.length), type(phase.method).__name__.lower()
    walks = [_advanced(own, phase, p, rows, looks) for own, p in zip(trials, parts, strict=True)]
    best, best_length = -np.inf, 0
    with Progress(phase.length, name, "rows", is_shown=show_progress) as bar:
        for length, *found in zip(looks, *walks, strict=True):
            score = held_out(found)
            bar.advance(length, name, f"held-out bound {score:.2f}")
            if score > best:
                best, best_length, trials = score, length, found
            elif length >= 1.5 * best_length + _PATIENCE:
                break
    return best_length, trials


def _advanced(
    weights: Weights, phase: _Phase, chosen: np.ndarray, rows: Rows, looks: Sequence[int]
) -> Iterator[Weights]:
    """Train on the chosen rows, and yield model and proposal after each of so many updates."""
    params, static = trained_arrays(*weights)
    optimizer = remembered(("estimator", phase.rate), lambda: optax.adam(phase.rate))
    step = Step(static, phase.method, optimizer, View())
    bare = step._replace(static=eqx.filter(static, eqx.is_array, inverse=True))
    first = remembered(("first", bare), lambda: jax.jit(partial(init_state, step=bare)))
    # One device: tables are small, and numbers must not depend on how many there are.
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("batch",))
    # Placed as updates will leave it, or the second call would be compiled anew.
    state = processes.place(first(params), jax.NamedSharding(mesh, jax.P()))
    run = make_chunk(step, mesh, BATCH, is_quick=True)
    key, number = jax.random.key(phase.seed), jnp.asarray(_LOOK, jnp.int32)
    (examples, row_weights), order = _filled(rows, chosen), _order(chosen, phase)
    done = 0
    for last in looks:
        while done < last:
            positions: Any = order[done : done + _LOOK]
            batches = Batches(examples, positions, positions, row_weights)
            state, log = run(state, key, batches, number)
            done += _LOOK
            if np.all(np.asarray(log.is_skipped)):
                raise TrainingError(
                    f"training diverged: no gradient of the last {_LOOK} updates was finite; lower "
                    "learning_rate, or look at the values of X"
                )
        # Copies: the next updates take over the memory of the state.
        yield eqx.combine(jax.tree.map(lambda a: np.array(a), state.params), static)


def _filled(rows: Rows, chosen: np.ndarray) -> tuple[InContext, jax.Array]:
    """Return all rows and their weights, filled up to a power of two."""
    number = len(rows.values)
    size = max(_LEAST_ROWS, 1 << (number - 1).bit_length())
    places = np.minimum(np.arange(size), number - 1)
    own = rows.weights / rows.weights[chosen].mean()
    return examples_of(rows.values[places]), jnp.asarray(own[places], jnp.float32)


def _order(chosen: np.ndarray, phase: _Phase) -> np.ndarray:
    """Return the rows of each update: one permutation after another, cut into batches."""
    total = phase.length * BATCH
    random = np.random.default_rng([phase.seed, 2])
    passes = [random.permutation(chosen) for _ in range(-(-total // len(chosen)))]
    return np.concatenate(passes)[:total].reshape(phase.length, BATCH).astype(np.int32)
