import numpy as np

from aisle.statistics import Mean, double_sampled, is_ahead, summarise


def test_a_mean_prints_with_its_error_by_as_many_digits_as_asked():
    mean = Mean(-1.0, 0.0625, 9)
    assert str(mean) == f"{mean}" == "-1.00 +- 0.06"
    assert f"{mean:.3f}" == "-1.000 +- 0.062"


def test_summarise():
    mean, error, number = summarise(np.array([1.0, 2.0, 3.0, 6.0]))
    assert (mean, number) == (3.0, 4)
    np.testing.assert_allclose(error, np.sqrt((4 + 1 + 0 + 9) / 3 / 4))
    alone = summarise(np.array([-7.0]))
    assert (alone.mean, alone.num_examples) == (-7.0, 1)
    assert np.isnan(alone.standard_error)


def test_double_sampling_by_hand():
    cheap = np.array([1.0, 2.0, 3.0, 6.0])
    found = double_sampled(np.array([2.0, 5.0]), np.array([0, 2]), cheap)
    # Differences 1 and 2 with the variance 1/2; 2 and 5 have the variance 9/2.
    assert (found.mean, found.num_examples) == (3.0 + 1.5, 4)
    np.testing.assert_allclose(found.standard_error, np.sqrt(4.5 / 4 + 0.5 * (1 / 2 - 1 / 4)))


def test_double_sampling_of_everything_is_the_mean():
    values = np.array([2.0, 5.0, 11.0])
    found = double_sampled(values, np.arange(3), np.array([0.0, 7.0, 1.0]))
    np.testing.assert_allclose(found, summarise(values))


def test_the_error_of_double_sampling_is_that_of_repeated_studies():
    generator = np.random.default_rng(0)
    found = []
    for _ in range(2000):
        values = generator.normal(3.0, 2.0, 400)
        cheap = values - 1.0 + generator.normal(0.0, 0.5, 400)
        chosen = np.arange(40) * 10
        found.append(double_sampled(values[chosen], chosen, cheap))
    means, errors = np.array([(one.mean, one.standard_error) for one in found]).T
    error = means.std(ddof=1)
    assert abs(means.mean() - 3.0) < 4 * error / np.sqrt(2000)
    # The standard deviation of 2,000 normal values is known to 1.6 %.
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2)), error, rtol=4 * 0.016)


def test_double_sampling_of_little_has_no_error_to_show():
    alone = double_sampled(np.array([2.0]), np.array([1]), np.array([0.0, 1.0]))
    assert alone.mean == 1.5
    assert np.isnan(alone.standard_error)
    impossible = double_sampled(np.array([2.0, -np.inf]), np.arange(2), np.array([0.0, -np.inf]))
    assert np.isnan(impossible.standard_error)


def test_a_lead_must_exceed_the_gap_by_two_errors():
    gap = Mean(0.2, 0.04, 9)
    assert is_ahead(Mean(0.31, 0.03, 9), gap)
    assert not is_ahead(Mean(0.29, 0.03, 9), gap)
    # A gap below zero is luck, and no lead of its own.
    assert not is_ahead(Mean(0.09, 0.03, 9), Mean(-0.2, 0.04, 9))
    assert not is_ahead(Mean(9.0, 0.03, 9), None)
    assert not is_ahead(Mean(9.0, float("nan"), 9), gap)
