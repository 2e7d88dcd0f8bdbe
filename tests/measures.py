"""What statistical tests measure by."""

import numpy as np


def z_score(samples, truth):
    """Return how many standard errors the mean of `samples` lies above `truth`."""
    samples = np.asarray(samples, np.float64)
    return (samples.mean() - truth) / (samples.std(ddof=1) / np.sqrt(len(samples)))


def log_mean_exp(values, axis):
    """Return the logarithm of a mean of exponentials, in double precision."""
    values = np.asarray(values, np.float64)
    highest = values.max(axis, keepdims=True)
    return np.log(np.mean(np.exp(values - highest), axis)) + highest.squeeze(axis)
