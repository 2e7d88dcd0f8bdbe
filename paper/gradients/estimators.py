"""The estimators that are compared: where their chains pass, and how the ends are weighted."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from paper.core.chains import Betas, normalised_weights, schedules

# Presets of the chains, that of the paper first.
KERNELS = ("paper", "tuned")

Shares = Float[Array, " samples"]

# From the number of transitions to the inverse temperatures that they pass.
CHAIN_SCHEDULES: dict[str, Callable[[int], Betas]] = {
    "immediate": schedules.immediate,
    "linear": schedules.linear,
    "ramp25": partial(schedules.ramp, share=1 / 4),
    "ramp50": partial(schedules.ramp, share=1 / 2),
    "ramp75": partial(schedules.ramp, share=3 / 4),
}

# From the log-weights of K chains to the shares that they get.
WEIGHTINGS: dict[str, Callable[[Shares], Shares]] = {
    "weights": normalised_weights,
    "root": lambda log_weights: normalised_weights(log_weights / 2),
    "equal": lambda log_weights: jnp.full_like(log_weights, 1 / len(log_weights)),
}


class Estimator(NamedTuple):
    """Where the chains pass, and how their ends are averaged."""

    schedule: str
    weighting: str


ESTIMATORS = {
    "mh-hmc": Estimator("immediate", "equal"),
    "mh-hmc, weighted": Estimator("immediate", "weights"),
    "ais": Estimator("linear", "weights"),
    "ais, root of weights": Estimator("linear", "root"),
    "ais, equal weights": Estimator("linear", "equal"),
    "1/4 ais, then hmc": Estimator("ramp25", "weights"),
    "1/2 ais, then hmc": Estimator("ramp50", "weights"),
    "3/4 ais, then hmc": Estimator("ramp75", "weights"),
    "1/4 ais, then hmc, equal weights": Estimator("ramp25", "equal"),
    "1/2 ais, then hmc, equal weights": Estimator("ramp50", "equal"),
    "3/4 ais, then hmc, equal weights": Estimator("ramp75", "equal"),
}


class EstimatorResult(NamedTuple):
    """What is known of one estimator with one kernel; squares are shares of the squared norm.

    Attributes:
        kernel: paper or tuned.
        num_temperatures: T of the paper's kernel, which sets the cost.
        num_transitions: that this kernel makes for it, each of `num_leapfrog` steps.
        gradients: of log p(x, z) that one example costs.
        squared_total: bias and noise together, the mean squared error of an update.
        log_joint_bias: mean of log p(x, z) less its posterior mean, in nats.
        log_joint_error: its standard error over the examples.
    """

    kernel: str
    num_temperatures: int
    num_transitions: int
    num_leapfrog: int
    estimator: str
    gradients: int
    squared_bias: float
    squared_bias_error: float
    squared_noise: float
    squared_noise_error: float
    squared_total: float
    squared_total_error: float
    log_joint_bias: float
    log_joint_error: float
    effective_sample_size: float
    acceptance: float
