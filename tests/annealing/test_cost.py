"""What a run may cost: gradients and values of log p, compilations, and nothing on the host."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import HMC, Ladder, anneal, anneal_reverse, schedules
from aisle.evaluation import problems
from aisle.models import DiagonalNormal


def counting_log_joint(counts):
    """A standard normal whose value and gradient are computed on the host, and counted there.

    The callbacks are pure, so the compiler drops those whose result nobody reads.
    """

    def count(name, z):
        counts[name] += 1
        return -np.sum(z**2, dtype=z.dtype) / 2 if name == "value" else -z

    def callback(name, z, shape):
        result = jax.ShapeDtypeStruct(shape, z.dtype)
        return jax.pure_callback(lambda a: count(name, a), result, z, vmap_method="sequential")

    @jax.custom_vjp
    def log_joint(z):
        return callback("value", z, ())

    log_joint.defvjp(
        lambda z: (callback("value", z, ()), z),
        lambda z, cotangent: (cotangent * callback("gradient", z, z.shape),),
    )
    return log_joint


@pytest.mark.parametrize(
    ("num_temperatures", "last_move"),
    [
        (3, False),
        *(pytest.param(1, last_move, marks=pytest.mark.slow) for last_move in (True, False)),
    ],
)
def test_gradients_and_values_per_chain(num_temperatures, last_move):
    counts = {name: collections.Counter() for name in ("forward", "reverse")}
    q = DiagonalNormal(jnp.zeros(2), jnp.ones(2))
    betas, sizes = schedules.linear(num_temperatures), jnp.full(num_temperatures, 0.5)
    ladder, num_chains = Ladder(betas, sizes, HMC(5, refresh=0.5), last_move), 3
    there, back = (counting_log_joint(counts[name]) for name in counts)

    def chain(key):
        runs = anneal(key, q, there, ladder), anneal_reverse(key, q.sample(key), q, back, ladder)
        return [(run.z, run.log_weight) for run in runs]

    keys = jax.random.split(jax.random.key(0), num_chains)
    jax.block_until_ready(jax.jit(jax.vmap(chain))(keys))
    # Without a move no gradient is read at all; else the start costs one, each move L.
    assert ladder.num_gradients == (1 + 5 * ladder.num_moves if ladder.num_moves else 0)
    for found in counts.values():
        assert found["gradient"] == num_chains * ladder.num_gradients
        assert found["value"] == num_chains * (1 + ladder.num_moves)


@pytest.mark.slow
def test_one_compilation_per_shape_and_nothing_crosses_to_the_host():
    target, num_traces = problems.lopsided(), 0

    @jax.jit
    def run(key, q, ladder):
        nonlocal num_traces
        num_traces += 1
        return anneal(key, q, target.log_joint, ladder).log_weight

    def plan(schedule, size):
        ladder = Ladder(schedule(4), jnp.full(4, size), HMC(2))
        return jax.random.key(0), DiagonalNormal(jnp.full(1, size), jnp.ones(1)), ladder

    for schedule, size in ((schedules.linear, 0.1), (schedules.immediate, 0.2)):
        jax.block_until_ready(run(*plan(schedule, size)))
    assert num_traces == 1
    arguments = jax.block_until_ready(plan(schedules.sigmoid, 0.3))
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(run(*arguments))
    jaxpr = str(jax.make_jaxpr(run)(*arguments))
    assert "callback" not in jaxpr
    assert "scan" in jaxpr
