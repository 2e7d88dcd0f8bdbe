"""`aisle score`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from aisle.cli.devices import set_up_jax
from aisle.cli.options import MovedData, RunPath
from aisle.cli.output import check_writable, show, write_rows
from aisle.errors import check_count, check_seed


@dataclass
class Score:
    """Write log p(x) of each row of a table or an array, with its Monte Carlo error and latents.

    For example: aisle score runs/patients new.csv --out scores.csv

    The numbers of a row depend on its content, the run and the options, and not on other rows. Low
    ones are of unusual rows.
    """

    run_path: Positional[RunPath]

    data: Positional[Annotated[str, arg(metavar="DATA")]]
    """A table, or an .npy or .npz file, of the form that the run was trained on.
    Of a file with a part called test, that part is scored."""

    out: Annotated[Path, arg(metavar="CSV")] = Path("scores.csv")
    """File to write."""

    num_chains: Annotated[int, arg(name="chains", aliases=["-C", "--num-chains"])] = 16
    """Annealed chains of each row."""

    num_temperatures: Annotated[
        int, arg(name="temperatures", aliases=["-T", "--num-temperatures"])
    ] = 100
    """Temperatures of a chain."""

    seed: int = 0
    """Seed of all draws."""

    data_dir: MovedData = None

    def run(self) -> int:
        """Score, and say where the file is."""
        check_writable(self.out, ".csv")
        check_count("num_chains", self.num_chains)
        check_count("num_temperatures", self.num_temperatures, 2)
        check_seed(self.seed)
        set_up_jax()
        from aisle.runs.evaluating import score
        from aisle.runs.opening import open_run

        run = open_run(self.run_path, data_dir=self.data_dir)
        scores = score(run, self.data, self.num_chains, self.num_temperatures, self.seed)
        names = ["row", "log_p", "error", "effective_chains"]
        names += [f"z{i}" for i in range(scores.latents.shape[1])]
        columns = (scores.log_p, scores.error, scores.effective_chains, *scores.latents.T)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        write_rows(self.out, names, ([i, *row] for i, row in enumerate(rows)))
        show(f"{self.out}: {len(scores.log_p):,} rows, mean log p(x) {scores.log_p.mean():.2f}")
        return 0
