"""The exact models of bits are normalised, and find the law that made the data."""

import itertools

import numpy as np
import pytest

from applications.core import baselines

PATTERNS = np.array(list(itertools.product((0, 1), repeat=5)))


@pytest.fixture(scope="module")
def chain():
    """Return bits of which each repeats the one before nine times in ten, in a mixed order."""
    random = np.random.default_rng(0)
    bits = [random.random(2000) < 0.5]
    for _ in range(4):
        bits.append(bits[-1] ^ (random.random(2000) < 0.1))
    return np.stack(bits, axis=1)[:, [2, 0, 4, 1, 3]].astype(np.uint8)


def test_all_patterns_together_have_probability_one(chain):
    models = [
        baselines.independent(chain),
        baselines.mixture(chain, chain, 3, 5),
        baselines.tree(chain),
    ]
    for model in models:
        assert np.exp(model.log_p(PATTERNS)).sum() == pytest.approx(1, abs=1e-9)


def test_the_tree_is_the_chain_that_made_the_data(chain):
    found = baselines.tree(chain, pseudocount=0.01)
    edges = {frozenset(edge) for edge in enumerate(found.parents) if edge[0] != edge[1]}
    assert edges == {frozenset(e) for e in [(1, 3), (3, 0), (0, 4), (4, 2)]}
    # Of the tree's likelihood, its pairs decide: no other tree has a higher one.
    counts = np.array([(chain == p).all(axis=1).mean() for p in PATTERNS])
    truth = 0.5 * np.prod(
        np.where(np.diff(PATTERNS[:, [1, 3, 0, 4, 2]], axis=1) == 0, 0.9, 0.1), axis=1
    )
    assert (counts * found.log_p(PATTERNS)).sum() > (counts * np.log(truth)).sum()


def test_independent_bits_have_the_columns_means(chain):
    model = baselines.independent(chain, pseudocount=0)
    assert model.probabilities[0] == pytest.approx(chain.mean(axis=0))


def test_em_separates_two_kinds():
    random = np.random.default_rng(1)
    kind = random.integers(0, 2, 3000)
    p = np.array([[0.9, 0.9, 0.1, 0.1, 0.5], [0.1, 0.2, 0.8, 0.9, 0.5]])
    x = random.random((3000, 5)) < p[kind]
    truth = baselines.Mixture(np.log([0.5, 0.5]), p)
    found = baselines.mixture(x[:2000], x[2000:2500], 2, 50)
    gain = found.log_p(x[2500:]) - truth.log_p(x[2500:])
    assert abs(gain.mean()) < 4 * gain.std() / np.sqrt(500) and abs(gain.mean()) < 0.05
    order = np.argsort(-found.probabilities[:, 0])
    assert found.probabilities[order] == pytest.approx(p, abs=0.06)


def test_a_step_of_em_does_not_lower_the_likelihood():
    x = np.random.default_rng(2).integers(0, 2, (200, 4)).astype(float)
    model = baselines.Mixture(np.log([0.3, 0.7]), np.array([[0.2, 0.6, 0.4, 0.5], [0.7] * 4]))
    for _ in range(5):
        before, model = model, model.update(x, pseudocount=0.0)
        assert model.log_p(x).sum() >= before.log_p(x).sum()
