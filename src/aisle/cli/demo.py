"""`aisle demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from aisle.cli.devices import set_up_jax
from aisle.cli.output import Columns, screen_table, table_console, with_error, write_json
from aisle.cli.report import write_report
from aisle.errors import InputError

if TYPE_CHECKING:
    from aisle.experiments.cells import Row
    from aisle.statistics import Mean

TITLE = "test log-likelihood in nats, a stochastic lower bound; gap of bidirectional Monte Carlo"
COLUMNS: Columns = {
    "method": "left",
    "updates": "right",
    "decoder gradients": "right",
    "seconds": "right",
    "log p(x)": "right",
    "gap": "right",
    "better than vae by": "right",
}


@dataclass
class Demo:
    """Train four methods on the embedded digits and compare them, in minutes.

    vae, dreg, mh-hmc and ais make the same number of updates of the same networks. Ends with a
    table, with pictures of samples and with a page to look at, report.html, in the folder given. A
    demo that was interrupted goes on where it was.
    """

    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo")
    """Folder of the runs, the table (results.json), the pictures and the page."""

    epochs: int = 100
    """Passes over the 1,500 training digits."""

    seed: int = 0
    """Seed of everything."""

    def run(self) -> int:
        """Train, compare, print the table and draw."""
        if self.epochs < 1:
            raise InputError(f"epochs is {self.epochs}: it must be at least 1")
        set_up_jax()
        import jax

        from aisle.experiments import cells, demo
        from aisle.experiments.training import open_run
        from aisle.provenance import provenance
        from aisle.report.pictures import sample_panel, save_panels

        console, done, panels = table_console(), [], []
        for cell in demo.cells(self.epochs, self.seed):
            console.print(f"training {cell.name}")
            done.append(cells.run_cell(cell, self.out))
            model = open_run(self.out / cell.name).model
            panel = sample_panel(jax.random.key(self.seed), model, 64)
            panels.append(panel._replace(title=f"samples, {cell.name}"))
        rows = [one.row for one in done]
        better = [None, *(cells.difference(one, done[0]) for one in done[1:])]
        lines = [texts(*pair) for pair in zip(rows, better, strict=True)]
        console.print(screen_table(TITLE, COLUMNS, lines))
        content = {"epochs": self.epochs, "seed": self.seed, **provenance()}
        listed = [
            cells.as_plain(row) | {"better_than_vae": mean and mean._asdict()}
            for row, mean in zip(rows, better, strict=True)
        ]
        write_json(self.out / "results.json", {"results": listed, **content})
        save_panels(self.out / "samples.png", panels, demo.SHAPE)
        folders = [self.out / row.cell for row in rows]
        write_report(folders, self.out / "report.html", seed=self.seed)
        for name in ("samples.png", "results.json", "report.html"):
            console.print(str(self.out / name), soft_wrap=True)
        return 0


def texts(row: "Row", better: "Mean | None") -> list[str]:
    """Return what the table says of a method."""
    return [
        row.method,
        f"{row.updates:,}",
        f"{row.decoder_gradients:,}",
        f"{row.seconds:.0f}",
        with_error(row.log_likelihood),
        with_error(row.gap),
        "" if better is None else with_error(better),
    ]
