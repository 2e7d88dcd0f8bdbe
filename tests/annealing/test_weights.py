import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import effective_sample_size, log_mean_exp, normalised_weights

INF = jnp.inf


@pytest.mark.parametrize("shift", [0.0, 1000.0, -1000.0])
def test_helpers_agree_with_their_definitions_at_any_level(shift):
    logs = jnp.log(jnp.array([1.0, 2.0, 5.0])) + shift
    assert log_mean_exp(logs) == pytest.approx(np.log(8 / 3) + shift, rel=1e-6)
    np.testing.assert_allclose(normalised_weights(logs), [1 / 8, 2 / 8, 5 / 8], rtol=2e-4)
    assert effective_sample_size(logs) == pytest.approx(64 / 30, rel=1e-3)


def test_a_zero_weight_counts_as_a_sample():
    logs = jnp.array([0.0, -INF])
    assert log_mean_exp(logs) == pytest.approx(-np.log(2))
    np.testing.assert_array_equal(normalised_weights(logs), [1, 0])
    assert effective_sample_size(logs) == 1


def test_no_weight_at_all():
    logs = jnp.array([-INF, -INF])
    assert log_mean_exp(logs) == -INF
    np.testing.assert_array_equal(normalised_weights(logs), [0, 0])
    assert effective_sample_size(logs) == 0


def test_equal_weights_have_full_sample_size():
    assert effective_sample_size(jnp.full(7, -300.0)) == pytest.approx(7)


def test_nan_is_not_hidden():
    logs = jnp.array([0.0, jnp.nan])
    assert jnp.isnan(log_mean_exp(logs))
    assert jnp.all(jnp.isnan(normalised_weights(logs)))
