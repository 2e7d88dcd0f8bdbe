"""One update of the weights, and a compiled chunk of many.

Everything that happens between two looks at the host is one call: a chunk walks over its updates on
the device, each of which draws its examples, estimates the gradients in cache-sized tiles of the
batch, steps both networks and adapts the method. The batch is sharded over a mesh of devices; an
example's draws depend on its index and the update alone.
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

from aisle import processes
from aisle.compilation import compiler_options, quick_options, remembered
from aisle.context import bind, in_context, parts_of
from aisle.data import View
from aisle.learning.protocol import Losses, Method, Metrics
from aisle.types import PRNGKey, Scalar

# Chains of one tile: their activations stay in the cache, and memory does not grow with K up to it.
CHAINS_PER_TILE = 400

Params = PyTree[Array | None]


class TrainState(NamedTuple):
    """All that training changes. With the configuration and the seed it determines what follows.

    Attributes:
        update: number of updates made, skipped ones included.
        params: the arrays of (model, proposal) that are trained.
        optimizer: the optimiser's states, one for each of both.
        method: the method's state, such as step sizes.
        average: running average of `params` after each update, or None.
        num_skipped: updates left out because a gradient was not finite.
        num_skipped_in_row: the last ones of them, without one that was finite in between.
    """

    update: Int[Array, ""]
    params: Params
    optimizer: PyTree
    method: PyTree
    average: Params | None
    num_skipped: Int[Array, ""]
    num_skipped_in_row: Int[Array, ""]


class Step(NamedTuple):
    """What an update does; fixed, and so compiled in.

    Attributes:
        static: the rest of (model, proposal), beside the arrays that are trained.
        method: estimates the gradients.
        optimizer: of both networks.
        view: from a stored example to what the model sees.
        average: decay of the running average of weights, 0 for none.
        is_shared_out: whether each network is stepped on a device of its own.
    """

    static: PyTree
    method: Method
    optimizer: optax.GradientTransformation
    view: View
    average: float = 0.0
    is_shared_out: bool = False


class Batches(NamedTuple):
    """The examples of the updates of a chunk.

    Attributes:
        examples: rows as stored, with their context if they have one.
        positions: for each update, the rows of `examples` that make its batch.
        indices: the same examples' indices in the data set.
        weights: how much each row of `examples` counts, or None for all alike.
    """

    examples: PyTree
    positions: Int[Array, "updates batch"]
    indices: Int[Array, "updates batch"]
    weights: Float[Array, " examples"] | None = None


# Of one update on one device: rows, weights or None, and indices.
Batch = tuple[PyTree, Float[Array, " local"] | None, Int[Array, " local"]]


class UpdateLog(NamedTuple):
    """What one update has to report; batch means."""

    losses: Losses
    metrics: Metrics
    method: PyTree
    is_skipped: Array


def init_state(params: Params, step: Step) -> TrainState:
    """Return the state before the first update."""
    average = jax.tree.map(_own, params) if step.average else None
    counts = [jnp.zeros((), jnp.int32) for _ in range(3)]
    first = TrainState(counts[0], params, (), (), average, counts[1], counts[2])
    return enter(first, step)._replace(params=jax.tree.map(_own, params))


def enter(state: TrainState, step: Step) -> TrainState:
    """Return the state at the start of a phase: new states of optimiser and method."""
    optimizer = tuple(step.optimizer.init(part) for part in state.params)
    return state._replace(
        optimizer=jax.tree.map(_own, optimizer),
        method=jax.tree.map(_own, step.method.init()),
    )


def _own(array: Array) -> Array:
    """Return a copy: a chunk takes over the memory of the state it is given.

    Its type is that of the array for sure. A number of Python's is of a weak type, which the first
    update makes a strong one: the second chunk would be compiled anew.
    """
    return jnp.array(array, dtype=array.dtype)


def make_chunk(
    step: Step, mesh: jax.sharding.Mesh, batch_size: int, *, is_quick: bool = False
) -> Callable[[TrainState, PRNGKey, Batches, Int[Array, ""]], tuple[TrainState, UpdateLog]]:
    """Return `(state, key, batches, num_updates) -> (state, log)`, compiled.

    The number of updates is a value, at most the batches given, so that one compilation serves
    chunks of any length; `log` has one entry for each batch given, of which the first
    `num_updates` are filled. Another training by an equal step finds the compiled program, which is
    made quickly where that matters more than its speed.
    """
    constants, static = eqx.partition(step.static, eqx.is_array)
    bare = step._replace(static=static)
    options = quick_options() if is_quick else compiler_options()
    program = remembered(
        (bare, mesh, batch_size, is_quick), lambda: _compile(bare, mesh, batch_size, options)
    )
    return partial(program, processes.place(constants, jax.NamedSharding(mesh, jax.P())))


def _compile(
    bare: Step, mesh: jax.sharding.Mesh, batch_size: int, options: dict[str, int] | None
) -> Callable[..., tuple[TrainState, UpdateLog]]:
    """Compile a chunk of a step; arrays that are not trained are given at each call."""
    num_tiles = _num_tiles(batch_size // mesh.size, bare.method)

    def update(
        step: Step, state: TrainState, key: PRNGKey, batches: Batches, i: Array
    ) -> tuple[TrainState, UpdateLog]:
        every = (batches.examples, batches.weights)
        rows, weights = jax.tree.map(lambda a: a[batches.positions[i]], every)
        batch = (rows, weights, batches.indices[i])
        grads, losses, metrics = _gradients(step, state, key, batch, num_tiles)
        return _apply(step, state, grads, losses, metrics)

    def chunk(
        constants: PyTree,
        state: TrainState,
        key: PRNGKey,
        batches: Batches,
        num_updates: Int[Array, ""],
    ) -> tuple[TrainState, UpdateLog]:
        step = bare._replace(static=eqx.combine(constants, bare.static))
        once = _traced_once(partial(update, step))

        def one(i: Array, carry: tuple[TrainState, UpdateLog]) -> tuple[TrainState, UpdateLog]:
            state, logs = carry
            state, log = once(state, key, batches, i)
            return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), logs, log)

        first = jnp.zeros((), jnp.int32)
        log = jax.eval_shape(once, state, key, batches, first)[1]
        length = len(batches.positions)
        empty = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), log)
        return jax.lax.fori_loop(0, num_updates, one, (state, empty))

    everywhere, over_batch = jax.P(), jax.P(None, "batch")
    places: Any = Batches(*cast("Any", (everywhere, over_batch, over_batch, everywhere)))
    sharded = jax.shard_map(
        chunk,
        mesh=mesh,
        in_specs=(everywhere, everywhere, everywhere, places, everywhere),
        out_specs=everywhere,
        check_vma=False,
    )
    return jax.jit(sharded, donate_argnums=1, compiler_options=options)


def _traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function traced once where its shapes are asked for before it is called."""
    return jax.jit(function, inline=True)


