"""Sums of p(x) over all patterns of a few bits, of models that each method trained."""

import argparse
import math
from pathlib import Path

import jax
import numpy as np

import aisle
from aisle.statistics import summarise
from applications.core.files import data_file, split_rows
from benchmarks.certificates.shared import Case, Study

METHODS: dict[str, aisle.Method] = {
    "vae": aisle.VAE(),
    "iwae": aisle.IWAE(5),
    "dreg": aisle.DReG(5),
    "mh-hmc": aisle.MHHMC(1, 11),
    "ais": aisle.AIS(1, 11),
}
# Chains of any length have weights that are right on average. Patterns of the training data have
# more of them, as most of the sum and so of its error is theirs.
MANY_CHAINS, FEW_CHAINS, NUM_TEMPERATURES = 64, 4, 20
KERNEL = aisle.Kernel.tuned(schedule=aisle.schedules.sigmoid)

Splits = tuple[np.ndarray, np.ndarray, np.ndarray]


def cases(options: argparse.Namespace) -> Study:
    """Yield cases of data and methods."""
    for data, read in (("nltcs", nltcs), ("15 neurons", neurons)):
        for name in METHODS:
            yield (
                {"data": data, "method": name, "updates": options.updates},
                lambda read=read, name=name: total(read(options.data), name, options.updates),
            )


def nltcs(data: Path | None) -> Splits:
    """Read 16 answers of each person, in the published splits."""
    with np.load(data_file("binary/nltcs.npz", data)) as file:
        return file["train"], file["valid"], file["test"]


def neurons(data: Path | None) -> Splits:
    """Read words of 15 neurons."""
    with np.load(data_file("spikes/words.npz", data)) as file:
        words = file["neurons15"]
    train, valid, test = (words[rows] for rows in split_rows(len(words)))
    return train, valid, test


def total(splits: Splits, method: str, updates: int) -> Case:
    """Train a model, and sum its p(x) over all patterns."""
    train, valid, test = splits
    num_bits = train.shape[1]
    networks = aisle.one_layer(jax.random.key(0), train.mean(0), num_latents=4, num_hidden=64)
    fitted = aisle.fit(
        *networks,
        train,
        method=METHODS[method],
        optimizer=aisle.Adam(1e-3),
        held_out=valid,
        num_updates=updates,
    )
    patterns = np.arange(2**num_bits)
    log_p, errors = np.empty(len(patterns)), np.empty(len(patterns))
    is_seen = np.isin(patterns, codes(train))
    for chosen, num_chains in ((is_seen, MANY_CHAINS), (~is_seen, FEW_CHAINS)):
        found = _log_p(fitted, patterns[chosen], num_bits, num_chains, valid)
        log_p[chosen], errors[chosen] = found.log_p, found.monte_carlo_error
    p = np.exp(log_p)
    return {
        "num_patterns": len(p),
        "num_seen": int(is_seen.sum()),
        "sum": float(p.sum()),
        "sum_of_seen": float(p[is_seen].sum()),
        # Patterns are independent, so their variances add.
        "standard_error": math.sqrt(np.sum((p * errors) ** 2)),
        "test_log_p": summarise(log_p[codes(test)])._asdict(),
    }


def codes(bits: np.ndarray) -> np.ndarray:
    """Return the number of each pattern."""
    return bits @ (1 << np.arange(bits.shape[1]))


def _log_p(
    fitted: aisle.Fitted, patterns: np.ndarray, num_bits: int, num_chains: int, pilot_x: np.ndarray
) -> aisle.LogLikelihood:
    bits = (patterns[:, None] >> np.arange(num_bits)) & 1
    return aisle.log_likelihood(
        fitted.model,
        fitted.proposal,
        bits.astype(pilot_x.dtype),
        sampler=aisle.Sampler(num_chains, NUM_TEMPERATURES, KERNEL),
        certificate=aisle.Certificate(0),
        pilot_x=pilot_x,
        indices=patterns,
        seed=num_chains,
    )
