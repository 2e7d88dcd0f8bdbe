import numpy as np

from aisle.statistics import summarise


def test_summarise():
    mean, error, number = summarise(np.array([1.0, 2.0, 3.0, 6.0]))
    assert (mean, number) == (3.0, 4)
    np.testing.assert_allclose(error, np.sqrt((4 + 1 + 0 + 9) / 3 / 4))
    alone = summarise(np.array([-7.0]))
    assert (alone.mean, alone.num_examples) == (-7.0, 1)
    assert np.isnan(alone.standard_error)
