"""Exact models of bits, to compare with: independent bits, a mixture of those, a tree."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

_Choice = TypeVar("_Choice")


class Mixture(NamedTuple):
    """A mixture of products of Bernoulli laws; of one component, independent bits.

    Attributes:
        log_shares: of the components.
        probabilities: of a one, by component and column.
    """

    log_shares: np.ndarray
    probabilities: np.ndarray

    def log_p(self, x: np.ndarray) -> np.ndarray:
        """Return log p of each row."""
        return np.logaddexp.reduce(self._log_joint(x), axis=1)

    def _log_joint(self, x: np.ndarray) -> np.ndarray:
        p = self.probabilities
        return x @ (np.log(p) - np.log1p(-p)).T + np.log1p(-p).sum(axis=1) + self.log_shares

    def update(self, x: np.ndarray, pseudocount: float) -> "Mixture":
        """Return the mixture after one step of EM."""
        joint = self._log_joint(x)
        shares = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
        number = shares.sum(axis=0)
        ones = shares.T @ x
        # Empty components return to the columns' means.
        means = (x.mean(axis=0) + 0.01) / 1.02
        p = (ones + pseudocount * means) / (number[:, None] + pseudocount)
        log_shares = np.log((number + pseudocount) / (len(x) + pseudocount * len(number)))
        return Mixture(log_shares, np.clip(p, 1e-6, 1 - 1e-6))


def independent(x: np.ndarray, pseudocount: float = 1.0) -> Mixture:
    """Fit independent bits, with pseudocounts of each value."""
    p = (x.sum(axis=0) + pseudocount) / (len(x) + 2 * pseudocount)
    return Mixture(np.zeros(1), p[None])


def mixture(
    x: np.ndarray, valid: np.ndarray, components: int, steps: int, seed: int = 0
) -> Mixture:
    """Fit a mixture by EM, and return it as it was when it was best on validation rows."""
    x = x.astype(np.float64)
    random = np.random.default_rng(seed)
    p = 0.25 + 0.5 * random.random((components, x.shape[1]))
    model = Mixture(np.full(components, -np.log(components)), p)
    models = [model := model.update(x, pseudocount=1.0) for _ in range(steps)]
    return best(models, lambda one: one.log_p(valid).mean())


class Tree(NamedTuple):
    """A tree of bits (Chow & Liu, 1968).

    Attributes:
        parents: column that each one depends on; that of the root is itself.
        probabilities: of a one, by column and value of its parent.
    """

    parents: np.ndarray
    probabilities: np.ndarray

    def log_p(self, x: np.ndarray) -> np.ndarray:
        """Return log p of each row."""
        x = x.astype(int)
        columns = np.arange(x.shape[1])
        p = self.probabilities[columns, x[:, self.parents]]
        return np.log(np.where(x == 1, p, 1 - p)).sum(axis=1)


def tree(x: np.ndarray, pseudocount: float = 1.0) -> Tree:
    """Fit the tree of the highest likelihood, with pseudocounts of each pair of values."""
    x = x.astype(np.float64)
    ones = x.T @ x
    single = np.diag(ones)
    pairs = np.stack(  # by value of the row's column, then of the column's
        [
            np.stack([len(x) - single[:, None] - single + ones, single - ones]),
            np.stack([single[:, None] - ones, ones]),
        ]
    )
    pairs = (pairs + pseudocount) / (len(x) + 4 * pseudocount)
    first, second = pairs.sum(axis=1), pairs.sum(axis=0)
    information = (pairs * np.log(pairs / (first[:, None] * second[None]))).sum(axis=(0, 1))
    # The search takes 0 for no edge.
    cost = information.max() + 1 - information
    edges = minimum_spanning_tree(np.triu(cost, 1))
    _, parents = breadth_first_order(edges, 0, directed=False)
    columns = np.arange(x.shape[1])
    parents = np.where(parents < 0, columns, parents)
    joint = pairs[:, :, parents, columns]
    p = (joint[:, 1] / joint.sum(axis=1)).T
    # The root depends on nothing.
    p[0] = (single[0] + 2 * pseudocount) / (len(x) + 4 * pseudocount)
    return Tree(parents, p)


def best(choices: Iterable[_Choice], value: Callable[[_Choice], float]) -> _Choice:
    """Return what has the highest value on validation rows."""
    return max(choices, key=value)