def _gradients(
    step: Step,
    state: TrainState,
    key: PRNGKey,
    batch: Batch,
    num_tiles: int,
) -> tuple[Params, Losses, Metrics]:
    """Average gradients, losses and metrics over the batch: tiles here, then devices."""
    key_update = jax.random.fold_in(key, state.update)

    def loss(params: Params, batch: Batch) -> tuple[Scalar, tuple[Losses, Metrics]]:
        rows, weights, indices = batch
        model, proposal = eqx.combine(params, step.static)

        def example(row: PyTree, index: Array) -> tuple[Losses, Metrics]:
            key_bits, key = jax.random.split(jax.random.fold_in(key_update, index))
            stored, context = parts_of(row)
            x = step.view.observe(key_bits, stored, index)
            own = bind(model, proposal, in_context(x, context))
            return step.method.estimate(key, *own, state.method)

        losses, metrics = jax.vmap(example)(rows, indices)
        if weights is not None:
            losses = jax.tree.map(lambda a: weights * a, losses)
        averages = jax.tree.map(lambda a: jnp.mean(a, axis=0), (losses, metrics))
        return averages[0].theta + averages[0].phi, averages

    @_traced_once
    def tile(batch: Batch) -> tuple[Params, tuple[Losses, Metrics]]:
        return jax.grad(loss, has_aux=True)(state.params, batch)

    if num_tiles == 1:
        total = tile(batch)
    else:
        tiled = jax.tree.map(lambda a: a.reshape(num_tiles, -1, *a.shape[1:]), batch)
        zeros = jax.tree.map(
            lambda s: jnp.zeros(s.shape, s.dtype),
            jax.eval_shape(tile, jax.tree.map(lambda a: a[0], tiled)),
        )
        total, _ = jax.lax.scan(
            lambda total, part: (jax.tree.map(jnp.add, total, tile(part)), None), zeros, tiled
        )
    grads, (losses, metrics) = jax.lax.pmean(jax.tree.map(lambda a: a / num_tiles, total), "batch")
    return grads, losses, metrics


