"""Data sets: named ones that are fetched and checked, and users' own arrays of any size."""

from aisle.data.columns import Column
from aisle.data.datasets import describe, load
from aisle.data.download import fetch
from aisle.data.sources import data_directory
from aisle.data.split import Dataset, Split, spread
from aisle.data.tables import Table, read_table
from aisle.data.values import as_split, check_support, remarks
from aisle.data.view import View

__all__ = [
    "Column",
    "Dataset",
    "Split",
    "Table",
    "View",
    "as_split",
    "check_support",
    "data_directory",
    "describe",
    "fetch",
    "load",
    "read_table",
    "remarks",
    "spread",
]
