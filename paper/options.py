"""The commands of `python -m paper`, and their options.

JAX and everything that needs it are imported inside the commands, so that `--help` and mistakes are
answered at once.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from aisle.cli.devices import set_up_jax
from aisle.cli.main import Command, Program, main as run_program
from aisle.cli.options import (
    DataFlags,
    DataGroup,
    MethodFlags,
    ModelFlags,
    MovedData,
    OptimizerFlags,
    RunFlags,
    RunGroup,
    RunPath,
    optional,
)
from aisle.errors import InputError, check_positive

_DESCRIPTION = (
    "Run the studies of Ding & Freedman (2020) again, and some beyond it, and say which claims "
    "hold. To begin with: python -m paper figure1, in a minute, or python -m paper table1 --budget "
    "smoke, in minutes. After an interruption the same command resumes; what is done is not done "
    "again. Each command has its own --help."
)

# Draws of figure1 by budget; the option's default is that of cpu.
_SMOKE_DRAWS = 10_000


@dataclass
class Figure1:
    """Compare q_IS and q_AIS at equal cost, on a correlated normal target; in a minute.

    For example: python -m paper figure1 --correlation 0.9

    Draws of both are compared with the target by a KL divergence over bins. Writes figure1.png,
    figure1.md and figure1.json.
    """

    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/figure1")
    """Folder of the results."""

    budget: Literal["smoke", "cpu", "paper"] = "cpu"
    """How much work goes into it.
    smoke: at most 10,000 draws. cpu and paper: those of --draws."""

    draws: int = 20_000
    """Points to draw from each sampler."""

    correlation: float = 0.95
    """Correlation of the target's two variables."""

    seed: int = 0
    """Seed of everything."""

    def run(self) -> int:
        """Draw, measure, print the table and write the files."""
        set_up_jax()
        from paper.figure1 import page

        draws = min(self.draws, _SMOKE_DRAWS) if self.budget == "smoke" else self.draws
        page.reproduce(self.out, draws, self.correlation, self.seed)
        return 0


@dataclass
class _Table:
    name: ClassVar[str]

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the cells and of the table as .md, .csv and .json.
    By default runs/tables-BUDGET, which all tables share, as they share cells."""

    budget: Literal["smoke", "cpu", "paper"] = "cpu"
    """How much work goes into a cell.
    smoke: seconds, on the digits. cpu: hours on two cores.
    paper: 3,280 epochs, for accelerators."""

    cells: tuple[str, ...] = ()
    """Names of cells to run, with * for anything; by default all.
    Their starts are trained as needed, or by their full names."""

    plan: bool = False
    """Only time a few updates of each cell, and say what the whole would take."""

    write_only: bool = False
    """Only write the table of the cells that are done; run none."""

    seed: int = 0
    """Seed of everything."""

    def run(self) -> int:
        """Run the cells, print the table and write its files."""
        if self.plan and self.write_only:
            raise InputError("--plan and --write-only exclude each other: give one of them")
        set_up_jax()
        from paper.tables import running

        out = self.out or Path(f"runs/tables-{self.budget}")
        if self.plan:
            running.show_plan(self.name, out, self.budget, list(self.cells), self.seed)
        elif self.write_only:
            running.write_table(self.name, out, self.budget, self.seed)
        else:
            running.run_table(self.name, out, self.budget, list(self.cells), self.seed)
        return 0


class Table1(_Table):
    """Compare DReG and AIS by K and T, on MNIST and Omniglot.

    For example: python -m paper table1 --cells 'mnist-*'
    """

    name = "table1"


class Table2(_Table):
    """Compare DReG with AIS and MH-HMC with AIS at equal cost, on Omniglot.

    For example: python -m paper table2 --plan
    """

    name = "table2"


class Beyond(_Table):
    """Compare the tuned kernel with the paper's at equal cost, and train two stochastic layers.

    For example: python -m paper beyond --cells 'omniglot-ais-*'
    """

    name = "beyond"


class Ramp(_Table):
    """Spend half of the moves at the posterior, against AIS and MH-HMC, on Omniglot.

    For example: python -m paper ramp --cells '*-T5-*'
    """

    name = "ramp"


class Recipes(_Table):
    """Compare what to do after a cheap start, in the same time, on MNIST.

    For example: python -m paper recipes --cells mnist-short-recipe-tuned mnist-short-recipe-ramp
    """

    name = "recipes"


class Defaults(_Table):
    """Compare the library's default recipe with that of its first edition, in the same time.

    For example: python -m paper defaults --budget smoke

    The cells are runs as `aisle train mnist` makes them: finished runs in the folders
    mnist-default-new and mnist-default-old of --out are only evaluated.
    """

    name = "defaults"


@dataclass
class Kernels:
    """Compare annealing kernels at equal cost on a trained model.

    For example: python -m paper kernels runs/mnist --steps 22 55

    Chains of many kernels are annealed from the encoder to the posterior, each with step sizes that
    were tuned on training examples and frozen. The tighter a kernel, the nearer the mean log-weight
    of one of its chains is to log p(x), which a much longer run estimates with a certificate.
    """

    run_path: Positional[RunPath]

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the results; by default kernels in the run's folder."""

    num_examples: int = 256
    """Test examples, spread evenly."""

    chains: int = 8
    """Chains of each example and kernel."""

    steps: Annotated[tuple[int, ...], arg(aliases=["--budgets"])] = (22, 55, 220)
    """Leapfrog steps of a chain in all: temperatures times steps of a transition."""

    truth_temperatures: int = 2000
    """Temperatures of the runs that stand for log p(x)."""

    truth_chains: int = 16
    """Chains of each example in those."""

    seed: int = 0
    """Seed of all draws."""

    data_dir: MovedData = None

    def run(self) -> int:
        """Compare, print the table and write the files."""
        set_up_jax()
        from paper.kernels import page
        from paper.kernels.study import Config

        config = Config(
            self.num_examples,
            self.chains,
            self.steps,
            self.truth_temperatures,
            self.truth_chains,
            self.seed,
        )
        try:
            page.reproduce(self.run_path, config, self.out, self.data_dir)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command resumes") from None
        return 0


