"""What a cell's training would take on this machine, from a few of its updates."""

import dataclasses
from typing import NamedTuple

import numpy as np

from aisle.data import load
from aisle.errors import Interrupted
from aisle.experiments import training
from aisle.experiments.cells import Cell
from aisle.learning.trainer import fit

# Updates to time, after as many to compile.
_UPDATES = 5


class Estimate(NamedTuple):
    """The cost of a cell's training."""

    updates: int
    decoder_gradients: int
    seconds: float


def estimate(cell: Cell) -> Estimate:
    """Time a few updates, and multiply."""
    config = training.complete(cell.config)
    dataset = load(config.data, config.observations.data_dir)
    batch_size = config.optimizer.batch_size
    few = dataset.train.take(np.arange(_UPDATES * batch_size))
    fitted = fit(
        *training.first_weights(config, dataset),
        few,
        num_epochs=2,
        binarize=config.observations.binarize,
        **dataclasses.asdict(config.method),
        **dataclasses.asdict(config.optimizer),
        show_progress=False,
    )
    if fitted.signal_number is not None:
        raise Interrupted(fitted.signal_number)
    updates = config.num_epochs * (len(dataset.train) // batch_size)
    first, last = (fitted.history[i] for i in (_UPDATES - 1, 2 * _UPDATES - 1))
    seconds, gradients = (last[name] - first[name] for name in ("seconds", "decoder_gradients"))
    share = updates / _UPDATES
    return Estimate(updates, round(gradients * share), seconds * share)
