"""A run opened for a page: what its folder says, its weights, its data and its commands."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from aisle.data import Dataset
from aisle.learning.observations import observe_all
from aisle.report.page.reading import Evaluation, Folder
from aisle.types import Model, Proposal


class Origin(NamedTuple):
    """How an evaluation came about: of which examples of the run's own data, at which update."""

    split: str
    update: int
    command: str


class Subject(NamedTuple):
    """A run to be shown.

    Attributes:
        update: of the weights.
        shape: of one example.
        dataset: that it was trained on, or None if it is not at hand.
        problem: why it is not.
        binarize: how its examples become observations.
        train_command: that trains the same.
        evaluate_command: that would evaluate it.
        origins: of its evaluations, by the name of their folder, as far as they are known.
    """

    folder: Folder
    update: int
    shape: tuple[int, ...]
    model: Model
    proposal: Proposal
    dataset: Dataset | None
    problem: str
    binarize: str
    train_command: str
    evaluate_command: str
    origins: dict[str, Origin]

    @property
    def data_name(self) -> str:
        """Return what its data are called."""
        config = self.folder.config
        return str(config["data"].get("name", config["train"]["data"]))

    @property
    def shell_path(self) -> str:
        """Return its folder as a word of a command."""
        return shlex.quote(str(self.folder.path))

    @property
    def method(self) -> dict[str, Any]:
        """Return the settings of its method."""
        return self.folder.config["train"]["method"]

    def origin(self, evaluation: Evaluation) -> Origin | None:
        """Return how one of its evaluations came about, if that is known."""
        return self.origins.get(evaluation.path.name)

    def observations(self, split: str, indices: np.ndarray) -> Array | None:
        """Return examples as its model sees them, or None if the data at hand do not have them."""
        if self.dataset is None:
            return None
        part = self.dataset.train if split == "train" else self.dataset.test
        if not len(indices) or max(indices) >= len(part):
            return None
        stored = jnp.asarray(part.take(indices))
        return observe_all(stored, jnp.asarray(indices), self.binarize)


def short_names(paths: Sequence[Path]) -> list[str]:
    """Name runs by their folders, with the whole path where two are called the same."""
    names = [path.name or path.resolve().name for path in paths]
    counts = Counter(names)
    return [
        name if counts[name] == 1 else str(path) for name, path in zip(names, paths, strict=True)
    ]
