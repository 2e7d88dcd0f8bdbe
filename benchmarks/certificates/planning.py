"""Gradients to a certified tolerance: planned, and by doubling T as version 0.1 did."""

import argparse

import numpy as np

import aisle
from aisle.evaluation.examples import num_gradients, num_gradients_both_ways
from aisle.statistics import CLEAR
from benchmarks.certificates.shared import (
    KERNEL,
    NUM_CHAINS,
    Case,
    Study,
    each,
    examples_of,
    networks,
)

# Simulated examples that both begin with, and the T that doubling begins with.
_SIMULATED, _FIRST = 50, 500


def cases(options: argparse.Namespace) -> Study:
    """Yield cases of model and way."""

    def run(name: str, way: str, tolerance: float, number: int) -> Case:
        return WAYS[way](name, number, tolerance)

    values = {"model": options.models, "way": options.ways, "tolerance": [options.tolerance]}
    return each(run, options.num_examples, values)


def planned(name: str, number: int, tolerance: float) -> Case:
    """Evaluate as `aisle evaluate --tolerance` does, without another option."""
    x, train = examples_of(name, number)
    result = aisle.log_likelihood(
        *networks(name),
        x,
        certificate=aisle.Certificate(_SIMULATED, tolerance),
        pilot_x=train,
        report=print,
    )
    plan = result.plan
    assert plan is not None
    found = described(result, result.decoder_gradients, bool(result.is_tolerance_reached))
    return found | {
        "is_refitted": plan.is_refitted,
        "is_careful": plan.is_careful,
        "least_by_doubling": least_by_doubling(number),
        "of_10000": of_many(result.num_temperatures, plan.num_simulated, 10_000),
        # Of double sampling: a short run of all, and one in ten at length.
        "of_10000_by_30": of_many(result.num_temperatures, plan.num_simulated, 1000)
        + of_many(30, 0, 10_000),
    }


def of_many(temperatures: int, simulated: int, number: int) -> int:
    """Count what so many examples would take at the same T."""
    sizes = (temperatures, KERNEL.transition.num_gradients, NUM_CHAINS)
    return number * num_gradients(*sizes) + simulated * num_gradients_both_ways(*sizes)


def least_by_doubling(number: int) -> int:
    """Count what doubling takes where its first two rounds do, the fewest that it can end after."""
    per_move = KERNEL.transition.num_gradients
    return sum(
        number * num_gradients(T, per_move, NUM_CHAINS)
        + _SIMULATED * num_gradients_both_ways(T, per_move, NUM_CHAINS)
        for T in (_FIRST, 2 * _FIRST)
    )


def doubled(name: str, number: int, tolerance: float, most: int = 8000) -> Case:
    """Double T until gap and change are small."""
    x, train = examples_of(name, number)
    model, proposal = networks(name)
    temperatures, simulated, spent, before = _FIRST, _SIMULATED, 0, None
    while True:
        result = aisle.log_likelihood(
            model,
            proposal,
            x,
            sampler=aisle.Sampler(NUM_CHAINS, temperatures),
            certificate=aisle.Certificate(simulated),
            pilot_x=train,
        )
        spent += result.decoder_gradients
        gap = result.gap
        assert gap is not None
        is_small = gap.mean + CLEAR * gap.standard_error < tolerance
        if before is not None and is_small and abs(result.mean - before) < tolerance:
            return described(result, spent, True)
        if temperatures >= most:
            return described(result, spent, False)
        is_noise = gap.mean < tolerance / 2 <= CLEAR * gap.standard_error
        simulated, temperatures = simulated * (4 if is_noise else 1), 2 * temperatures
        before = result.mean


def described(result: aisle.LogLikelihood, gradients: int, is_reached: bool) -> Case:
    """Return what an evaluation found, as plain values."""
    assert result.gap is not None
    return {
        "T": result.num_temperatures,
        "log_p": result.estimate._asdict(),
        "gap": result.gap._asdict(),
        "doubtful": float(np.mean(result.is_doubtful)),
        "rounds": len(result.rounds),
        "gradients": gradients,
        "seconds": sum(each.seconds for each in result.rounds),
        "is_reached": is_reached,
    }


WAYS = {"planned": planned, "doubled": doubled}
