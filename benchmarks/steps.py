"""Updates and evaluation tiles of aisle, on the networks of the IWAE study."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aisle.annealing import HMC, Kernel, Ladder, schedules
from aisle.compilation import compiler_options
from aisle.data import View
from aisle.evaluation import examples, work
from aisle.learning import AIS, VAE, DReG, Method
from aisle.learning.optimizers import Adam, Optimizer
from aisle.learning.preparing import batch_mesh, trained_arrays
from aisle.learning.updates import Batches, Step, init_state, make_chunk
from aisle.models import convolutional_model, mlp_model, one_layer
from aisle.models.joint import log_joint
from aisle.models.likelihoods import Bernoulli
from benchmarks import measure

BATCH = 128
NUM_EXAMPLES = 4096


def pictures() -> np.ndarray:
    """Return random pictures: the speed does not depend on what they show."""
    return np.random.default_rng(0).integers(0, 256, (NUM_EXAMPLES, 784), np.uint8)


def networks() -> tuple[Any, Any]:
    """Return the one-layer model and its encoder."""
    return one_layer(jax.random.key(0), pictures().mean(0) / 255)


def annealing(K: int, T: int, L: int) -> Method:
    """Return the paper's method, whatever its number of leapfrog steps."""
    return AIS(K, T, Kernel(schedules.linear, HMC(L), 0.6))


def baseline(name: str, K: int) -> Method:
    """Return a method without chains."""
    return {"vae": VAE, "dreg": DReG}[name](K)


def make_update(
    method: Method, num_updates: int, optimizer: Optimizer
) -> tuple[Callable[[], Any], Callable[[], int]]:
    """Return a call that makes `num_updates` more updates, and one that tells its memory."""
    params, static = trained_arrays(*networks())
    view = View(is_grey=True, binarize="dynamic")
    step = Step(
        static, method, optimizer.build(1000, 1), view, is_shared_out=optimizer.is_shared_out
    )
    mesh = batch_mesh(BATCH)
    everywhere = jax.NamedSharding(mesh, jax.P())
    state = jax.device_put(init_state(params, step), everywhere)
    if isinstance(method, AIS):
        state = state._replace(method=jax.device_put(jnp.full_like(state.method, 0.02), everywhere))
    indices = np.arange(num_updates * BATCH, dtype=np.int32).reshape(num_updates, BATCH)
    batches = Batches(
        jax.device_put(pictures(), everywhere),
        *jax.device_put(
            (indices % NUM_EXAMPLES,) * 2, jax.NamedSharding(mesh, jax.P(None, "batch"))
        ),
    )
    chunk = make_chunk(step, mesh, BATCH)
    key = jax.device_put(jax.random.key(1), everywhere)
    held = [state]

    def call() -> Any:
        held[0], log = chunk(held[0], key, batches, jnp.int32(num_updates))
        return log

    def memory() -> int:
        """Return the bytes of temporary arrays that a compiled chunk needs on each device."""
        arguments = (*chunk.args, held[0], key, batches, jnp.int32(num_updates))
        compiled = chunk.func.lower(*arguments).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    return call, memory


def update_cost(
    method: Method, gflop: float, *, repeats: int = 5, optimizer: Optimizer | None = None
) -> tuple[float, int]:
    """Return the seconds of one update and the bytes of its temporary arrays on each device.

    Args:
        method: to update by.
        gflop: arithmetic of one example, for the number of updates that are timed at once.
        repeats: timings, of which the best counts.
        optimizer: by default Adam.
    """
    # About half a second of updates at a time.
    number = int(np.clip(60 / (gflop * BATCH), 1, NUM_EXAMPLES // BATCH))
    call, memory = make_update(method, number, optimizer or Adam(1e-4))
    return measure.best_seconds(call, repeats=repeats) / number, memory()


def evaluation_rate(
    num_chains: int,
    T: int,
    L: int,
    own: tuple[Any, Any] | None = None,
    each: int | None = None,
) -> float:
    """Return the gradients of log p a second of an evaluation's tiles.

    `own` is by default the study's networks, `each` what a tile of an evaluation has on a device.
    """
    model, proposal = own or networks()
    hmc = HMC(L, refresh=0.6, precondition=1.0)
    ladder = Ladder(schedules.sigmoid(T), jnp.full(T, 0.1), hmc, last_move=False)
    cost = num_chains * ladder.num_gradients
    each = each or work.preferred_examples(num_chains, ladder.num_gradients)
    number = each * jax.device_count()
    xs = np.float32(pictures()[: 4 * number] > 128).reshape(-1, *getattr(model, "shape", (784,)))
    indices = np.arange(len(xs))
    context, key = (model, proposal, ladder, num_chains), jax.random.key(0)
    job = work.Job("", examples.forward, context, key, xs, indices, cost, each)
    seconds = [part.seconds for part in work._tiles(job, indices, 2**31)]
    # The first tile was spent compiling.
    return number * cost / min(seconds[1:])


def families() -> dict[str, tuple[Any, Any]]:
    """Return a model and its encoder by each kind of networks that the command line offers."""
    key, bits = jax.random.key(0), np.float32(pictures() > 128)
    fitted = Bernoulli.fitted(bits)
    return {
        "mlp": mlp_model(key, *fitted),
        "conv": convolutional_model(key, *fitted, shape=(28, 28)),
    }


def bare_rate(model: Any, number: int = 512) -> tuple[float, float]:
    """Return the gradients of log p a second without annealing, and the GFLOP of one of them."""
    zs = jax.random.normal(jax.random.key(0), (number, model.num_latents))
    xs = np.float32(pictures()[:number] > 128).reshape(-1, *model.shape)
    arrays, static = eqx.partition(model, eqx.is_array)

    def gradients(arrays: Any, xs: jax.Array, zs: jax.Array) -> jax.Array:
        model = eqx.combine(arrays, static)
        return jax.vmap(lambda x, z: jax.grad(log_joint(model, x))(z))(xs, zs)

    program = jax.jit(gradients).lower(arrays, xs, zs).compile(compiler_options())
    given = jax.device_put((arrays, xs, zs))
    seconds = measure.best_seconds(lambda: program(*given), repeats=5)
    return number / seconds, program.cost_analysis()["flops"] / number / 1e9
