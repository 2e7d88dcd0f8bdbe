import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import anneal, schedules
from aisle.annealing.tuning import nudge, pilot
from aisle.experiments import problems
from measures import z_score


def test_nudge_follows_the_papers_rule():
    sizes = jnp.array([0.1, 0.1, 0.3, 0.001])
    acceptance = jnp.array([0.7, 0.5, 0.9, 0.1])
    np.testing.assert_allclose(nudge(sizes, acceptance), [0.1002, 0.0998, 0.3, 0.001], rtol=1e-6)


@pytest.fixture(scope="module")
def acceptance():
    target, betas = problems.narrow_normal(), schedules.linear(8)

    @eqx.filter_jit
    def run(key, step_sizes):
        keys = jax.random.split(key, 200)
        chains = jax.vmap(lambda k: anneal(k, target.wide, target.log_joint, betas, step_sizes, 3))(
            keys
        )
        return chains.info.acceptance.mean(axis=0)

    return run


@pytest.mark.parametrize("start", [0.003, 0.3, 5.0])
def test_pilot_reaches_the_target_from_afar(acceptance, start):
    tuned = pilot(jax.random.key(0), acceptance, jnp.full(8, start), target=0.7)
    reached = jnp.stack([acceptance(k, tuned) for k in jax.random.split(jax.random.key(1), 20)])
    np.testing.assert_allclose(reached.mean(axis=0), 0.7, atol=0.04)


def test_nudge_reaches_the_target_in_time(acceptance):
    sizes = jnp.full(8, 0.1)

    @jax.jit
    def update(sizes, key):
        return nudge(sizes, acceptance(key, sizes), target=0.8, largest=2.0), None

    sizes, _ = jax.lax.scan(update, sizes, jax.random.split(jax.random.key(2), 1500))
    reached = jnp.stack([acceptance(k, sizes) for k in jax.random.split(jax.random.key(3), 20)])
    np.testing.assert_allclose(reached.mean(axis=0), 0.8, atol=0.04)


def test_frozen_step_sizes_keep_the_estimate_unbiased(acceptance):
    target, betas = problems.narrow_normal(), schedules.linear(8)
    sizes = pilot(jax.random.key(0), acceptance, jnp.full(8, 0.3), num_rounds=10)
    keys = jax.random.split(jax.random.key(9), 20_000)
    run = jax.vmap(lambda k: anneal(k, target.wide, target.log_joint, betas, sizes, 3).log_weight)
    assert abs(z_score(jnp.exp(jax.jit(run)(keys)), 1)) < 4
