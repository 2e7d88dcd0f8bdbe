"""One update of the weights, and a compiled chunk of many.

Everything that happens between two looks at the host is one call: a chunk walks over its updates on
the device, each of which draws and binarises its examples, estimates the gradients in cache-sized
tiles of the batch, steps both networks and adapts the step sizes. The batch is sharded over a mesh
of devices; an example's draws depend on its index and the update alone.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from aisle.annealing import Kernel
from aisle.annealing.tuning import nudge
from aisle.compilation import compiler_options
from aisle.learning.estimators import Losses, Method, Metrics
from aisle.learning.observations import observe
from aisle.types import Model, PRNGKey, Proposal, Scalar

# Chains of one tile: their activations stay in the cache, and memory does not grow with K up to it.
CHAINS_PER_TILE = 400

Params = PyTree[Array | None]


class TrainState(NamedTuple):
    """All that training changes. With the configuration and the seed it determines what follows.

    Attributes:
        update: number of updates made, skipped ones included.
        params: the arrays of (model, proposal).
        optimizer: the optimiser's states, one for each of both.
        step_sizes: of HMC, by temperature.
        average: running average of `params` after each update, or None.
        num_skipped: updates left out because a gradient was not finite.
        num_skipped_in_row: the last ones of them, without one that was finite in between.
    """

    update: Int[Array, ""]
    params: Params
    optimizer: PyTree
    step_sizes: Float[Array, " temperatures"]
    average: Params | None
    num_skipped: Int[Array, ""]
    num_skipped_in_row: Int[Array, ""]


class Recipe(NamedTuple):
    """What an update does; fixed, and so compiled in.

    Attributes:
        static: the rest of (model, proposal), beside their arrays.
        method: gradient estimator.
        kernel: of the estimator; its step sizes are those of the state.
        optimizer: of both networks.
        binarize: see `observe`.
        shape: of one example, as the model takes it.
        target_accept: acceptance that step sizes are adapted towards.
        largest_step: upper limit of step sizes.
        ema: decay of the running average of weights, 0 for none.
        is_shared_out: whether each network is stepped on a device of its own and not on all of
            them; pays for itself if the optimiser multiplies matrices.
    """

    static: PyTree
    method: Method
    kernel: Kernel
    optimizer: optax.GradientTransformation
    binarize: str
    shape: tuple[int, ...]
    target_accept: float
    largest_step: float
    ema: float
    is_shared_out: bool = False


class Batches(NamedTuple):
    """The examples of the updates of a chunk.

    Attributes:
        examples: rows as stored.
        positions: for each update, the rows of `examples` that make its batch.
        indices: the same examples' indices in the data set.
    """

    examples: Array
    positions: Int[Array, "updates batch"]
    indices: Int[Array, "updates batch"]


class UpdateLog(NamedTuple):
    """What one update has to tell; batch means."""

    losses: Losses
    metrics: Metrics
    step_sizes: Float[Array, " temperatures"]
    is_skipped: Array


def init_state(
    model: Model, proposal: Proposal, recipe: Recipe, step_sizes: Float[Array, " temperatures"]
) -> TrainState:
    """Return the state before the first update."""
    # Buffers of its own, each once: a chunk takes over the memory of the state it is given.
    params = jax.tree.map(jnp.copy, split_arrays(model, proposal)[0])
    average = jax.tree.map(jnp.copy, params) if recipe.ema else None
    counts = [jnp.zeros((), jnp.int32) for _ in range(3)]
    return TrainState(
        counts[0],
        params,
        tuple(recipe.optimizer.init(part) for part in params),
        jnp.copy(step_sizes),
        average,
        counts[1],
        counts[2],
    )


def split_arrays(model: Model, proposal: Proposal) -> tuple[Params, PyTree]:
    """Split (model, proposal) into the arrays that are trained and the rest."""
    return eqx.partition((model, proposal), eqx.is_inexact_array)


def make_chunk(
    recipe: Recipe, mesh: jax.sharding.Mesh, batch_size: int
) -> Callable[[TrainState, PRNGKey, Batches, Int[Array, ""]], tuple[TrainState, UpdateLog]]:
    """Compile `(state, key, batches, num_updates) -> (state, log)`.

    The number of updates is a value, at most the batches given, so that one compilation serves
    chunks of any length; `log` has one entry for each batch given, of which the first
    `num_updates` are filled.
    """
    num_local = batch_size // mesh.size
    gradients = partial(_gradients, recipe, num_tiles=_num_tiles(num_local, recipe.kernel))

    def chunk(
        state: TrainState, key: PRNGKey, batches: Batches, num_updates: Int[Array, ""]
    ) -> tuple[TrainState, UpdateLog]:
        def one(i: Array, carry: tuple[TrainState, UpdateLog]) -> tuple[TrainState, UpdateLog]:
            state, logs = carry
            indices = batches.indices[i]
            rows = batches.examples[batches.positions[i]]
            grads, losses, metrics = gradients(state, key, rows, indices)
            state, log = _apply(recipe, state, grads, losses, metrics)
            return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), logs, log)

        return jax.lax.fori_loop(0, num_updates, one, (state, _empty_logs(recipe, batches)))

    everywhere, over_batch = jax.P(), jax.P(None, "batch")
    places: Any = Batches(*cast("Any", (everywhere, over_batch, over_batch)))
    sharded = jax.shard_map(
        chunk,
        mesh=mesh,
        in_specs=(everywhere, everywhere, places, everywhere),
        out_specs=everywhere,
        check_vma=False,
    )
    return jax.jit(sharded, donate_argnums=0, compiler_options=compiler_options())


def _gradients(
    recipe: Recipe,
    state: TrainState,
    key: PRNGKey,
    rows: Array,
    indices: Int[Array, " local"],
    *,
    num_tiles: int,
) -> tuple[Params, Losses, Metrics]:
    """Average gradients, losses and metrics over the batch: tiles here, then devices."""
    key_update = jax.random.fold_in(key, state.update)
    kernel = eqx.tree_at(lambda k: k.step_sizes, recipe.kernel, state.step_sizes)

    def loss(params: Params, rows: Array, indices: Array) -> tuple[Scalar, tuple[Losses, Metrics]]:
        model, proposal = eqx.combine(params, recipe.static)

        def example(row: Array, index: Array) -> tuple[Losses, Metrics]:
            key_bits, key = jax.random.split(jax.random.fold_in(key_update, index))
            x = observe(key_bits, row, index, recipe.binarize).reshape(recipe.shape)
            return recipe.method.estimate(key, model, proposal, x, kernel)

        averages = jax.tree.map(lambda a: jnp.mean(a, axis=0), jax.vmap(example)(rows, indices))
        return averages[0].theta + averages[0].phi, averages

    def tile(rows: Array, indices: Array) -> tuple[Params, tuple[Losses, Metrics]]:
        return jax.grad(loss, has_aux=True)(state.params, rows, indices)

    if num_tiles == 1:
        total = tile(rows, indices)
    else:
        tiled = jax.tree.map(lambda a: a.reshape(num_tiles, -1, *a.shape[1:]), (rows, indices))
        zeros = jax.tree.map(
            lambda s: jnp.zeros(s.shape, s.dtype),
            jax.eval_shape(tile, *jax.tree.map(lambda a: a[0], tiled)),
        )
        total, _ = jax.lax.scan(
            lambda total, part: (jax.tree.map(jnp.add, total, tile(*part)), None), zeros, tiled
        )
    grads, (losses, metrics) = jax.lax.pmean(jax.tree.map(lambda a: a / num_tiles, total), "batch")
    return grads, losses, metrics


def _apply(
    recipe: Recipe, state: TrainState, grads: Params, losses: Losses, metrics: Metrics
) -> tuple[TrainState, UpdateLog]:
    """Step both networks, unless a gradient is not finite, and adapt the step sizes."""
    is_skipped = ~jnp.isfinite(optax.tree.norm(grads))
    params, optimizer = _step(recipe, state, grads)
    average = state.average
    if average is not None:
        average = optax.incremental_update(params, average, _newest_share(recipe.ema, state))
    params, optimizer, average = jax.tree.map(
        lambda new, old: jnp.where(is_skipped, old, new),
        (params, optimizer, average),
        (state.params, state.optimizer, state.average),
    )
    step_sizes = _adapt(recipe, state.step_sizes, metrics.acceptance)
    after = TrainState(
        state.update + 1,
        params,
        optimizer,
        step_sizes,
        average,
        state.num_skipped + is_skipped,
        jnp.where(is_skipped, state.num_skipped_in_row + 1, 0),
    )
    return after, UpdateLog(losses, metrics, state.step_sizes, is_skipped)


def _newest_share(ema: float, state: TrainState) -> Scalar:
    """Return the share of the newest weights in their average, in which the first have none."""
    number = state.update - state.num_skipped + 1
    return (1 - ema) / -jnp.expm1(number * math.log(ema))


def _step(recipe: Recipe, state: TrainState, grads: Params) -> tuple[Params, PyTree]:
    """Step both networks, everything on every device or each network on one of them."""

    def step(part: int) -> tuple[Params, PyTree]:
        return recipe.optimizer.update(grads[part], state.optimizer[part], state.params[part])

    changes, optimizer = zip(*(step(part) for part in range(2)), strict=True)
    if recipe.is_shared_out and jax.lax.axis_size("batch") > 1:
        # The states come from above and the changes from here: what both need is cheap, and the
        # compiler drops the rest of what nobody asks for.
        changes = _shared_out(lambda part: step(part)[0], state.params)
    return optax.apply_updates(state.params, changes), optimizer


def _shared_out(function: Callable[[int], PyTree], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
    """Compute function(i), a pytree like like[i], on the i-th device only, and tell all."""

    def only(part: int) -> tuple[PyTree, ...]:
        zeros = jax.tree.map(jnp.zeros_like, like)
        return tuple(function(i) if i == part else zeros[i] for i in range(len(like)))

    # One switch for all parts: with one for each, devices wait in between for the others' gradients
    # and so for each other, and nothing is gained.
    place = jax.lax.axis_index("batch")
    branches = [partial(only, part) for part in range(len(like) + 1)]
    return jax.lax.psum(jax.lax.switch(jnp.minimum(place, len(like)), branches), "batch")


def _adapt(recipe: Recipe, step_sizes: Array, acceptance: Array) -> Array:
    if not recipe.method.has_chains:
        return step_sizes
    num_moves = len(acceptance)  # the last step size is not used if there is no last move
    moved = nudge(
        step_sizes[:num_moves],
        acceptance,
        target=recipe.target_accept,
        largest=recipe.largest_step,
    )
    return step_sizes.at[:num_moves].set(moved)


def _num_tiles(num_local: int, kernel: Kernel) -> int:
    """Return the smallest number of equal tiles that keeps each within its size."""
    wanted = max(1, CHAINS_PER_TILE // kernel.num_samples)
    return next(
        n for n in range(1, num_local + 1) if num_local % n == 0 and num_local // n <= wanted
    )


def _empty_logs(recipe: Recipe, batches: Batches) -> UpdateLog:
    num_updates, num_temperatures = len(batches.positions), len(recipe.kernel.step_sizes)
    num_moves = num_temperatures - (not recipe.kernel.last_move)
    moves = num_moves if recipe.method.has_chains else 0

    def zeros(*shape: int) -> Array:
        return jnp.zeros((num_updates, *shape))

    metrics = Metrics(zeros(), zeros(), zeros(moves), zeros())
    is_skipped = jnp.zeros(num_updates, bool)
    return UpdateLog(Losses(zeros(), zeros()), metrics, zeros(num_temperatures), is_skipped)