@dataclass
class Gradients:
    """Measure the bias and the noise of gradient estimators on a trained model.

    For example: python -m paper gradients runs/mnist --temperatures 5 11

    The gradient of log p(x) in the decoder's weights is a posterior mean, which long annealing runs
    estimate. The short chains of training estimate it too: by AIS, by MH-HMC and by schedules and
    weights between both, at equal cost, with the paper's kernel and with the tuned one.
    """

    run_path: Positional[RunPath]

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the results; by default gradients in the run's folder."""

    num_examples: int = 128
    """Test examples, spread evenly.
    The norm depends on their number: compare only where it is equal."""

    repeats: int = 32
    """Independent estimates of the same examples: the more, the smaller the error bars."""

    num_samples: Annotated[int, arg(aliases=["-K"])] = 5
    """K: chains for each example."""

    temperatures: tuple[int, ...] = (5, 11)
    """T: transitions of a chain with the paper's kernel."""

    num_leapfrog: Annotated[int, arg(aliases=["-L"])] = 5
    """L: leapfrog steps of a transition with the paper's kernel."""

    seed: int = 0
    """Seed of all draws."""

    data_dir: MovedData = None

    def run(self) -> int:
        """Measure, print the table and write the files."""
        set_up_jax()
        from paper.gradients import page
        from paper.gradients.bench import Settings

        settings = Settings(
            self.num_examples,
            self.repeats,
            self.num_samples,
            self.temperatures,
            self.num_leapfrog,
            self.seed,
        )
        try:
            page.reproduce(self.run_path, settings, self.out, self.data_dir)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command resumes") from None
        return 0


