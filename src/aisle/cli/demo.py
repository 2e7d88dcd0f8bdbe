"""`aisle demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from tyro.conf import arg

from aisle.cli.devices import set_up_jax
from aisle.cli.output import table_console, write_json
from aisle.errors import InputError

if TYPE_CHECKING:
    from aisle.experiments.demo import Result


@dataclass
class Demo:
    """Train four methods on the embedded digits and compare them, in minutes.

    vae, dreg, mh-hmc and ais make the same number of updates of the same networks. Ends with a
    table, and with pictures of samples, in the folder given. A demo that was interrupted goes on
    where it was.
    """

    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo")
    """Folder of the runs, the table (results.json) and the pictures."""

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

        from aisle.experiments import demo
        from aisle.provenance import provenance
        from aisle.report.pictures import sample_panel, save_panels

        console, results, panels, first = table_console(), [], [], None
        for name in demo.METHODS:
            console.print(f"training {name}")
            run = demo.run_method(name, self.out, self.epochs, self.seed)
            found = demo.measure(run, self.seed)
            first = found if first is None else first
            results.append(demo.result(run, found, first))
            panel = sample_panel(jax.random.key(self.seed), run.model, 64)
            panels.append(panel._replace(title=f"samples, {name}"))
        console.print(_table(results))
        content = {"epochs": self.epochs, "seed": self.seed, **provenance()}
        rows = [result._asdict() for result in results]
        write_json(self.out / "results.json", {"results": rows, **content})
        save_panels(self.out / "samples.png", panels, demo.SHAPE)
        for name in ("samples.png", "results.json"):
            console.print(str(self.out / name), soft_wrap=True)
        return 0


def _table(results: list["Result"]) -> Table:
    title = (
        "test log-likelihood in nats, a stochastic lower bound; gap of bidirectional Monte Carlo"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for heading in (
        "updates",
        "decoder gradients",
        "seconds",
        "log p(x)",
        "gap",
        "better than vae by",
    ):
        table.add_column(heading, justify="right")
    for row in results:
        table.add_row(
            row.method,
            f"{row.updates:,}",
            f"{row.decoder_gradients:,}",
            f"{row.seconds:.0f}",
            f"{row.log_likelihood:.2f} +- {row.standard_error:.2f}",
            f"{row.gap:.2f} +- {row.gap_error:.2f}",
            f"{row.difference:.2f} +- {row.difference_error:.2f}" if row is not results[0] else "",
        )
    return table
