import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import HMC, Ladder, anneal, schedules
from aisle.annealing.tuning import interpolated, nudge, pilot
from aisle.evaluation import problems
from measures import z_score


def test_nudge_follows_the_papers_rule():
    sizes = jnp.array([0.1, 0.1, 0.3, 0.001])
    acceptance = jnp.array([0.7, 0.5, 0.9, 0.1])
    np.testing.assert_allclose(nudge(sizes, acceptance), [0.1002, 0.0998, 0.3, 0.001], rtol=1e-6)


# Not made inside a compilation: it is kept.
TARGET = problems.narrow_normal()


def run(keys, step_sizes):
    """Anneal chains to a narrow normal."""
    ladder = Ladder(schedules.linear(4), step_sizes, HMC(3))
    return jax.vmap(lambda k: anneal(k, TARGET.wide, TARGET.log_joint, ladder))(keys)


@eqx.filter_jit
def acceptance(key, step_sizes):
    return run(jax.random.split(key, 100), step_sizes).info.acceptance.mean(axis=0)


@eqx.filter_jit
def reached(key, step_sizes):
    return acceptance_of_many(jax.random.split(key, 40), step_sizes).mean(axis=0)


acceptance_of_many = jax.vmap(acceptance, in_axes=(0, None))


@eqx.filter_jit
def tune(key, step_sizes):
    return pilot(key, acceptance, step_sizes, target=0.7)


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.003, 0.3, 5.0])
def test_pilot_reaches_the_target_from_afar(start):
    tuned = tune(jax.random.key(0), jnp.full(4, start))
    np.testing.assert_allclose(reached(jax.random.key(1), tuned), 0.7, atol=0.04)


@pytest.mark.slow
def test_nudge_reaches_the_target_in_time():
    @jax.jit
    def nudged(sizes, keys):
        def update(sizes, key):
            return nudge(sizes, acceptance(key, sizes), target=0.8, largest=2.0), None

        return jax.lax.scan(update, sizes, keys)[0]

    sizes = nudged(jnp.full(4, 0.2), jax.random.split(jax.random.key(2), 800))
    np.testing.assert_allclose(reached(jax.random.key(3), sizes), 0.8, atol=0.04)


@pytest.mark.slow
def test_frozen_step_sizes_keep_the_estimate_unbiased():
    sizes = tune(jax.random.key(0), jnp.full(4, 0.3))
    keys = jax.random.split(jax.random.key(9), 20_000)
    assert abs(z_score(jnp.exp(jax.jit(run)(keys, sizes).log_weight), 1)) < 4


def test_step_sizes_of_other_temperatures_are_read_off_the_known_ones():
    known, sizes = jnp.array([0.0, 0.2, 0.6, 1.0]), jnp.array([0.4, 0.1, 0.2])
    found = interpolated(jnp.array([0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]), known, sizes)
    np.testing.assert_allclose(found, [0.4, 0.4, 0.2, 0.1, 0.02**0.5, 0.2], rtol=1e-5)
