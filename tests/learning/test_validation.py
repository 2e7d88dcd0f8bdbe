import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.learning.validation import importance_bounds, make_validation
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.statistics import summarise
from aisle.types import Scalar
from measures import z_score

# With one latent the posterior is a diagonal normal, and so can be a proposal.
MODEL = LinearGaussian(jnp.array([[1.0], [-0.5], [2.0]]), jnp.array([0.2, 0.0, -1.0]), jnp.log(0.8))
X = jnp.array([1.2, -0.4, 0.9])
XS = X[None] + jnp.linspace(-2, 2, 7)[:, None] * jnp.array([[1.0, -0.3, 0.5]])


class Posterior(eqx.Module):
    """The exact posterior, shifted by a part of its scale and widened."""

    shift: Scalar
    wider: Scalar

    def __call__(self, x):
        exact = MODEL.mean_field_posterior(x)
        return DiagonalNormal(exact.loc + self.shift * exact.scale, self.wider * exact.scale)


EXACT = Posterior(jnp.array(0.0), jnp.array(1.0))
# All weights are bounded, as it is wider than the target.
WRONG = Posterior(jnp.array(0.6), jnp.array(1.8))

bounds_of = eqx.filter_jit(importance_bounds)


@pytest.fixture(scope="module")
def bounds():
    """Bounds of 8,000 copies of one example, by K."""
    copies = jnp.tile(X, (8000, 1))
    return {
        k: np.asarray(bounds_of(jax.random.key(0), MODEL, WRONG, copies, k), float) for k in (1, 16)
    }


def test_one_sample_gives_the_evidence_lower_bound(bounds):
    divergence = -np.log(1.8) + (1.8**2 + 0.6**2 - 1) / 2
    assert abs(z_score(bounds[1], float(MODEL.log_marginal(X)) - divergence)) < 4


def test_the_bound_comes_up_to_the_truth_from_below(bounds):
    truth = float(MODEL.log_marginal(X))
    gaps = [truth - bounds[k].mean() for k in (1, 16)]
    assert all(z_score(bounds[k], truth) < -4 for k in (1, 16))
    assert 0 < 8 * gaps[1] < gaps[0]


def test_the_exponential_is_unbiased(bounds):
    for k in (1, 16):
        assert abs(z_score(np.exp(bounds[k] - float(MODEL.log_marginal(X))), 1)) < 4


def test_the_exact_proposal_gives_the_exact_answer():
    found = bounds_of(jax.random.key(0), MODEL, EXACT, XS, 4)
    np.testing.assert_allclose(found, jax.vmap(MODEL.log_marginal)(XS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [3, 8])
def test_tiles_do_not_matter(size):
    """Neither tiles of samples, with some left over, nor tiles of examples."""
    wanted = bounds_of(jax.random.key(0), MODEL, WRONG, XS, 4)
    found = bounds_of(jax.random.key(0), MODEL, WRONG, XS, 4, samples_per_tile=size)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_draws_depend_on_the_place_only():
    key = jax.random.key(0)
    wanted = bounds_of(key, MODEL, WRONG, XS, 4)
    others = jnp.concatenate([XS[4:], XS[3:4], XS[:3]])
    np.testing.assert_allclose(bounds_of(key, MODEL, WRONG, others, 4)[3], wanted[3], rtol=1e-5)
    same = bounds_of(key, MODEL, WRONG, jnp.tile(X, (7, 1)), 4)
    assert len(np.unique(np.asarray(same))) == 7
    again = bounds_of(jax.random.key(1), MODEL, WRONG, XS, 4)
    assert np.all(np.asarray(again) != np.asarray(wanted))
    np.testing.assert_allclose(bounds_of(key, MODEL, WRONG, XS[:3], 4), wanted[:3], rtol=1e-5)


def test_make_validation_summarises_the_same_bounds():
    found = make_validation(XS, 4)(jax.random.key(0), MODEL, WRONG)
    wanted = np.asarray(bounds_of(jax.random.key(0), MODEL, WRONG, XS, 4), float)
    np.testing.assert_allclose(found, summarise(wanted), rtol=1e-5)
