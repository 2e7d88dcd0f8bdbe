"""Data sets: named ones that are fetched and checked, and users' own arrays of any size."""

from aisle.data.datasets import Description, describe, load
from aisle.data.download import fetch
from aisle.data.places import data_directory
from aisle.data.split import Dataset, Split, spread
from aisle.data.values import check_bits, check_unmasked, check_values, feature_ranges

__all__ = [
    "Dataset",
    "Description",
    "Split",
    "check_bits",
    "check_unmasked",
    "check_values",
    "data_directory",
    "describe",
    "feature_ranges",
    "fetch",
    "load",
    "spread",
]