@dataclass
class Hours:
    """Train from scratch for some hours, and say how far that comes.

    For example: python -m paper hours mnist --hours 3

    Trains as aisle train does, and takes its options. Then it evaluates test data once, and
    training data, which show what was overfitted. Writes hours.md, hours.json and hours.png, with
    log p(x) against time, and weights.safetensors, which aisle.load opens.
    """

    data: Positional[Annotated[str, arg(metavar="DATA")]]
    """As for aisle train."""

    hours: float = 3.0
    """Of training, without compilation and evaluation."""

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the run and of the results; by default runs/hours-DATA-MODEL."""

    budget: Literal["smoke", "cpu"] = "cpu"
    """smoke: seconds of evaluation with small networks."""

    method: OmitArgPrefixes[MethodFlags] = field(default_factory=MethodFlags)
    model: OmitArgPrefixes[ModelFlags] = field(default_factory=ModelFlags)
    observations: DataGroup = field(default_factory=DataFlags)
    optimizer: OmitArgPrefixes[OptimizerFlags] = field(default_factory=OptimizerFlags)
    # All checkpoints, of which the curve is made.
    run_options: RunGroup = field(default_factory=lambda: RunFlags(keep_checkpoints=1_000_000))

    def run(self) -> int:
        """Train, evaluate, print the table and write the files."""
        check_positive("hours", self.hours)
        set_up_jax()
        from aisle.runs.options import TrainConfig
        from paper.core.effort import Effort
        from paper.hours import page
        from paper.tables.budgets import CAREFUL

        is_small, networks = self.budget == "smoke", self.model
        config = TrainConfig(
            self.data,
            method=self.method,
            model=replace(networks, num_latents=2, num_hidden=8) if is_small else networks,
            observations=self.observations,
            optimizer=self.optimizer,
            run=self.run_options,
        )
        effort = Effort(8, 2, 6, 3, 4) if is_small else Effort()
        if networks.model == "two-layer" and not is_small:
            careful = {"num_examples": 500, "num_chains": 8, "num_temperatures": 1000, **CAREFUL}
            effort = effort._replace(**careful)
        name = f"hours-{Path(self.data).stem}-{networks.model}"
        page.reproduce(self.out or Path("runs") / name, config, self.hours, effort)
        return 0


@dataclass
class Seeds:
    """Compare methods in the same time from the same start, by several seeds.

    For example: python -m paper seeds mnist --minutes 4

    Of two ways to train, which is better in the same time, and is that more than chance? DReG,
    AIS and MH-HMC by K, T, kernel and spacing. Writes seeds.md, seeds.json and seeds.png.
    """

    data: Positional[Annotated[str, arg(metavar="DATA")]] = "mnist"
    """As for aisle train."""

    minutes: float = 4.0
    """Of each training, without compilation and evaluation; the start takes as long."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of training. Those that are done already cost nothing."""

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the runs and of the results; by default runs/seeds-DATA."""

    budget: Literal["smoke", "cpu"] = "cpu"
    """smoke: seconds of evaluation with small networks."""

    data_dir: MovedData = None

    def run(self) -> int:
        """Train, evaluate, print the tables and write the files."""
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(
                f"is {self.seeds}: give one or more seeds, each once", argument="seeds"
            )
        check_positive("minutes", self.minutes)
        set_up_jax()
        from aisle.runs.options import ModelOptions
        from paper.core.effort import Effort
        from paper.seeds import page
        from paper.seeds.study import Asked

        is_small = self.budget == "smoke"
        networks = ModelOptions()
        networks = replace(networks, num_latents=2, num_hidden=8) if is_small else networks
        effort = Effort(8, 2, 6, 0, 4) if is_small else Effort(1000, 8, 250, 0, 60)
        asked = Asked(self.data, self.minutes, self.seeds, networks, self.data_dir)
        name = f"seeds-{Path(self.data).stem}"
        page.reproduce(self.out or Path("runs") / name, asked, effort)
        return 0


COMMANDS: dict[str, type[Command]] = {
    "figure1": Figure1,
    "table1": Table1,
    "table2": Table2,
    "beyond": Beyond,
    "ramp": Ramp,
    "recipes": Recipes,
    "defaults": Defaults,
    "hours": Hours,
    "seeds": Seeds,
    "kernels": Kernels,
    "gradients": Gradients,
}

PAPER = Program("paper", "python -m paper", _DESCRIPTION, COMMANDS)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code: 0, 1 for a failure, 2 for a mistake."""
    run_program(arguments, PAPER)
