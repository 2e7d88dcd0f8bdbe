"""Bits that exclude each other are found, and their categories lose nothing."""

import itertools

import numpy as np
import pytest

from applications.density import __main__ as density
from applications.density.exclusive import Exclusive

PATTERNS = np.array(list(itertools.product((0, 1), repeat=6)), np.uint8)


def rows(number):
    """Return rows of which columns 0, 2 and 5 exclude each other; 1 and 3 are never 1 together."""
    random = np.random.default_rng(0)
    x = (random.random((number, 6)) < 0.4).astype(np.uint8)
    one = random.integers(0, 4, number)
    x[:, [0, 2, 5]] = np.arange(3) == one[:, None]
    x[x[:, 1] == 1, 3] = 0
    return x


def test_columns_that_exclude_each_other_are_one_group():
    assert Exclusive.found(rows(600)).groups == ((0, 2, 5), (1, 3), (4,))
    # Once together is together.
    broken = rows(600)
    broken[0, [0, 2]] = 1
    assert (0, 2, 5) not in Exclusive.found(broken).groups


def test_columns_that_are_apart_by_chance_are_no_group():
    # Of 40 rows, two columns would both be 1 in fewer than 20.
    assert not Exclusive.found(rows(40)).has_any


def test_all_patterns_together_have_probability_one():
    exclusive = Exclusive.found(rows(600))
    codes = exclusive.codes(PATTERNS)
    assert exclusive.num_levels == [5, 4, 2]
    assert (codes < exclusive.num_levels).all()
    random = np.random.default_rng(1)
    p = [random.dirichlet(np.ones(levels)) for levels in exclusive.num_levels]
    log_p = sum(np.log(p[f][codes[:, f]]) for f in range(3)) + exclusive.log_share(codes)
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-12)


def test_what_training_rows_have_costs_nothing():
    exclusive = Exclusive.found(rows(600))
    codes = exclusive.codes(rows(600))
    assert (exclusive.log_share(codes) == 0).all()
    assert len(np.unique(codes, axis=0)) == len(np.unique(rows(600), axis=0))


def test_a_set_is_seen_in_both_forms():
    x = rows(600)
    forms = density.forms(density.Splits(x, x[:9], PATTERNS))
    likelihood, _ = forms["categories"].likelihood
    assert likelihood.num_levels == (5, 4, 2)
    assert forms["categories"].data.test.shape == (64, 3)
    assert forms["categories"].lacks.test.min() == pytest.approx(-np.log(4))
    assert (forms["bits"].lacks.test == 0).all() and forms["bits"].data.test is PATTERNS
    assert set(density.forms(density.made_up())) == {"bits"}
