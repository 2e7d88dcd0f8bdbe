"""`aisle data list` and `aisle data fetch`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from aisle.cli.options import optional
from aisle.cli.output import show


@dataclass
class ListData:
    """List the named data sets and where they were found."""

    data_dir: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the data sets; by default $AISLE_DATA, or else the user's cache."""

    def run(self) -> int:
        """Print the table."""
        from aisle.data import describe

        table = Table("name", "train", "test", "shape", "licence", "what it is", "where")
        for row, found in describe(self.data_dir):
            shape = "x".join(map(str, row.shape))
            counts = (f"{row.num_train:,}", f"{row.num_test:,}")
            table.add_row(row.name, *counts, shape, row.licence, row.description, found)
        show(table, "Or give the path of a table, .npy or .npz file wherever a name is taken.")
        return 0


@dataclass
class FetchData:
    """Fetch a named data set from its public mirrors, checking its hashes."""

    name: Positional[Annotated[str, arg(metavar="NAME")]]
    """Data set to fetch: mnist or omniglot."""

    data_dir: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder to keep it in; by default $AISLE_DATA, or else the user's cache."""

    def run(self) -> int:
        """Fetch and say where the files are."""
        from aisle.data import fetch

        paths = fetch(self.name, self.data_dir)
        show(*(paths or [f"{self.name} comes with scikit-learn: nothing to fetch"]))
        return 0


@dataclass
class Data:
    """List the named data sets, or fetch one."""

    action: OmitArgPrefixes[
        Annotated[ListData, subcommand("list", prefix_name=False)]
        | Annotated[FetchData, subcommand("fetch", prefix_name=False)]
    ]

    def run(self) -> int:
        """Run the action."""
        return self.action.run()
