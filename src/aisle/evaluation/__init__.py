"""log p(x) with a certificate, draws from the posterior, and of what is missing."""

from aisle.evaluation.comparing import Comparison, compare
from aisle.evaluation.imputation import impute
from aisle.evaluation.log_likelihood import log_likelihood
from aisle.evaluation.planning import Plan
from aisle.evaluation.posterior import sample_posterior
from aisle.evaluation.results import LogLikelihood, Round
from aisle.evaluation.sampler import Certificate, ImportanceSampler, Sampler

__all__ = [
    "Certificate",
    "Comparison",
    "ImportanceSampler",
    "LogLikelihood",
    "Plan",
    "Round",
    "Sampler",
    "compare",
    "impute",
    "log_likelihood",
    "sample_posterior",
]
