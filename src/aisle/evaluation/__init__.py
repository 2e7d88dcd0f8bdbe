"""Log-likelihoods with a certificate, and the distributions that samplers define."""

from aisle.evaluation.implicit import sample_posterior
from aisle.evaluation.log_likelihood import log_likelihood
from aisle.evaluation.results import LogLikelihood, Round

__all__ = ["LogLikelihood", "Round", "log_likelihood", "sample_posterior"]
