import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

from paper.figure1 import target
from paper.figure1.target import CorrelatedNormal, divergence, proposal_divergence

TARGET = CorrelatedNormal(0.95)
COVARIANCE = np.array([[1, 0.95], [0.95, 1]])


def exact_draws(seed, number, mean=(0.0, 0.0)):
    return np.random.default_rng(seed).multivariate_normal(mean, COVARIANCE, number)


def test_target_density_and_draws():
    points = np.random.default_rng(0).normal(size=(20, 2))
    own = jax.vmap(TARGET.log_prob)(jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(own, multivariate_normal(cov=COVARIANCE).logpdf(points), rtol=1e-4)
    draws = jax.vmap(TARGET.sample)(jax.random.split(jax.random.key(0), 20_000))
    np.testing.assert_allclose(np.cov(np.asarray(draws).T), COVARIANCE, atol=0.04)


def test_whitening_makes_the_target_standard():
    white = TARGET.whiten(np.linalg.cholesky(COVARIANCE).T)
    np.testing.assert_allclose(white.T @ white, np.eye(2), atol=1e-12)


def test_the_proposal_is_the_best_independent_normal():
    """KL(q || p) is 1.164 there, and more for any other scales."""

    def distance(scales):
        covariance = np.diag(np.square(scales))
        inverse = np.linalg.inv(COVARIANCE)
        log_ratio = np.linalg.slogdet(COVARIANCE)[1] - np.linalg.slogdet(covariance)[1]
        return (np.trace(inverse @ covariance) - 2 + log_ratio) / 2

    q = TARGET.mean_field()
    best = distance(np.asarray(q.scale, float))
    assert abs(best - 1.16395) < 1e-5
    for change in ((1.02, 1), (0.98, 1), (1, 1.02), (1.02, 1.02), (0.98, 0.98), (1.02, 0.98)):
        assert distance(np.asarray(q.scale) * change) > best


def test_bins_lose_little(monkeypatch):
    """The finer they are, the nearer to the KL of the densities, from below."""
    found = []
    for number in (8, 32, 128, 1024):
        monkeypatch.setattr(target, "BINS_PER_AXIS", number)
        found.append(proposal_divergence(TARGET))
    assert abs(found[1] - 1.1198) < 1e-4
    assert found == sorted(found)
    assert 0 < 1.16395 - found[-1] < 0.01


def shifted_divergence(shift):
    """Return the exact distance of the target moved along its long axis."""
    edges = ndtri(np.linspace(0, 1, target.BINS_PER_AXIS + 1))
    shares = np.diff(ndtr(edges - shift))
    return np.sum(shares * np.log(shares * target.BINS_PER_AXIS))


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.7])
def test_the_distance_is_right_and_so_is_its_error(shift):
    """Near 0 the standard error is too wide, by a factor of 1.4 or so, and never too narrow."""
    mean = np.full(2, shift * np.sqrt((1 + 0.95) / 2))
    found = [divergence(TARGET, exact_draws(seed, 20_000, mean)) for seed in range(40)]
    estimates, errors = np.array([(f.mean, f.standard_error) for f in found]).T
    assert abs(estimates.mean() - shifted_divergence(shift)) < 0.5 * errors.mean()
    assert 0.75 < errors.mean() / estimates.std(ddof=1) < 2
