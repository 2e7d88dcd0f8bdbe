"""The pairwise (Ising) model of bits, fitted by pseudo-likelihood, with its normaliser."""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from aisle.statistics import Mean

# Patterns that are summed, and not sampled: at most 2 to the power of this.
_MOST_SUMMED = 16


class Pairwise(NamedTuple):
    """log p(x) = fields . x + x' couplings x / 2 - log Z, couplings symmetric, 0 with itself."""

    fields: np.ndarray
    couplings: np.ndarray

    def energy(self, x: np.ndarray) -> np.ndarray:
        """Return log p(x) + log Z of each row."""
        return x @ self.fields + 0.5 * ((x @ self.couplings) * x).sum(axis=1)

    def pseudo_log_p(self, x: np.ndarray) -> float:
        """Return the mean over rows of the sum of log p of each bit given all others."""
        logits = self.fields + x @ self.couplings
        return float((x * logits - np.logaddexp(0, logits)).sum(axis=1).mean())


def fit(x: np.ndarray, penalty: float) -> Pairwise:
    """Maximise the pseudo-likelihood, less half the penalty on squared couplings."""
    x = x.astype(np.float64)
    number = x.shape[1]
    upper = np.triu_indices(number, 1)

    def model(values: np.ndarray) -> Pairwise:
        couplings = np.zeros((number, number))
        couplings[upper] = values[number:]
        return Pairwise(values[:number], couplings + couplings.T)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        one = model(values)
        wrong = expit(one.fields + x @ one.couplings) - x
        slope = wrong.T @ x / len(x)
        gradient = np.concatenate([wrong.mean(axis=0), (slope + slope.T)[upper]])
        gradient[number:] += penalty * values[number:]
        return -one.pseudo_log_p(x) + 0.5 * penalty * (values[number:] ** 2).sum(), gradient

    first = np.zeros(number + len(upper[0]))
    first[:number] = logit(np.clip(x.mean(axis=0), 1e-4, 1 - 1e-4))
    return model(minimize(loss, first, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x)


def log_normaliser(model: Pairwise, chains: int = 1000, steps: int = 1000, seed: int = 0) -> Mean:
    """Return log Z: by a sum over all patterns, or else by annealing with Gibbs sweeps."""
    number = len(model.fields)
    if number <= _MOST_SUMMED:
        patterns = np.array(list(itertools.product((0.0, 1.0), repeat=number)))
        return Mean(float(np.logaddexp.reduce(model.energy(patterns))), 0.0, len(patterns))
    log_weights = anneal(model, chains, steps, seed)
    log_z = float(np.logaddexp.reduce(log_weights) - np.log(chains))
    weights = np.exp(log_weights - log_z)
    return Mean(log_z, float(weights.std(ddof=1) / np.sqrt(chains)), chains)


def anneal(model: Pairwise, chains: int, steps: int, seed: int) -> np.ndarray:
    """Return log-weights of chains from independent bits; the mean of their exponentials is Z."""
    random, number = np.random.default_rng(seed), len(model.fields)
    x = (random.random((chains, number)) < expit(model.fields)).astype(np.float64)
    # Fields are those of the model at each temperature, and couplings grow.
    log_weights = np.full(chains, np.logaddexp(0, model.fields).sum())
    for beta in np.linspace(0, 1, steps + 1)[1:]:
        log_weights += 0.5 * ((x @ model.couplings) * x).sum(axis=1) / steps
        for i in range(number):
            p = expit(model.fields[i] + beta * (x @ model.couplings[i]))
            x[:, i] = random.random(chains) < p
    return log_weights
