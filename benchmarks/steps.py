"""Updates and evaluation tiles of aisle, on the networks of the IWAE study."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from aisle.annealing import Kernel, schedules
from aisle.annealing.kernel import gradients_per_chain
from aisle.evaluation import runs, work
from aisle.learning import estimators
from aisle.learning.trainer import batch_mesh
from aisle.learning.updates import Batches, Recipe, init_state, make_chunk, split_arrays
from aisle.models import one_layer
from benchmarks import measure

BATCH = 128
NUM_EXAMPLES = 4096


def pictures() -> np.ndarray:
    """Return random pictures: the speed does not depend on what they show."""
    return np.random.default_rng(0).integers(0, 256, (NUM_EXAMPLES, 784), np.uint8)


def networks() -> tuple[Any, Any]:
    """Return the one-layer model and its encoder."""
    return one_layer(jax.random.key(0), pictures().mean(0) / 255)


def make_update(
    method: str, num_samples: int, num_temperatures: int, num_leapfrog: int, num_updates: int
) -> tuple[Callable[[], Any], Callable[[], int]]:
    """Return a call that makes `num_updates` more updates, and one that tells its memory."""
    model, proposal = networks()
    sizes = jnp.full(num_temperatures, 0.02)
    kernel = Kernel(schedules.linear(num_temperatures), sizes, num_samples, num_leapfrog)
    static = split_arrays(model, proposal)[1]
    recipe = Recipe(
        static,
        estimators.named(method),
        kernel,
        optax.adam(1e-4),
        "dynamic",
        (784,),
        target_accept=0.6,
        largest_step=0.3,
        ema=0.0,
    )
    mesh = batch_mesh(BATCH)
    everywhere = jax.NamedSharding(mesh, jax.P())
    state = jax.device_put(init_state(model, proposal, recipe, sizes), everywhere)
    indices = np.arange(num_updates * BATCH, dtype=np.int32).reshape(num_updates, BATCH)
    batches = Batches(
        jax.device_put(pictures(), everywhere),
        *jax.device_put(
            (indices % NUM_EXAMPLES,) * 2, jax.NamedSharding(mesh, jax.P(None, "batch"))
        ),
    )
    chunk = make_chunk(recipe, mesh, BATCH)
    key = jax.device_put(jax.random.key(1), everywhere)
    held = [state]

    def call() -> Any:
        held[0], log = chunk(held[0], key, batches, jnp.int32(num_updates))
        return log

    def memory() -> int:
        """Return the bytes of temporary arrays that a compiled chunk needs on each device."""
        compiled = chunk.lower(held[0], key, batches, jnp.int32(num_updates)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    return call, memory


def update_cost(method: str, K: int, T: int, L: int, repeats: int = 5) -> tuple[float, int]:
    """Return the seconds of one update and the bytes of its temporary arrays on each device."""
    gigaflops = measure.update_gflop(K * (1 + T * L), K) * BATCH
    # About half a second of updates at a time.
    number = int(np.clip(60 / gigaflops, 1, NUM_EXAMPLES // BATCH))
    call, memory = make_update(method, K, T, L, number)
    return measure.best_seconds(call, repeats=repeats) / number, memory()


def evaluation_rate(num_chains: int, T: int, L: int) -> float:
    """Return the gradients of log p a second of an evaluation's tiles."""
    model, proposal = networks()
    kernel = Kernel(
        schedules.sigmoid(T), jnp.full(T, 0.1), num_chains, L, 1.0, 0.6, last_move=False
    )
    cost = num_chains * gradients_per_chain(kernel)
    each = work.preferred_examples(num_chains, gradients_per_chain(kernel))
    number = each * jax.device_count()
    xs = np.float32(pictures()[: 4 * number] > 128)
    indices = np.arange(len(xs))
    context, key = (model, proposal, kernel), jax.random.key(0)
    job = work.Job("", runs.forward, context, key, xs, indices, cost, each)
    seconds = [part.seconds for part in work._tiles(job, indices, 2**31)]
    # The first tile was spent compiling.
    return number * cost / min(seconds[1:])
