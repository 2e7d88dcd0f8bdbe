"""What must hold of log p(x) of trained tables: it sums to one, and knows the units of columns."""

import itertools

import numpy as np
import pytest

import aisle
from aisle.data import Dataset, Split, read_table
from aisle.runs.networks import build
from aisle.runs.options import ModelOptions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_compilation", "one_device")]

TINY = ModelOptions(num_latents=2, hidden="8")
NUM_CHAINS = 32


def trained(table, num_updates=200):
    """Train for long enough that all weights have moved."""
    split = Split(table.values)
    dataset = Dataset("x", split, None, split, table.values.shape[1:], "x", table)
    networks = build(TINY, dataset, seed=1)
    options = {"method": aisle.IWAE(5), "optimizer": aisle.Adam(0.02), "num_updates": num_updates}
    return aisle.fit(*networks, table.values, batch_size=50, show_progress=False, **options)


def evaluated(fitted, x):
    return aisle.log_likelihood(
        fitted.model,
        fitted.proposal,
        x,
        sampler=aisle.Sampler(num_chains=NUM_CHAINS, num_temperatures=30),
        certificate=aisle.Certificate(100),
        show_progress=False,
    )


def test_probabilities_of_all_rows_sum_to_one():
    random = np.random.default_rng(0)
    region = random.integers(0, 3, 400)
    bits = (
        random.random((400, 3))
        < np.array([[0.9, 0.1, 0.5], [0.2, 0.8, 0.5], [0.1, 0.1, 0.9]])[region]
    )
    names = np.array(["north", "south", "west"])[region]
    table = read_table({"region": names} | {f"bit{i}": bits[:, i].astype(int) for i in range(3)})
    assert [column.kind for column in table.columns] == ["category", "bit", "bit", "bit"]
    states = np.array(list(itertools.product(range(3), *[range(2)] * 3)), float)
    result = evaluated(trained(table, 1500), states)
    shares = np.exp(result.log_p.astype(float))
    # The latents carry what one column says of another: 0.9 less 0.1 in the data.
    given = [np.average(states[of, 1], weights=shares[of]) for of in (states[:, :1] == [0, 2]).T]
    assert given[0] - given[1] > 0.4
    # A mean of weights is p(x) on average, with this relative variance.
    variances = 1 / result.effective_sample_size - 1 / NUM_CHAINS
    error = np.sqrt(np.sum(shares**2 * variances))
    assert error < 0.01
    assert abs(shares.sum() - 1) < 4 * error + 1e-5
    assert result.gap.mean < 4 * result.gap.standard_error + 0.01


def test_log_p_of_a_trained_table_is_in_the_units_of_its_columns():
    random = np.random.default_rng(0)
    size, visits = random.normal(1.7, 0.1, 200), random.poisson(3.0, 200)
    found = []
    for unit in (1.0, 1000.0):
        table = read_table({"size": unit * size, "visits": visits})
        found.append(evaluated(trained(table), table.values[:5]).log_p)
    np.testing.assert_allclose(found[0] - np.log(1000), found[1], atol=0.01)
