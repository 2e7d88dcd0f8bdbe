"""Bias and noise of vectors, told apart."""

import numpy as np
import pytest

from measures import z_score
from paper.gradients.bias import compare, squared_norm


def vectors(rng, number, mean, deviations):
    return mean + deviations * rng.normal(size=(number, len(mean)))


def simulate(num_repeats, num_parts, number=400, scale=0.5):
    """Compare vectors of known bias and noise, many times."""
    rng = np.random.default_rng(1)
    truth, bias = np.linspace(1, 2, 30), np.linspace(0.3, -0.2, 30)
    deviations = np.linspace(0.2, 0.6, 30)
    found = [
        compare(
            vectors(rng, num_repeats, truth + bias, deviations),
            vectors(rng, num_parts, truth, 0.7 * deviations),
            scale,
        )
        for _ in range(number)
    ]
    norm = truth @ truth
    return found, (bias @ bias / norm, scale * deviations @ deviations / norm)


@pytest.mark.slow
@pytest.mark.parametrize(("num_repeats", "num_parts"), [(5, 20), (20, 5)])
def test_bias_and_noise_are_right_on_average_and_so_are_their_errors(num_repeats, num_parts):
    """Whether the error is the estimator's or the reference's."""
    found, (bias, noise) = simulate(num_repeats, num_parts)
    for place, truth in ((0, bias), (1, noise), (2, bias + noise)):
        values, errors = np.array([comparison[place] for comparison in found]).T
        assert abs(z_score(values, truth)) < 4
        assert 0.8 < np.sqrt(np.mean(errors**2)) / values.std(ddof=1) < 1.5


def test_the_norm_is_free_of_noise():
    rng, truth = np.random.default_rng(2), np.linspace(1, 2, 30)
    found = [squared_norm(vectors(rng, 3, truth, np.full(30, 0.8))) for _ in range(400)]
    assert abs(z_score(found, truth @ truth)) < 4