def _apply(
    step: Step, state: TrainState, grads: Params, losses: Losses, metrics: Metrics
) -> tuple[TrainState, UpdateLog]:
    """Step both networks, unless a gradient is not finite, and adapt the method."""
    is_skipped = ~jnp.isfinite(optax.tree.norm(grads))
    params, optimizer = _step(step, state, grads)
    average = state.average
    if average is not None:
        average = optax.incremental_update(params, average, _newest_share(step.average, state))
    params, optimizer, average = jax.tree.map(
        lambda new, old: jnp.where(is_skipped, old, new),
        (params, optimizer, average),
        (state.params, state.optimizer, state.average),
    )
    after = TrainState(
        state.update + 1,
        params,
        optimizer,
        step.method.adapt(state.method, metrics),
        average,
        state.num_skipped + is_skipped,
        jnp.where(is_skipped, state.num_skipped_in_row + 1, 0),
    )
    return after, UpdateLog(losses, metrics, state.method, is_skipped)


def _newest_share(decay: float, state: TrainState) -> Scalar:
    """Return the share of the newest weights in their average, in which the first have none."""
    number = state.update - state.num_skipped + 1
    return (1 - decay) / -jnp.expm1(number * math.log(decay))


def _step(step: Step, state: TrainState, grads: Params) -> tuple[Params, PyTree]:
    """Step both networks, everything on every device or each network on one of them."""

    def change(part: int) -> tuple[Params, PyTree]:
        return step.optimizer.update(grads[part], state.optimizer[part], state.params[part])

    changes, optimizer = zip(*(change(part) for part in range(2)), strict=True)
    if step.is_shared_out and jax.lax.axis_size("batch") > 1:
        # The states come from above and the changes from here: what both need is cheap, and the
        # compiler drops the rest of what nobody asks for.
        changes = _shared_out(lambda part: change(part)[0], state.params)
    return optax.apply_updates(state.params, changes), optimizer


def _shared_out(function: Callable[[int], PyTree], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
    """Compute function(i), a pytree like like[i], on the i-th device only, and send it to all."""

    def only(part: int) -> tuple[PyTree, ...]:
        zeros = jax.tree.map(jnp.zeros_like, like)
        return tuple(function(i) if i == part else zeros[i] for i in range(len(like)))

    # One switch for all parts: with one for each, devices wait in between for the others' gradients
    # and so for each other, and nothing is gained.
    place = jax.lax.axis_index("batch")
    branches = [partial(only, part) for part in range(len(like) + 1)]
    return jax.lax.psum(jax.lax.switch(jnp.minimum(place, len(like)), branches), "batch")


def _num_tiles(num_local: int, method: Method) -> int:
    """Return the smallest number of equal tiles that keeps each within its size."""
    wanted = max(1, CHAINS_PER_TILE // getattr(method, "num_samples", 1))
    return next(
        n for n in range(1, num_local + 1) if num_local % n == 0 and num_local // n <= wanted
    )
