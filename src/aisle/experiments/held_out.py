"""What comparisons on a trained run are made on."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from aisle.data import spread
from aisle.evaluation.pilot import NUM_EXAMPLES
from aisle.experiments import evaluating
from aisle.experiments.options import EvaluateConfig
from aisle.experiments.training import Run, check_data
from aisle.learning.observations import observe_rows


class HeldOut(NamedTuple):
    """Examples of a run's data.

    Attributes:
        indices: numbers of the test examples, spread evenly.
        x: those examples.
        pilot_x: training examples to tune step sizes on.
    """

    indices: Int[np.ndarray, " examples"]
    x: Float[Array, "examples ..."]
    pilot_x: Float[Array, "others ..."]


def held_out(run: Run, num_examples: int, data_dir: Path | None) -> HeldOut:
    """Load a run's data, and choose from them."""
    dataset = evaluating.dataset_of(run, EvaluateConfig(data_dir=data_dir))
    binarize = run.config.observations.binarize
    check_data(dataset, run.config)
    indices = spread(len(dataset.test), num_examples)
    others = spread(len(dataset.train), NUM_EXAMPLES)
    return HeldOut(
        indices,
        observe_rows(dataset.test, indices, binarize),
        observe_rows(dataset.train, others, binarize),
    )
