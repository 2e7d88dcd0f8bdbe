"""The sampler: it sees log-densities and pytrees, never a network."""

from aisle.annealing.ais import Annealed, AnnealInfo, anneal, anneal_reverse
from aisle.annealing.kernel import Kernel
from aisle.annealing.weights import effective_sample_size, log_mean_exp, normalised_weights

__all__ = [
    "AnnealInfo",
    "Annealed",
    "Kernel",
    "anneal",
    "anneal_reverse",
    "effective_sample_size",
    "log_mean_exp",
    "normalised_weights",
]
