"""`aisle train`."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional

from aisle.cli.options import (
    Cluster,
    DataFlags,
    DataGroup,
    DistributedOptions,
    MethodFlags,
    ModelFlags,
    OptimizerFlags,
    RunFlags,
    RunGroup,
    optional,
)
from aisle.cli.output import show
from aisle.errors import InputError, check_positive
from aisle.runs.options import TrainConfig

if TYPE_CHECKING:
    from aisle.data import Table as DataTable
    from aisle.runs.fitting import Fitted

# Columns that are shown, and remarks, at the most.
_MOST_LINES = 40


@dataclass
class Train:
    """Train a model on a named data set, a table or an array of your own.

    For example: aisle train digits --num-hidden 64 --out runs/digits

    Without --method, a VAE makes a cheap start and annealed importance sampling follows, each with
    its own learning rate. A run can be killed at any time and is resumed, bit for bit, by
    aisle train --resume runs/digits. aisle evaluate runs/digits then estimates log p(x).
    """

    data: Positional[Annotated[str | None, optional(metavar="DATA")]] = None
    """digits, mnist, omniglot, the path of a table, or that of an .npy or .npz file.
    A table is .csv, .tsv, .parquet or .h5ad, with names of columns; see --columns.
    Arrays have examples along the first axis. An .npz may have parts called train, valid and test.
    Without a part called test, a tenth of the examples is held out; see also --num-valid."""

    out: Annotated[Path | None, optional(metavar="RUN")] = None
    """Folder of the run, which must not exist yet; by default runs/DATA-METHOD-seedSEED."""

    resume: Annotated[Path | None, optional(metavar="RUN")] = None
    """Resume this run, whose folder has its options.
    Only --epochs or --updates may be given, to make it longer, and --data-dir if its data moved."""

    num_epochs: Annotated[int | None, optional(aliases=["--epochs"], metavar="INT")] = None
    """Passes over the data, counted from the start of the run.
    By default 100, or as many as make 5,000 updates."""

    num_updates: Annotated[int | None, optional(aliases=["--updates"], metavar="INT")] = None
    """The same in updates, instead of --epochs."""

    hours: Annotated[float | None, optional(metavar="FLOAT")] = None
    """The same in hours, instead of both: a short try of each phase says how many updates that is.
    Learning rates decay to the end, so the number of updates is fixed before training begins."""

    method: OmitArgPrefixes[MethodFlags] = field(default_factory=MethodFlags)
    model: OmitArgPrefixes[ModelFlags] = field(default_factory=ModelFlags)
    observations: DataGroup = field(default_factory=DataFlags)
    optimizer: OmitArgPrefixes[OptimizerFlags] = field(default_factory=OptimizerFlags)
    run_options: RunGroup = field(default_factory=RunFlags)
    joined: Cluster = field(default_factory=DistributedOptions)

    def run(self) -> int:
        """Train, and say where the run is."""
        self._check()
        from aisle.cli.devices import set_up_jax
        from aisle.runs import training

        set_up_jax(self.joined)
        if self.resume is not None:
            out, place = self.resume, self.observations.data_dir
            fitted = training.resume(out, self.num_epochs, self.num_updates, place)
        else:
            config = self._config()
            out = self.out or _default_out(config)
            fitted = training.train(config, out, hours=self.hours, show_table=_show_table)
        return _conclude(fitted, out)

    def _check(self) -> None:
        if (self.data is None) == (self.resume is None):
            raise InputError("give either DATA, to start a run, or --resume RUN, to resume one")
        lengths = (self.num_epochs, self.num_updates, self.hours)
        if sum(length is not None for length in lengths) > 1:
            raise InputError("give one of --epochs, --updates and --hours")
        if self.hours is not None:
            check_positive("hours", self.hours)
        if self.resume is None:
            return
        rest = dataclasses.replace(
            self,
            resume=None,
            num_epochs=None,
            num_updates=None,
            observations=dataclasses.replace(self.observations, data_dir=None),
            joined=DistributedOptions(),
        )
        if rest != Train():
            raise InputError(
                "--resume takes its configuration from the run: of the other options only "
                "--epochs, --updates and --data-dir may be given"
            )

    def _config(self) -> TrainConfig:
        assert self.data is not None
        return TrainConfig(
            self.data,
            self.num_epochs,
            self.num_updates,
            self.method,
            self.model,
            self.observations,
            self.optimizer,
            self.run_options,
        )


def _default_out(config: TrainConfig) -> Path:
    name = f"{Path(config.data).stem}-{config.method.method}-seed{config.run.seed}"
    return Path("runs") / name


def _show_table(table: "DataTable") -> None:
    """Print what each column was taken for."""
    shown = Table("column", "kind", "values", "missing")
    rows = table.summary()
    for row in rows[:_MOST_LINES]:
        shown.add_row(*row)
    if len(rows) > _MOST_LINES:
        kinds = sorted({kind for _, kind, _, _ in rows[_MOST_LINES:]})
        shown.add_row(f"{len(rows) - _MOST_LINES:,} more", ", ".join(kinds), "", "")
    for name, kind, values, missing in table.summary_of_conditions():
        shown.add_row(name, f"given: {kind}", values, missing)
    show(shown, *table.remarks[:_MOST_LINES])
    if len(table.remarks) > _MOST_LINES:
        show(f"{len(table.remarks) - _MOST_LINES:,} more columns are left out")
    show("Where a kind is wrong, set it: --columns NAME=KIND")


def _conclude(fitted: "Fitted", out: Path) -> int:
    update, num_skipped = int(fitted.state.update), int(fitted.state.num_skipped)
    if num_skipped:
        show(f"{num_skipped} updates were skipped for a gradient that was not finite")
    if fitted.is_interrupted:
        return 128 + SIGINT
    bounds = [record for record in fitted.history if "held_out_bound" in record]
    if bounds:
        last = bounds[-1]
        show(
            f"last held-out bound {last['held_out_bound']:.2f} +- "
            f"{last['held_out_standard_error']:.2f} "
            f"nats ({last['held_out_examples']} examples), {last['decoder_gradients']:,} decoder "
            "gradients"
        )
    show(f"{update:,} updates, kept in {out}")
    return 0
