"""What a run may cost: gradients and values of log p, compilations, and nothing on the host."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import anneal, anneal_reverse, schedules
from aisle.experiments import problems
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


@pytest.mark.parametrize(("num_temperatures", "num_leapfrog"), [(1, 1), (3, 5)])
@pytest.mark.parametrize("last_move", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_gradients_and_values_per_chain(num_temperatures, num_leapfrog, last_move, direction):
    counts, num_chains = collections.Counter(), 3
    log_joint = counting_log_joint(counts)
    q = DiagonalNormal(jnp.zeros(2), jnp.ones(2))
    plan = (schedules.linear(num_temperatures), jnp.full(num_temperatures, 0.5), num_leapfrog)

    def chain(key):
        if direction == "forward":
            run = anneal(key, q, log_joint, *plan, last_move=last_move, refresh=0.5)
        else:
            run = anneal_reverse(
                key, q.sample(key), q, log_joint, *plan, last_move=last_move, refresh=0.5
            )
        return run.z, run.log_weight

    keys = jax.random.split(jax.random.key(0), num_chains)
    jax.block_until_ready(jax.jit(jax.vmap(chain))(keys))
    num_moves = num_temperatures - (not last_move)
    # Without a move no gradient is read at all; else the start costs one, each move L.
    wanted = 1 + num_moves * num_leapfrog if num_moves else 0
    assert counts["gradient"] == num_chains * wanted
    assert counts["value"] == num_chains * (1 + num_moves)


def test_one_compilation_per_shape():
    target, num_traces = problems.lopsided(), 0

    @jax.jit
    def run(key, q, betas, step_sizes, scale, refresh):
        nonlocal num_traces
        num_traces += 1
        return anneal(
            key, q, target.log_joint, betas, step_sizes, 2, scale=scale, refresh=refresh
        ).log_weight

    for i, schedule in enumerate(("linear", "sigmoid", "immediate")):
        betas = schedules.named(schedule, 4)
        q = DiagonalNormal(jnp.full(1, 0.1 * i), jnp.ones(1))
        run(jax.random.key(i), q, betas, jnp.full(4, 0.1 * i), jnp.full(1, 0.5), 1 / (i + 1))
    assert num_traces == 1
    run(jax.random.key(0), q, schedules.linear(5), jnp.ones(5), jnp.ones(1), 1.0)
    assert num_traces == 2


def test_nothing_crosses_to_the_host_inside_a_run():
    target = problems.lopsided()
    run = jax.jit(
        lambda key, betas, sizes: anneal(key, target.wide, target.log_joint, betas, sizes, 2)
    )
    plan = (jax.random.key(0), schedules.linear(4), jnp.ones(4))
    jax.block_until_ready(run(*plan))
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(run(*plan))
    jaxpr = str(jax.make_jaxpr(run)(*plan))
    assert "callback" not in jaxpr
    assert "scan" in jaxpr
