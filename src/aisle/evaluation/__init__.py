"""log p(x) with a certificate, and draws from the posterior."""

from aisle.evaluation.log_likelihood import log_likelihood
from aisle.evaluation.posterior import sample_posterior
from aisle.evaluation.results import LogLikelihood, Round
from aisle.evaluation.sampler import Certificate, ImportanceSampler, Sampler

__all__ = [
    "Certificate",
    "ImportanceSampler",
    "LogLikelihood",
    "Round",
    "Sampler",
    "log_likelihood",
    "sample_posterior",
]
