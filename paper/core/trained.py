"""A trained run as the subject of a study, and the folder that keeps the study's results."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from aisle.data import spread
from aisle.evaluation import Certificate, LogLikelihood, Sampler, log_likelihood
from aisle.evaluation.folders import claim, digest, load_arrays, save_arrays
from aisle.evaluation.pilot import NUM_EXAMPLES
from aisle.evaluation.results import as_json
from aisle.files import remove_leftovers
from aisle.runs import commands, evaluating
from aisle.runs.opening import open_run
from aisle.runs.options import EvaluateConfig
from aisle.types import Model, Proposal
from paper.core.chains import Preset

__all__ = [
    "LogLikelihood",
    "Subject",
    "as_json",
    "claim_folder",
    "digest",
    "estimate_log_p",
    "load_arrays",
    "open_subject",
    "save_arrays",
]


class Subject(NamedTuple):
    """A trained model with examples to study it on.

    Attributes:
        update: number of updates made.
        command: that trains the same.
        indices: numbers of the test examples, spread evenly.
        x: those examples.
        pilot_x: training examples to tune step sizes on.
    """

    path: Path
    update: int
    model: Model
    proposal: Proposal
    command: str
    indices: Int[np.ndarray, " examples"]
    x: Float[Array, "examples ..."]
    pilot_x: Float[Array, "others ..."]


def open_subject(path: Path, num_examples: int, data_dir: Path | None) -> Subject:
    """Open a run at its newest checkpoint, with examples of its data."""
    run = open_run(path)
    assert run.config is not None
    config = EvaluateConfig(data_dir=data_dir)
    split, others = evaluating.parts(run, config, evaluating.dataset_of(run, config))
    assert others is not None
    indices = spread(len(split), num_examples)
    return Subject(
        path,
        run.update,
        run.model,
        run.proposal,
        # For others to read, so it names no folder of this machine.
        commands.train_anywhere(run.config),
        indices,
        split.observe(indices),
        others.observe(spread(len(others), NUM_EXAMPLES)),
    )


def claim_folder(folder: Path, settings: dict[str, Any], parts_name: str) -> None:
    """Make a folder for a study, or check that it is one of the same settings.

    What a killed process left half written in it, or in its folder of parts, is removed.
    """
    claim(folder, settings)
    for place in (folder, folder / parts_name):
        remove_leftovers(place)


def estimate_log_p(
    subject: Subject,
    *,
    num_chains: int,
    num_temperatures: int,
    preset: Preset,
    seed: int,
    out: Path,
    show_progress: bool,
    bdmc_examples: int = 100,
) -> LogLikelihood:
    """Estimate log p(x) of each example with a certificate, or resume the estimate in `out`."""
    return log_likelihood(
        subject.model,
        subject.proposal,
        subject.x,
        sampler=Sampler(num_chains, num_temperatures, preset.library_kernel),
        certificate=Certificate(bdmc_examples),
        pilot_x=subject.pilot_x,
        indices=subject.indices,
        seed=seed,
        out=out,
        show_progress=show_progress,
    )
