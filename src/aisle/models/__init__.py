"""What has weights: generative models p(x, z) and proposals q(z|x)."""

from aisle.models.distributions import DiagonalNormal, PriorDistribution, PriorProposal
from aisle.models.linear_gaussian import LinearGaussian

__all__ = ["DiagonalNormal", "LinearGaussian", "PriorDistribution", "PriorProposal"]
