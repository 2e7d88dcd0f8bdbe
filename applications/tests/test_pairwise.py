"""The pairwise model: its fit finds the law that made the data, and annealing its normaliser."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from applications.neurons import pairwise

NUMBER = 6
PATTERNS = np.array(list(itertools.product((0.0, 1.0), repeat=NUMBER)))


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(0)
    couplings = np.triu(random.normal(size=(NUMBER, NUMBER)), 1)
    return pairwise.Pairwise(random.normal(size=NUMBER) - 1, couplings + couplings.T)


def test_the_fit_finds_the_law_that_made_the_data(model):
    energy = model.energy(PATTERNS)
    p = np.exp(energy - logsumexp(energy))
    rows = np.random.default_rng(1).choice(len(PATTERNS), 20_000, p=p)
    found = pairwise.fit(PATTERNS[rows], penalty=0.0)
    log_p = found.energy(PATTERNS) - pairwise.log_normaliser(found).mean
    # 21 parameters: twice the divergence is chi-squared over the number of rows for the maximum of
    # the likelihood, and a little more for that of the pseudo-likelihood.
    assert 0 <= (p * (np.log(p) - log_p)).sum() < 3 * 21 / (2 * 20_000)


def test_annealing_finds_the_normaliser(model, monkeypatch):
    exact = pairwise.log_normaliser(model)
    monkeypatch.setattr(pairwise, "_MOST_SUMMED", 0)
    found = pairwise.log_normaliser(model, chains=2000, steps=20)
    assert found.standard_error < 0.05
    assert abs(found.mean - exact.mean) < 4 * found.standard_error
