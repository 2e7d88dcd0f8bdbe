"""The sampler: it sees log-densities and pytrees, never a network."""

from aisle.annealing import schedules
from aisle.annealing.ais import (
    Annealed,
    AnnealInfo,
    Ladder,
    anneal,
    anneal_reverse,
    anneal_with_states,
)
from aisle.annealing.hmc import HMC
from aisle.annealing.kernel import Kernel
from aisle.annealing.transition import MoveInfo, Transition
from aisle.annealing.weights import effective_sample_size, log_mean_exp, normalised_weights

__all__ = [
    "HMC",
    "AnnealInfo",
    "Annealed",
    "Kernel",
    "Ladder",
    "MoveInfo",
    "Transition",
    "anneal",
    "anneal_reverse",
    "anneal_with_states",
    "effective_sample_size",
    "log_mean_exp",
    "normalised_weights",
    "schedules",
]
