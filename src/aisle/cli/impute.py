"""`aisle impute`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from aisle.cli.options import MovedData, RunPath, optional
from aisle.cli.output import check_writable, show, write_rows
from aisle.errors import InputError, check_count, check_seed

# Draws that are written, and those that a mean is taken of.
_NUM_DRAWS, _NUM_AVERAGED = 10, 100


@dataclass
class Impute:
    """Fill the missing cells of a table with what a trained model makes of the others.

    For example: aisle impute runs/patients patients.csv --out filled.csv

    The file has the columns of the table, and cells that were there are as they were. Draws are
    from the distribution of what is missing given what was observed, one completed table below
    another, numbered by a column called draw: do the further analysis with each of them.
    """

    run_path: Positional[RunPath]

    table: Positional[Annotated[Path, arg(metavar="TABLE")]]
    """Table to fill, with the columns that the run was trained on."""

    out: Annotated[Path, arg(metavar="FILE")] = Path("filled.csv")
    """File to write, .csv or .tsv."""

    draws: Annotated[int | None, optional(metavar="INT")] = None
    """Draws for each row. By default 10, and 100 for --mean."""

    mean: bool = False
    """Write one table instead, with means of draws; of categories, the level drawn most often."""

    seed: int = 0
    """Seed of the draws."""

    data_dir: MovedData = None

    def run(self) -> int:
        """Fill the table, and say where it is."""
        num_draws = (
            (_NUM_AVERAGED if self.mean else _NUM_DRAWS) if self.draws is None else self.draws
        )
        check_count("draws", num_draws)
        check_seed(self.seed)
        check_writable(self.out, ".csv", ".tsv")
        if self.out.resolve() == self.table.resolve():
            raise InputError(f"{self.out} is the table itself: give another file, to keep both")
        from aisle.cli.devices import set_up_jax
        from aisle.runs.opening import open_run
        from aisle.runs.tables import imputed

        set_up_jax()
        run = open_run(self.run_path, data_dir=self.data_dir)
        made = imputed(run, self.table, num_draws=num_draws, average=self.mean, seed=self.seed)
        write_rows(self.out, *made)
        show(f"{self.out}: {self.table} completed by update {run.update:,} of {self.run_path}")
        return 0
