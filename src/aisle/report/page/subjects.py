"""A run opened for a page: what its folder says, its weights, its data and its commands."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from aisle.data import Dataset
from aisle.learning.estimators import METHODS
from aisle.learning.observations import observe_rows
from aisle.report.page.reading import Evaluation, Folder
from aisle.types import Model, Proposal


class Origin(NamedTuple):
    """How an evaluation came about.

    Attributes:
        split: of the data.
        update: of the weights.
        command: that evaluates the same.
        data: what it is of if not of the run's own data, or None.
    """

    split: str
    update: int
    command: str
    data: str | None = None


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

    @property
    def has_chains(self) -> bool:
        """Return whether its method runs chains."""
        name = str(self.method["method"])
        return name in METHODS and METHODS[name].has_chains

    @property
    def test_evaluations(self) -> list[Evaluation]:
        """Return its evaluations of test examples that say most of it, the newest first.

        They are of its own data and the weights that it has now. If there are none, they are of
        its own data; if there are none of those either, of data that are not known; else of others.
        """
        tests = [e for e in self.folder.evaluations if self._split(e).startswith("test")]
        best = min(map(self._distance, tests), default=0)
        return [e for e in tests if self._distance(e) == best]

    def _split(self, evaluation: Evaluation) -> str:
        origin = self.origin(evaluation)
        return evaluation.path.name if origin is None else origin.split

    def _distance(self, evaluation: Evaluation) -> int:
        origin = self.origin(evaluation)
        if origin is None:
            return 2
        if origin.data is not None:
            return 3
        return int(origin.update != self.update)

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
        return observe_rows(part, indices, self.binarize)


def short_names(paths: Sequence[Path]) -> list[str]:
    """Name runs by their folders, with the whole path where two are called the same."""
    names = [path.name or path.resolve().name for path in paths]
    counts = Counter(names)
    return [
        name if counts[name] == 1 else str(path) for name, path in zip(names, paths, strict=True)
    ]
