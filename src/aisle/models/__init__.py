"""What has weights: generative models p(x, z) and proposals q(z|x)."""

from aisle.models.distributions import (
    DiagonalNormal,
    FullNormal,
    PriorDistribution,
    PriorProposal,
)
from aisle.models.iwae_study import one_layer, two_layer
from aisle.models.linear_gaussian import LinearGaussian

__all__ = [
    "DiagonalNormal",
    "FullNormal",
    "LinearGaussian",
    "PriorDistribution",
    "PriorProposal",
    "one_layer",
    "two_layer",
]
