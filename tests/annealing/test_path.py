import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing.path import Path, evaluate, gradient, log_density, log_ratio
from aisle.evaluation import problems


@pytest.fixture
def path():
    problem = problems.linear_gaussian().posterior
    return Path(problem.narrow.log_prob, problem.log_joint)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_a_temperature_read_off_a_point_equals_the_mixture_evaluated_anew(path, beta):
    z = jnp.array([0.3, -1.0, 2.0])
    beta = jnp.float32(beta)

    def mixture(z):
        return (1 - beta) * path.log_q(z) + beta * path.log_p(z)

    @jax.jit
    def both():
        point = evaluate(path, z)
        found = log_density(point, beta), gradient(point, beta), log_ratio(point)
        return found, (mixture(z), jax.grad(mixture)(z), path.log_p(z) - path.log_q(z))

    for found, wanted in zip(*both(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_latents_may_be_any_pytree(path):
    z = {"low": jnp.array([0.3, -1.0]), "high": (jnp.array([2.0]),)}

    def flat(tree):
        return jnp.concatenate([tree["low"], tree["high"][0]])

    tree_path = Path(lambda t: path.log_q(flat(t)), lambda t: path.log_p(flat(t)))
    point, flat_point = jax.jit(lambda: (evaluate(tree_path, z), evaluate(path, flat(z))))()
    assert point.log_p == flat_point.log_p
    np.testing.assert_array_equal(flat(point.grad_log_p), flat_point.grad_log_p)


def test_an_end_without_a_share_has_no_say():
    outside = Path(lambda z: -jnp.sum(z**2), lambda z: jnp.where(jnp.sum(z) > 0, 0.0, -jnp.inf))
    point = evaluate(outside, jnp.array([-1.0]))
    assert log_density(point, jnp.float32(0)) == -1
    assert log_density(point, jnp.float32(0.5)) == -jnp.inf
