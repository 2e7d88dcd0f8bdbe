"""Errors and tails of weights, against other implementations and laws."""

import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import psis_weights

from aisle.annealing import effective_sample_size
from aisle.evaluation.diagnostics import is_doubtful, monte_carlo_errors, pareto_shapes


def test_the_error_is_that_of_the_mean_weight():
    weights = np.array([[1.0, 2.0, 3.0, 6.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 5.0]])
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    sizes = np.array([effective_sample_size(jnp.asarray(row)) for row in logs])
    wanted = weights.std(1, ddof=1) / 2 / weights.mean(1)
    np.testing.assert_allclose(monte_carlo_errors(sizes, 4), wanted, rtol=1e-5, atol=1e-5)
    # One chain says nothing of its error, and chains without weight neither.
    assert np.isnan(monte_carlo_errors(np.ones(1), 1)).all()
    assert not np.isfinite(monte_carlo_errors(np.zeros(1), 4)).any()


def test_the_error_is_right_for_many_repeats():
    draws = np.random.default_rng(0).normal(0, 0.5, (20_000, 16))
    weights = np.exp(draws)
    sizes = weights.sum(1) ** 2 / (weights**2).sum(1)
    found = np.log(weights.mean(1)).std()
    assert np.sqrt(np.mean(monte_carlo_errors(sizes, 16) ** 2)) == pytest.approx(found, rel=0.03)


@pytest.mark.slow
def test_shapes_are_those_of_pareto_smoothed_importance_sampling():
    logs = np.random.default_rng(25).normal(-1000, [[0.3], [1.0], [4.0]], (3, 25))
    others = [float(psis_weights(jnp.asarray(row, jnp.float32))[1]) for row in logs]
    np.testing.assert_allclose(pareto_shapes(np.float32(logs)), others, atol=2e-3)


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.9])
def test_shapes_of_pareto_laws_are_found(shape):
    """The tail, 54 of 324 weights, is exactly of the law; the prior draws it towards 0.5."""
    places = (np.arange(324) + 0.5) / 324
    weights = 10 + ((1 - places) ** -shape - 1) / shape
    found = pareto_shapes(np.log(weights)[None, ::-1])[0]
    assert found == pytest.approx((54 * shape + 5) / 64, abs=0.06)


def test_too_few_chains_and_equal_weights_have_no_shape():
    assert np.isnan(pareto_shapes(np.zeros((2, 9)))).all()
    assert np.isnan(pareto_shapes(np.zeros((2, 16)))).all()
    few = pareto_shapes(np.random.default_rng(0).normal(size=(3, 10)))
    assert np.isfinite(few).all()


def test_doubtful_is_a_large_error_or_a_heavy_tail_that_matters_or_none_at_all():
    errors = np.array([0.05, 0.05, 0.3, 0.3, 0.3, 0.6, np.nan])
    shapes = np.array([0.3, 0.9, 0.3, 0.9, np.nan, 0.3, 0.3])
    found = is_doubtful(errors, shapes)
    assert found.tolist() == [False, False, False, True, False, True, True]
