"""What a decoder's output says about x: the likelihoods p(x|z), by families."""

from aisle.models.likelihoods.base import Likelihood, Units, constants_of, floats
from aisle.models.likelihoods.bits import Bernoulli
from aisle.models.likelihoods.categories import Categorical
from aisle.models.likelihoods.columns import Columns
from aisle.models.likelihoods.counts import (
    Counts,
    NegativeBinomial,
    Poisson,
    ZeroInflatedNegativeBinomial,
)
from aisle.models.likelihoods.real import Gaussian, StudentT
from aisle.models.likelihoods.shares import Beta, LogitNormal

# Families by the names that are typed where no object can be. One more has one line more here, and
# passes the contract tests.
FAMILIES: dict[str, type[Likelihood]] = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "gaussian": Gaussian,
    "student-t": StudentT,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
    "zero-inflated": ZeroInflatedNegativeBinomial,
    "logit-normal": LogitNormal,
    "beta": Beta,
}
# Those of whole numbers, which have probabilities; the others have densities.
WHOLE = frozenset({"bernoulli", "categorical", "poisson", "negative-binomial", "zero-inflated"})

__all__ = [
    "FAMILIES",
    "WHOLE",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Columns",
    "Counts",
    "Gaussian",
    "Likelihood",
    "LogitNormal",
    "NegativeBinomial",
    "Poisson",
    "StudentT",
    "Units",
    "ZeroInflatedNegativeBinomial",
    "constants_of",
    "floats",
]
