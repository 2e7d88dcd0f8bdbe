"""What has weights: generative models p(x, z) and proposals q(z|x)."""

from aisle.models.distributions import DiagonalNormal, PriorDistribution, PriorProposal
from aisle.models.doors import from_flax, from_numpyro, from_torch, to_torch
from aisle.models.iwae_study import one_layer, two_layer
from aisle.models.latent import convolutional_model, mlp_model
from aisle.models.likelihoods import (
    FAMILIES,
    WHOLE,
    Bernoulli,
    Beta,
    Categorical,
    Columns,
    Gaussian,
    Likelihood,
    LogitNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
    ZeroInflatedNegativeBinomial,
)
from aisle.models.linear_gaussian import LinearGaussian
from aisle.models.networks import transposed_kernel
from aisle.models.use import encode, reconstruct, sample

__all__ = [
    "FAMILIES",
    "WHOLE",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Columns",
    "DiagonalNormal",
    "Gaussian",
    "Likelihood",
    "LinearGaussian",
    "LogitNormal",
    "NegativeBinomial",
    "Poisson",
    "PriorDistribution",
    "PriorProposal",
    "StudentT",
    "ZeroInflatedNegativeBinomial",
    "convolutional_model",
    "encode",
    "from_flax",
    "from_numpyro",
    "from_torch",
    "mlp_model",
    "one_layer",
    "reconstruct",
    "sample",
    "to_torch",
    "transposed_kernel",
    "two_layer",
]
