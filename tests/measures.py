"""The unit in which statistical tests measure: standard errors."""

import numpy as np


def z_score(samples, truth):
    """Return how many standard errors the mean of `samples` lies above `truth`."""
    samples = np.asarray(samples, np.float64)
    return (samples.mean() - truth) / (samples.std(ddof=1) / np.sqrt(len(samples)))
