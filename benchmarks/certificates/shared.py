"""What the studies share: recorded models, and walks over examples."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import aisle
from aisle.annealing import Kernel
from aisle.data import spread
from aisle.evaluation import pilot
from aisle.evaluation.work import Job, preferred_examples, walk

CELLS = Path(__file__).parents[2] / "results" / "tables" / "cells"
MODELS = {
    "mnist": ("mnist-ais-T11-K5", "mnist"),
    "omniglot": ("omniglot-ais-T11-K5", "omniglot"),
    "two layers": ("mnist-two-layer-annealed-start", "mnist"),
}
NUM_CHAINS, KERNEL = 16, Kernel.tuned(is_long=True)

# What is asked and what was found, as plain values; a study yields cases with how to find them.
Case = dict[str, Any]
Study = Iterator[tuple[Case, Callable[[], Case]]]


def each(run: Callable[..., Case], num_examples: int, values: Mapping[str, Sequence[Any]]) -> Study:
    """Yield a case for each combination of values, with the call that finds its result."""
    for chosen in itertools.product(*values.values()):
        case = dict(zip(values, chosen, strict=True)) | {"num_examples": num_examples}
        yield case, functools.partial(run, *chosen, num_examples)


def networks(name: str) -> tuple[Any, Any]:
    """Return a recorded model with its encoder."""
    return aisle.load(CELLS / f"{MODELS[name][0]}.safetensors")


def examples_of(name: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return test examples of a model's data, and others to tune on."""
    sets = aisle.data.load(MODELS[name][1])
    chosen = ((sets.test, number), (sets.train, pilot.NUM_EXAMPLES))
    test, train = (np.asarray(part.observe(spread(len(part), n))) for part, n in chosen)
    return test, train


def tuned(name: str, proposal: Any, kernel: Kernel, number: int) -> aisle.Ladder:
    """Return a ladder whose step sizes are tuned on training examples."""
    model, _ = networks(name)
    _, train = examples_of(name, 1)
    sizes = pilot.tune(jax.random.key(1), model, proposal, train, kernel, number)
    return kernel.ladder(number, sizes, last_move=False)


def simulated(
    function: Callable[..., Any],
    shared: tuple[Any, Any, aisle.Ladder, int],
    num_examples: int,
    seed: int = 2,
) -> dict[str, np.ndarray]:
    """Compute something of examples that are simulated from a model."""
    _, _, ladder, num_chains = shared
    size = preferred_examples(num_chains, ladder.num_gradients)
    every = np.arange(num_examples)
    job = Job("", function, shared, jax.random.key(seed), None, every, 0, size)
    return walk(job, show_progress=False).numbers
