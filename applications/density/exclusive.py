"""Bits that exclude each other, taken as categories: the same density, by a model that knows it."""

from typing import NamedTuple

import numpy as np

# Training rows in which two columns would both be 1 if they were independent, from which on it is
# no chance that they never are.
_LEAST_EXPECTED = 20


class Exclusive(NamedTuple):
    """Columns of bits in groups; within a group, at most one is 1 in all training rows.

    A group of columns is a category: none of them, each of them alone, or any other pattern, which
    a row to come may still have. A column that excludes no other is a group of its own.
    """

    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def found(cls, x: np.ndarray) -> "Exclusive":
        """Group the columns of training rows: each goes to the first group that it excludes."""
        ones = x.astype(float)
        expected = len(x) * np.outer(ones.mean(axis=0), ones.mean(axis=0))
        excludes = (ones.T @ ones == 0) & (expected >= _LEAST_EXPECTED)
        groups: list[list[int]] = []
        for column in range(x.shape[1]):
            group = next((g for g in groups if excludes[column, g].all()), None)
            if group is None:
                groups.append([column])
            else:
                group.append(column)
        return cls(tuple(map(tuple, groups)))

    @property
    def has_any(self) -> bool:
        """Whether any columns exclude each other."""
        return any(len(group) > 1 for group in self.groups)

    @property
    def num_levels(self) -> list[int]:
        """How many levels each category has."""
        return [2 if len(group) == 1 else len(group) + 2 for group in self.groups]

    def codes(self, x: np.ndarray) -> np.ndarray:
        """Return the categories of each row."""
        columns = []
        for group in self.groups:
            bits = x[:, group].astype(int)
            one = bits @ np.arange(1, len(group) + 1)
            columns.append(np.where(bits.sum(axis=1) > 1, len(group) + 1, one))
        return np.stack(columns, axis=1).astype(np.int32)

    def log_share(self, codes: np.ndarray) -> np.ndarray:
        """Return log p of each row's bits given its codes: other patterns share theirs alike."""
        sizes = np.array([len(group) for group in self.groups])
        others = np.maximum(2.0**sizes - sizes - 1, 1)
        is_other = (sizes > 1) & (codes == sizes + 1)
        return -np.where(is_other, np.log(others), 0).sum(axis=1)
