"""`aisle select`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from tyro.conf import OmitArgPrefixes, Positional, arg

from aisle.cli.compare import COLUMNS, conclusion
from aisle.cli.devices import set_up_jax
from aisle.cli.options import (
    DataFlags,
    DataGroup,
    MethodFlags,
    OptimizerFlags,
    RunFlags,
    RunGroup,
    optional,
)
from aisle.cli.output import plain, screen_table, show, write_json
from aisle.errors import InputError, check, check_count
from aisle.runs.options import LikelihoodName, ModelOptions, SamplerOptions, TrainConfig

if TYPE_CHECKING:
    from aisle.evaluation import Comparison
    from aisle.runs.selecting import Candidate


@dataclass
class Select:
    """Choose the number of latents, or the likelihood, by log p(x) of validation data.

    For example: aisle select patients.csv --num-latents 2,5,10,20

    Trains a run for each choice and evaluates it on validation examples. The best is then evaluated
    once on test examples. Ends with a table, results.json and a plot, select.png, in the folder of
    the runs. The same command resumes after an interruption.
    """

    data: Positional[Annotated[str, arg(metavar="DATA")]]
    """As for aisle train."""

    num_latents: Annotated[str, arg(metavar="INT,INT,...")] = "2,5,10,20"
    """Numbers of latents to choose from."""

    likelihood: Annotated[str, arg(metavar="NAME,NAME,...")] = "auto"
    """Likelihoods to choose from, as of aisle train: all of whole numbers, or all of real ones."""

    hidden: Annotated[str | None, optional(metavar="TEXT")] = None
    """Units of each hidden layer, as in 200,200."""

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the runs; by default runs/DATA-select."""

    num_epochs: Annotated[int | None, optional(aliases=["--epochs"], metavar="INT")] = None
    """Passes over the data, as for aisle train."""

    num_updates: Annotated[int | None, optional(aliases=["--updates"], metavar="INT")] = None
    """The same in updates."""

    eval_chains: int = 16
    """Chains of each example, in evaluations."""

    eval_temperatures: int = 500
    """Temperatures of these chains."""

    eval_bdmc: int = 100
    """Simulated examples of an evaluation's certificate, 0 for none."""

    method: OmitArgPrefixes[MethodFlags] = field(default_factory=MethodFlags)
    observations: DataGroup = field(default_factory=DataFlags)
    optimizer: OmitArgPrefixes[OptimizerFlags] = field(default_factory=OptimizerFlags)
    run_options: RunGroup = field(default_factory=RunFlags)

    def run(self) -> int:
        """Train, compare, test the best, and say where everything is."""
        numbers, names = self._numbers(), self._names()
        # Before the work, not after it.
        check_count("eval_chains", self.eval_chains)
        check_count("eval_temperatures", self.eval_temperatures, 2)
        check_count("eval_bdmc", self.eval_bdmc, 0)
        set_up_jax()
        from aisle.evaluation.results import as_json
        from aisle.runs.selecting import candidates, select

        choices = candidates(numbers, names)
        if len(choices) < 2:
            raise InputError("gives one choice alone: give at least 2", argument="num_latents")
        out = self.out or Path("runs") / f"{Path(self.data).stem}-select"
        config = TrainConfig(
            self.data,
            self.num_epochs,
            self.num_updates,
            self.method,
            ModelOptions(hidden=self.hidden),
            self.observations,
            self.optimizer,
            self.run_options,
        )
        sampler = SamplerOptions(
            num_chains=self.eval_chains,
            num_temperatures=self.eval_temperatures,
            bdmc_examples=self.eval_bdmc,
        )
        found, test = select(config, choices, sampler, out)
        number = found.models[0].log_p.num_examples
        title = f"{number:,} validation examples of {self.data}, nats"
        show(screen_table(title, COLUMNS, found.rows()), conclusion(found))
        show(f"{found.best}, test: {test}")
        content = {
            "validation": [plain(model) for model in found.models],
            "chosen": found.best,
            "test": as_json(test),
        }
        write_json(out / "results.json", content)
        _draw(out / "select.png", found, choices)
        show(out / found.best, out / "results.json", out / "select.png")
        return 0

    def _numbers(self) -> list[int]:
        texts = [text.strip() for text in self.num_latents.split(",")]
        is_right = all(text.isdecimal() for text in texts)
        rule = "whole numbers separated by commas, as in 2,5,10"
        check(is_right, "num_latents", self.num_latents, rule)
        return [int(text) for text in texts]

    def _names(self) -> list[LikelihoodName]:
        known = get_args(LikelihoodName)
        names = [text.strip() for text in self.likelihood.split(",")]
        for name in names:
            check(name in known, "likelihood", name, f"one of {', '.join(known)}")
        return names  # pyright: ignore[reportReturnType]


def _draw(path: Path, found: "Comparison", choices: "list[Candidate]") -> None:
    """Draw log p(x) against the number of latents, with standard errors."""
    from matplotlib.figure import Figure

    from aisle.report.pictures import save_figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="latents", ylabel="log p(x) of validation examples, nats")
    means = {model.name: model.log_p for model in found.models}
    for name in dict.fromkeys(choice.likelihood for choice in choices):
        own = sorted(choice for choice in choices if choice.likelihood == name)
        values = [means[choice.name] for choice in own]
        axes.errorbar(
            [choice.num_latents for choice in own],
            [value.mean for value in values],
            [value.standard_error for value in values],
            marker="o",
            capsize=3,
            label=name,
        )
    axes.set_xticks(sorted({choice.num_latents for choice in choices}))
    axes.legend()
    save_figure(figure, path, dpi=120)
