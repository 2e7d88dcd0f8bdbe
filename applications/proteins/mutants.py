"""Scores of single mutants: log p(mutant) - log p(wild type) by a model, in three ways."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax
from scipy.stats import rankdata

import aisle
from applications.proteins.alignment import LETTERS, Alignment, Scan

# Draws of the posterior of the wild type; samples of each bound; chains of a mutant by itself.
DRAWS, SAMPLES, CHECKED = 500, 50, 50
_SAMPLER = aisle.Sampler(num_chains=8, num_temperatures=500)


class Scores(NamedTuple):
    """Scores of all mutants, with their Monte Carlo errors."""

    values: np.ndarray
    errors: np.ndarray


def rho(scores: np.ndarray, scan: Scan) -> float:
    """Return Spearman's rho: ranks are correlated, ties at their mean."""
    return float(np.corrcoef(rankdata(scores), rankdata(scan.effects))[0, 1])


def by_draws(networks: tuple[Any, Any], alignment: Alignment, scan: Scan, draws: int) -> Scores:
    """Score all mutants by one set of annealed draws of the posterior of the wild type.

    p(mutant) / p(wild type) is the mean of p(new letter | z) / p(old letter | z) over them.
    """
    model, proposal = networks
    z = aisle.sample_posterior(model, proposal, alignment.codes[:1], num_draws=draws)[0]
    logits = np.asarray(jax.vmap(model.decoder)(jnp.asarray(z)), float)
    log_p = log_softmax(logits.reshape(draws, len(LETTERS), -1), axis=1)
    wild = alignment.codes[0, scan.columns].astype(int)
    ratios = np.exp(log_p[:, scan.codes, scan.columns] - log_p[:, wild, scan.columns])
    means = ratios.mean(axis=0)
    return Scores(np.log(means), ratios.std(axis=0, ddof=1) / np.sqrt(draws) / means)


def by_bounds(
    networks: tuple[Any, Any], alignment: Alignment, scan: Scan, samples: int
) -> np.ndarray:
    """Score all mutants by differences of sampled ELBOs, as is usual for VAEs."""
    model, proposal = networks

    def bound(x: jax.Array) -> jax.Array:
        q = proposal(x)

        def one(key: jax.Array) -> jax.Array:
            z = q.sample(key)
            return model.log_prior(z) + model.log_likelihood(x, z) - q.log_prob(z)

        # The same noise for all, so that it cancels in differences.
        return jnp.mean(jax.vmap(one)(jax.random.split(jax.random.key(0), samples)))

    wild, every = jnp.asarray(alignment.codes[0]), jnp.asarray(mutants(alignment, scan))
    found = jax.jit(lambda every: jax.lax.map(bound, every))(every)
    return np.asarray(found - jax.jit(bound)(wild), float)


def one_by_one(
    networks: tuple[Any, Any], alignment: Alignment, scan: Scan, chosen: np.ndarray
) -> tuple[Scores, aisle.LogLikelihood]:
    """Score some mutants by the certified log p(x) of each and of the wild type."""
    some = mutants(alignment, scan)[chosen]
    x = np.concatenate([alignment.codes[:1], some])
    found = aisle.log_likelihood(*networks, x, sampler=_SAMPLER)
    errors = np.hypot(found.monte_carlo_error[1:], found.monte_carlo_error[0])
    return Scores(found.log_p[1:] - found.log_p[0], errors), found


def mutants(alignment: Alignment, scan: Scan) -> np.ndarray:
    """Return the codes of all mutants of the scan."""
    found = np.repeat(alignment.codes[:1], len(scan.effects), axis=0)
    found[np.arange(len(found)), scan.columns] = scan.codes
    return found
