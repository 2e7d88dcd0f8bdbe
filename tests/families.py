"""Every family of likelihoods with the laws it should have, for the contract tests.

A family of one's own joins `CASES` and inherits all of them.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats

from aisle.models.likelihoods import (
    Bernoulli,
    Beta,
    Categorical,
    Columns,
    Gaussian,
    LogitNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
    ZeroInflatedNegativeBinomial,
)

NUM_EXAMPLES = 400


@dataclass(frozen=True)
class Case:
    """A family, and what is known of it from elsewhere.

    Attributes:
        fit: returns (likelihood, output) for training examples.
        columns: training examples.
        laws: returns a law of scipy's for each feature, given a likelihood and an output.
        marginal: returns the law that a fit to one column should have; one for each column where
            these differ.
        wrong: values outside the support.
    """

    fit: Callable
    columns: np.ndarray
    laws: Callable
    marginal: Callable | tuple[Callable, ...]
    wrong: tuple[float, ...]


@dataclass(frozen=True)
class Inflated:
    """A negative binomial law that is set to zero with a probability."""

    lost: float
    kept: object

    def logpmf(self, x):
        return np.log(self.lost * (np.asarray(x) == 0) + (1 - self.lost) * self.kept.pmf(x))

    def cdf(self, x):
        return self.lost + (1 - self.lost) * self.kept.cdf(x)

    def mean(self):
        return (1 - self.lost) * self.kept.mean()


@dataclass(frozen=True)
class OfLogits:
    """The law of x whose logits have a normal law."""

    normal: object

    def logpdf(self, x):
        return self.normal.logpdf(np.log(x / (1 - x))) - np.log(x * (1 - x))

    def cdf(self, x):
        return self.normal.cdf(np.log(x / (1 - x)))

    def mean(self):
        def term(y):
            return self.normal.pdf(y) / (1 + np.exp(-y))

        return scipy.integrate.quad(term, *self.normal.interval(1 - 1e-14))[0]


def array(values):
    return np.asarray(values, np.float64)


def each(law, *parameters):
    return [law(*p) for p in zip(*parameters, strict=True)]


def sigmoid(values):
    return 1 / (1 + np.exp(-array(values)))


def clipped_bits(column):
    return scipy.stats.bernoulli(np.clip(column.mean(), 0.001, 0.999))


def categories(likelihood, output):
    """Read logits as `Categorical` says they are: by the number of levels, then by level."""
    laws, start = [None] * likelihood.num_features, 0
    levels = np.asarray(likelihood.num_levels)
    for number in np.unique(levels):
        (features,) = np.nonzero(levels == number)
        block = array(output)[start : start + number * len(features)]
        start += len(block)
        shares = np.exp(block.reshape(number, -1))
        for feature, share in zip(features, (shares / shares.sum(0)).T, strict=True):
            laws[feature] = discrete(share)
    return laws


def discrete(shares):
    return scipy.stats.rv_discrete(values=(np.arange(len(shares)), shares))


def clipped_shares(column):
    counts = np.bincount(column.astype(int))
    shares = np.maximum(counts / counts.sum(), 0.001)
    return discrete(shares / shares.sum())


def in_units(likelihood, location, scale):
    if likelihood.units is None:
        return array(location), array(scale)
    units = likelihood.units
    return array(units.location) + array(units.scale) * location, array(units.scale) * scale


def normals(likelihood, output):
    output = array(output)
    if likelihood.log_scale is None:
        location, log_scale = np.split(output, 2)
    else:
        location, log_scale = output, array(likelihood.log_scale)
    return each(scipy.stats.norm, *in_units(likelihood, location, np.exp(log_scale)))


def normal_fit(column):
    return scipy.stats.norm(column.mean(), column.std())


def student(likelihood, output):
    location, scale = in_units(likelihood, array(output), np.exp(array(likelihood.log_scale)))
    degrees = np.exp(array(likelihood.log_degrees))
    return each(scipy.stats.t, degrees, location, scale)


def student_fit(column):
    """Match the median, and the ranges of one half and of 95 % of the values."""
    low, first, median, third, high = np.quantile(column, [0.025, 0.25, 0.5, 0.75, 0.975])

    def excess(degrees):
        law = scipy.stats.t(degrees)
        return (high - low) / (third - first) - law.ppf(0.975) / law.ppf(0.75)

    degrees = scipy.optimize.brentq(excess, 1, 100)
    return scipy.stats.t(degrees, median, (third - first) / (2 * scipy.stats.t(degrees).ppf(0.75)))


def negative_binomial(mean, theta):
    return scipy.stats.nbinom(theta, theta / (theta + mean))


def dispersed(likelihood, output):
    thetas = np.exp(array(likelihood.log_inverse_dispersion))
    return each(negative_binomial, np.exp(array(output)), thetas)


def dispersed_fit(column):
    mean = column.mean()
    return negative_binomial(mean, mean**2 / (column.var() - mean))


def inflated(likelihood, output):
    log_mean, logit = np.split(array(output), 2)
    kept = dispersed(likelihood, log_mean)
    return each(Inflated, sigmoid(logit), kept)


def inflated_fit(column):
    """Solve for the three parameters that have the mean, the second moment and the zeros of x."""

    def law(point):
        log_mean, log_theta, logit = point
        return sigmoid(logit), np.exp(log_mean), np.exp(log_theta)

    def excess(point):
        lost, mean, theta = law(point)
        return [
            (1 - lost) * mean - column.mean(),
            (1 - lost) * (mean + mean**2 + mean**2 / theta) - np.mean(column**2),
            lost + (1 - lost) * (theta / (theta + mean)) ** theta - np.mean(column == 0),
        ]

    found = scipy.optimize.root(excess, [np.log(column[column > 0].mean()), 1.0, -1.0], tol=1e-12)
    assert found.success
    lost, mean, theta = law(found.x)
    return Inflated(lost, negative_binomial(mean, theta))


def of_logits(likelihood, output):
    return [OfLogits(law) for law in normals(likelihood, output)]


def of_logits_fit(column):
    return OfLogits(normal_fit(np.log(column / (1 - column))))


def betas(likelihood, output):
    mean, concentration = sigmoid(output), np.exp(array(likelihood.log_concentration))
    return each(scipy.stats.beta, mean * concentration, (1 - mean) * concentration)


def beta_fit(column):
    mean, variance = column.mean(), column.var()
    concentration = mean * (1 - mean) / variance - 1
    return scipy.stats.beta(mean * concentration, (1 - mean) * concentration)


def poissons(likelihood, output):
    return [scipy.stats.poisson(mean) for mean in np.exp(array(output))]


RANDOM = np.random.default_rng(0)
SIZE = (NUM_EXAMPLES, 3)
NORMAL = RANDOM.normal([3.0, -1.0, 0.0], [0.5, 200.0, 1e-3], SIZE)
COUNTS = RANDOM.negative_binomial([2.0, 0.5, 8.0], [0.1, 0.2, 0.5], SIZE).astype(float)
LOST = np.where(RANDOM.random(SIZE) < 0.3, 0, RANDOM.negative_binomial(4.0, 0.2, SIZE))
SHARES = RANDOM.beta([2.0, 0.8, 30.0], [5.0, 0.7, 4.0], SIZE)
LETTERS = RANDOM.integers(0, [4, 2, 4, 7], (NUM_EXAMPLES, 4)).astype(float)
NOT_FINITE = (np.nan, np.inf, -np.inf)
NO_COUNTS = (-1.0, 0.5, *NOT_FINITE)
NO_SHARES = (0.0, 1.0, -0.1, 1.5, *NOT_FINITE)

# Of columns that are neither neighbours nor in order.
KINDS = [(Categorical, [4, 2]), (Gaussian, [0]), (NegativeBinomial, [1, 3])]


def mixed(likelihood, output):
    """Return the laws of the parts, each with its stretch of the output, by columns."""
    laws, start = {}, 0
    for part, find, (_, columns) in zip(
        likelihood.parts, (categories, normals, dispersed), KINDS, strict=True
    ):
        found = find(part, output[start : start + part.num_outputs])
        laws |= dict(zip(columns, found, strict=True))
        start += part.num_outputs
    return [laws[column] for column in range(5)]


CASES = {
    "bernoulli": Case(
        Bernoulli.fitted,
        (RANDOM.random(SIZE) < [0.3, 0.9, 0.0]).astype(float),
        lambda _, output: [scipy.stats.bernoulli(p) for p in sigmoid(output)],
        clipped_bits,
        (0.5, 2.0, -1.0, *NOT_FINITE),
    ),
    "categorical": Case(
        Categorical.fitted,
        LETTERS,
        categories,
        clipped_shares,
        (-1.0, 0.5, 7.0, *NOT_FINITE),
    ),
    "gaussian": Case(Gaussian.fitted, NORMAL, normals, normal_fit, NOT_FINITE),
    "gaussian, scale of z": Case(
        functools.partial(Gaussian.fitted, scale="of z"),
        NORMAL,
        normals,
        normal_fit,
        NOT_FINITE,
    ),
    "gaussian without units": Case(
        lambda x: (Gaussian(x.shape[1]), np.nanmean(x, axis=0)),
        NORMAL / NORMAL.std(axis=0),
        normals,
        lambda column: scipy.stats.norm(column.mean(), 1),
        NOT_FINITE,
    ),
    "student-t": Case(
        StudentT.fitted,
        RANDOM.standard_t([2.0, 4.0, 8.0], SIZE) * [0.5, 200.0, 1e-3] + [3.0, 0.0, -1.0],
        student,
        student_fit,
        NOT_FINITE,
    ),
    "poisson": Case(
        Poisson.fitted,
        RANDOM.poisson([0.2, 4.0, 60.0], SIZE).astype(float),
        poissons,
        lambda column: scipy.stats.poisson(column.mean()),
        NO_COUNTS,
    ),
    "negative-binomial": Case(NegativeBinomial.fitted, COUNTS, dispersed, dispersed_fit, NO_COUNTS),
    "zero-inflated": Case(
        ZeroInflatedNegativeBinomial.fitted,
        LOST.astype(float),
        inflated,
        inflated_fit,
        NO_COUNTS,
    ),
    "logit-normal": Case(LogitNormal.fitted, SHARES, of_logits, of_logits_fit, NO_SHARES),
    "beta": Case(Beta.fitted, SHARES, betas, beta_fit, NO_SHARES),
    "columns": Case(
        functools.partial(Columns.fitted, parts=KINDS),
        np.stack([NORMAL[:, 1], COUNTS[:, 0], LETTERS[:, 3], COUNTS[:, 2], LETTERS[:, 0]], axis=1),
        mixed,
        (normal_fit, dispersed_fit, clipped_shares, dispersed_fit, clipped_shares),
        NO_COUNTS,
    ),
}

over_cases = pytest.mark.parametrize("name", CASES)
# Where each family is a program of its own to compile.
QUICK = ("bernoulli", "gaussian")
over_few_cases = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in CASES]
)
