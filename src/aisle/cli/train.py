"""`aisle train`."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from aisle.cli.output import table_console
from aisle.errors import InputError
from aisle.experiments.options import (
    DEFAULT_EPOCHS,
    DataOptions,
    DistributedOptions,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    TrainConfig,
    optional,
)


@dataclass
class Train:
    """Train a model on a named data set or on an array of your own.

    For example: aisle train digits --method ais -K 5 -T 11 -L 5 --epochs 100 --out runs/digits

    A run can be killed at any time and goes on where it was, bit for bit, with
    aisle train --resume runs/digits
    """

    data: Positional[Annotated[str | None, optional(metavar="DATA")]] = None
    """digits, mnist, omniglot, or the path of an .npy or .npz file, examples along the first axis.
    Without a part called test, a tenth of them is held out."""

    out: Annotated[Path | None, optional(metavar="RUN")] = None
    """Folder of the run, which must not exist yet; by default runs/DATA-METHOD-seedSEED."""

    resume: Annotated[Path | None, optional(metavar="RUN")] = None
    """Go on with this run. Its configuration is in the run; only --epochs may be given, and
    --data-dir where its data have moved."""

    num_epochs: Annotated[int | None, optional(aliases=["--epochs"], metavar="INT")] = None
    """Passes over the data, counted from the start of the run; by default 100."""

    method: OmitArgPrefixes[MethodOptions] = field(default_factory=MethodOptions)
    model: OmitArgPrefixes[ModelOptions] = field(default_factory=ModelOptions)
    observations: Annotated[OmitArgPrefixes[DataOptions], arg(name="data")] = field(
        default_factory=DataOptions
    )
    optimizer: OmitArgPrefixes[OptimizerOptions] = field(default_factory=OptimizerOptions)
    run_options: Annotated[OmitArgPrefixes[RunOptions], arg(name="run")] = field(
        default_factory=RunOptions
    )
    joined: Annotated[OmitArgPrefixes[DistributedOptions], arg(name="cluster")] = field(
        default_factory=DistributedOptions
    )

    def run(self) -> int:
        """Train, and say where the run is."""
        self._check()
        from aisle.cli.devices import set_up_jax
        from aisle.experiments import training

        set_up_jax(self.joined)
        if self.resume is not None:
            out = self.resume
            fitted = training.resume(out, self.num_epochs, self.observations.data_dir)
        else:
            config = self._config()
            out = self.out or _default_out(config)
            fitted = training.train(config, out)
        return _conclude(fitted, out)

    def _check(self) -> None:
        if (self.data is None) == (self.resume is None):
            raise InputError("give either DATA, to start a run, or --resume RUN, to go on with one")
        if self.resume is None:
            return
        at_home = dataclasses.replace(self.observations, data_dir=None)
        rest = dataclasses.replace(self, observations=at_home)
        changed = [
            f.name
            for f in dataclasses.fields(rest)
            if f.name not in ("resume", "num_epochs", "joined")
            and getattr(rest, f.name) != _default(f)
        ]
        if changed:
            raise InputError(
                "--resume takes its configuration from the run: of the other options only "
                "--epochs and --data-dir may be given"
            )

    def _config(self) -> TrainConfig:
        assert self.data is not None
        return TrainConfig(
            self.data,
            DEFAULT_EPOCHS if self.num_epochs is None else self.num_epochs,
            self.method,
            self.model,
            self.observations,
            self.optimizer,
            self.run_options,
        )


def _default(option: dataclasses.Field) -> object:
    if option.default_factory is not dataclasses.MISSING:
        return option.default_factory()
    return option.default


def _default_out(config: TrainConfig) -> Path:
    name = f"{Path(config.data).stem}-{config.method.method}-seed{config.run.seed}"
    return Path("runs") / name


def _conclude(fitted, out: Path) -> int:
    console = table_console()
    update, num_skipped = int(fitted.state.update), int(fitted.state.num_skipped)
    if num_skipped:
        console.print(f"{num_skipped} updates were skipped for a gradient that was not finite")
    if fitted.signal_number is not None:
        console.print(
            f"stopped at update {update}; go on with: aisle train --resume {out}", soft_wrap=True
        )
        return 128 + fitted.signal_number
    bounds = [record for record in fitted.history if "held_out_bound" in record]
    if bounds:
        last = bounds[-1]
        console.print(
            f"held-out bound {last['held_out_bound']:.2f} +- {last['held_out_standard_error']:.2f} "
            f"nats ({last['held_out_examples']} examples), {last['decoder_gradients']:,} decoder "
            "gradients"
        )
    console.print(f"{update:,} updates, kept in {out}", soft_wrap=True)
    return 0
