"""What tests measure by: standard errors, and programs that were compiled."""

from contextlib import contextmanager

import jax
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


@contextmanager
def compilations():
    """Yield a list that grows by each program that XLA is given."""
    found = []

    def listen(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
