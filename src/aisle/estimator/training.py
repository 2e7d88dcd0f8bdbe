"""Training for tables that may be small: how long, says what is held out; then all rows train.

Programs are compiled for a number of columns, and hardly for a number of rows: rows are filled up
to a power of two, batches are always full, and held-out rows are scored in tiles of one size. So
the folds of a cross-validation share their programs.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from aisle import processes
from aisle.annealing import Kernel, Ladder, schedules
from aisle.compilation import remembered
from aisle.context import Context, InContext
from aisle.data import View
from aisle.errors import TrainingError
from aisle.estimator.columns import Rows
from aisle.estimator.starting import Form, build, choose_factors, likelihood_of, with_factors
from aisle.evaluation.rows import score_rows, tuned
from aisle.learning.methods import VAE
from aisle.learning.preparing import trained_arrays
from aisle.learning.protocol import Method
from aisle.learning.updates import Batches, Step, init_state, make_chunk
from aisle.progress import Progress

Weights = tuple[Any, Any]

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


def kernel_of_scores() -> Kernel:
    """Return the kernel of the chains that score rows."""
    return Kernel.tuned(schedule=schedules.sigmoid)


def examples_of(x: np.ndarray) -> InContext:
    """Return rows as models see them, with what is observed of them."""
    return InContext(np.float32(x), Context(is_observed=~np.isnan(x)))


def train(form: Form, rows: Rows, settings: Settings) -> Trained:
    """Train networks, for as long as held-out rows gain."""
    x, weights, patterns = rows
    likelihood, output = likelihood_of(form, x)
    # Of real numbers a copy tells what is held out; of bits and counts it is another such row.
    folds = _folds(patterns if form.has_real else np.arange(len(x)), settings.seed)
    factors = None
    if form.is_real:
        most = _NUM_LATENTS[-1] if settings.may_grow else form.num_latents
        factors = choose_factors(x, folds, min(most, x.shape[1]), form.num_latents)
        enough = next(n for n in (form.num_latents, *_NUM_LATENTS) if n >= factors)
        form = form._replace(num_latents=enough)
    built = build(form, likelihood, output, settings.seed, factors)

    def start(chosen: np.ndarray) -> Weights:
        return built if factors is None else with_factors(*built, x[chosen], factors)

    every = np.arange(len(x))
    parts = [np.delete(every, fold) for fold in folds]
    trials = [_Trial(x, weights, part, start(part)) for part in parts]
    whole = _Trial(x, weights, every, start(every))
    ladder = kernel_of_scores().ladder(settings.num_temperatures)
    lengths = []
    for number, method in enumerate(m for m in (VAE(), settings.method) if m is not None):
        share, rate = (_METHOD_SHARE, _METHOD_RATE) if number else (1.0, 1.0)
        length = _length(len(x), settings.max_updates, share)
        phase = _Phase(method, length, rate * settings.learning_rate, settings.seed)
        found = _best_length(phase, trials, folds, rows, ladder, settings)
        whole = whole.advanced(phase, found)
        lengths.append(found)
        if not found:
            # Where networks gain nothing over the start, a better gradient of theirs will not, too.
            break
    model, proposal = whole.weights
    ladder = tuned(
        *(model, proposal, examples_of(x), ladder),
        num_chains=settings.num_chains,
        target=kernel_of_scores().target_accept,
    )
    return Trained(model, proposal, form, ladder, tuple(lengths))


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


class _Phase:
    """A method with its optimiser, for networks of one form."""

    def __init__(self, method: Method, length: int, rate: float, seed: int):
        self.method, self.length, self.seed = method, length, seed
        self.optimizer = remembered(("estimator", rate), lambda: optax.adam(rate))
        # One device: tables are small, and numbers must not depend on how many there are.
        self.mesh = jax.sharding.Mesh(jax.devices()[:1], ("batch",))

    def step(self, static: PyTree) -> Step:
        """Return what an update does."""
        return Step(static, self.method, self.optimizer, View())


class _Trial(NamedTuple):
    """Networks in training on some of the rows."""

    x: np.ndarray
    row_weights: np.ndarray
    chosen: np.ndarray
    weights: Weights

    def advanced(self, phase: _Phase, last: int) -> "_Trial":
        """Return the trial after so many updates of a phase."""
        walk = _Walk(self, phase)
        walk.advance(last)
        return self._replace(weights=walk.weights)


class _Walk:
    """A trial on its way through a phase."""

    def __init__(self, trial: _Trial, phase: _Phase):
        params, self._static = trained_arrays(*trial.weights)
        step = phase.step(self._static)
        bare = step._replace(static=eqx.filter(step.static, eqx.is_array, inverse=True))
        first = remembered(("first", bare), lambda: jax.jit(partial(init_state, step=bare)))
        # Placed as updates will leave it, or the second call would be compiled anew.
        everywhere = jax.NamedSharding(phase.mesh, jax.P())
        self._state = processes.place(first(params), everywhere)
        self._run = make_chunk(step, phase.mesh, BATCH, is_quick=True)
        self._key, self._number = jax.random.key(phase.seed), jnp.asarray(_LOOK, jnp.int32)
        self._examples, self._row_weights = _filled(trial)
        self._order = _order(trial.chosen, phase)
        self.done = 0

    def advance(self, last: int) -> None:
        """Make the updates up to the last one."""
        while self.done < last:
            positions: Any = self._order[self.done : self.done + _LOOK]
            batches = Batches(self._examples, positions, positions, self._row_weights)
            self._state, log = self._run(self._state, self._key, batches, self._number)
            self.done += _LOOK
            if np.all(np.asarray(log.is_skipped)):
                raise TrainingError(
                    f"training diverged: no gradient of the last {_LOOK} updates was finite; lower "
                    "learning_rate, or look at the values of X"
                )

    @property
    def weights(self) -> Weights:
        """Model and proposal as they are now."""
        # Copies: the next updates take over the memory of the state.
        params = jax.tree.map(lambda a: np.array(a), self._state.params)
        return eqx.combine(params, self._static)


def _filled(trial: _Trial) -> tuple[InContext, jax.Array]:
    """Return all rows and their weights, filled up to a power of two."""
    number = len(trial.x)
    size = max(_LEAST_ROWS, 1 << (number - 1).bit_length())
    places = np.minimum(np.arange(size), number - 1)
    own = trial.row_weights / trial.row_weights[trial.chosen].mean()
    return examples_of(trial.x[places]), jnp.asarray(own[places], jnp.float32)


def _order(chosen: np.ndarray, phase: _Phase) -> np.ndarray:
    """Return the rows of each update: one permutation after another, cut into batches."""
    total = phase.length * BATCH
    random = np.random.default_rng([phase.seed, 2])
    passes = [random.permutation(chosen) for _ in range(-(-total // len(chosen)))]
    return np.concatenate(passes)[:total].reshape(phase.length, BATCH).astype(np.int32)


def _looks(length: int) -> list[int]:
    """Return after how many updates to look: the later, the less often, as less changes."""
    looks = [0]
    while looks[-1] < length:
        looks.append(min(looks[-1] + max(1, looks[-1] // (_SPACING * _LOOK)) * _LOOK, length))
    return looks


def _best_length(
    phase: _Phase,
    trials: list[_Trial],
    folds: Sequence[np.ndarray],
    rows: Rows,
    ladder: Ladder,
    settings: Settings,
) -> int:
    """Train on all folds until what they hold out gains no more; leave them at the best length."""
    if not trials:
        return 0
    walks = [_Walk(trial, phase) for trial in trials]
    look = partial(_mean_score, folds=folds, rows=rows, ladder=ladder, settings=settings)
    best, best_length, best_weights = -np.inf, 0, [trial.weights for trial in trials]
    with Progress(phase.length, _name(phase), "rows", is_shown=settings.show_progress) as bar:
        for length in _looks(phase.length):
            for walk in walks:
                walk.advance(length)
            weights = [walk.weights for walk in walks]
            score = look(weights)
            bar.advance(length, _name(phase), f"held-out bound {score:.2f}")
            if score > best:
                best, best_length, best_weights = score, length, weights
            elif length >= 1.5 * best_length + _PATIENCE:
                break
    for i, weights in enumerate(best_weights):
        trials[i] = trials[i]._replace(weights=weights)
    return best_length


def _mean_score(
    weights: list[Weights],
    folds: Sequence[np.ndarray],
    rows: Rows,
    ladder: Ladder,
    settings: Settings,
) -> float:
    pairs, x = zip(weights, folds, strict=True), rows.values
    every = [score(own, x[fold], ladder, settings.num_chains).log_p for own, fold in pairs]
    found, row_weights = np.concatenate(every), rows.weights[np.concatenate(folds)]
    return float(np.average(found, weights=row_weights)) if np.all(np.isfinite(found)) else -np.inf


def score(weights: Weights, x: np.ndarray, ladder: Ladder, num_chains: int) -> Any:
    """Score rows; see `aisle.evaluation.rows.score_rows`."""
    return score_rows(*weights, examples_of(x), ladder, num_chains=num_chains)


def _name(phase: _Phase) -> str:
    return type(phase.method).__name__.lower()
