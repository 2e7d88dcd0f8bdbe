"""`aisle evaluate`."""

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg

from aisle.cli.devices import set_up_jax
from aisle.cli.options import (
    Cluster,
    DistributedOptions,
    EvaluateFlags,
    ModelName,
    RunPath,
    SamplerFlags,
    optional,
)
from aisle.cli.output import check_writable, show, write_json
from aisle.cli.sample import opened

if TYPE_CHECKING:
    from aisle.evaluation import LogLikelihood
    from aisle.runs.opening import Run


# Share of doubtful examples from which on the mean may be, too.
_MANY_DOUBTFUL = 0.05

# Nats from which on a gap is more than most differences between models.
_LARGE_GAP = 1.0


@dataclass
class Evaluate:
    """Estimate the log-likelihood of a trained model, with a certificate.

    For example: aisle evaluate runs/mnist --tolerance 0.1 --json mnist.json

    Chains are annealed from the encoder to the posterior, with step sizes that were tuned on other
    examples and frozen. Their mean weight is a stochastic lower bound of log p(x). Bidirectional
    Monte Carlo bounds log p(x) from both sides on data simulated from the model: the gap says
    how far off the estimate can be. An evaluation that was killed is resumed by the same command.
    """

    run_path: Positional[RunPath]

    out: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the results; by default in the run's folder evaluations, named by the settings."""

    json: Annotated[Path | None, optional(metavar="PATH")] = None
    """Also write the result as JSON to this file."""

    model: ModelName = None

    config: Annotated[OmitArgPrefixes[EvaluateFlags], arg(name="")] = field(
        default_factory=lambda: EvaluateFlags(sampler=SamplerFlags())
    )
    joined: Cluster = field(default_factory=DistributedOptions)

    def run(self) -> int:
        """Evaluate, print the table and say where the numbers are."""
        if self.json is not None:
            check_writable(self.json, ".json")
        set_up_jax(self.joined)
        from aisle import processes
        from aisle.evaluation.results import as_json
        from aisle.runs.evaluating import evaluate

        config = self.config
        run, dataset = opened(self.run_path, self.model, config.data, config.data_dir)
        try:
            result, folder = evaluate(run, config, data=dataset, out=self.out, report=show)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command resumes it") from None
        if self.json is not None and processes.is_first():
            write_json(self.json, as_json(result))
        title = f"{self.run_path}, {config.split} examples"
        table = Table("", "", title=title, title_justify="left", show_header=False)
        for row in _rows(result):
            table.add_row(*row)
        show(table, *_progress(run), *_warnings(result, config.sampler.tolerance))
        show(folder / "result.json", folder / "examples.npz", folder / "examples.csv")
        return 0


def _progress(run: "Run") -> list[str]:
    """Say if training is not finished; one that had patience may have ended by itself."""
    from aisle.runs.folder import how_to_resume

    has_patience = run.config is not None and run.config.run.patience is not None
    if run.update >= run.num_planned or has_patience:
        return []
    return [
        f"Training is not finished (update {run.update:,} of {run.num_planned:,}): "
        f"{how_to_resume(run.path, run.stored)}"
    ]


def _rows(result: "LogLikelihood") -> list[tuple[str, str]]:
    number = result.estimate.num_examples
    rows = [("log p(x), stochastic lower bound", f"{result.estimate} nats, {number:,} ex.")]
    bdmc, importance, whole = result.bdmc, result.importance, result.whole_split
    if whole is not None:
        text = f"{whole} nats, {whole.num_examples:,} ex."
        rows.append(("                       whole split", text))
    if bdmc is not None:
        rows += [
            ("on simulated examples: lower bound", str(bdmc.lower)),
            ("                       upper bound", str(bdmc.upper)),
            (
                "                       gap",
                f"{bdmc.gap:.3f}, worst {bdmc.worst_gap:.3f}",
            ),
        ]
    if importance is not None:
        rows += [
            (
                f"importance-weighted bound, K={importance.num_samples}",
                str(importance.bound),
            ),
            ("annealing above it by", f"{importance.ais_difference:.3f}"),
            ("evidence lower bound", str(importance.elbo)),
            ("active units", f"{importance.active_units} of {importance.num_latents}"),
        ]
    size, accepted = result.effective_sample_size, result.acceptance
    numbers = f"{result.num_chains}, {result.num_temperatures:,}, {result.num_leapfrog}"
    rows += [
        ("chains, temperatures, leapfrog steps", numbers),
        ("effective chains", f"{size.mean():.1f}, at least {size.min():.1f}"),
    ]
    if result.num_chains > 1:
        error, is_doubtful = result.monte_carlo_error, result.is_doubtful
        middle = median(error.tolist())
        rows += [
            ("Monte Carlo error of an example", f"{middle:.2f}, at most {error.max():.2f}"),
            ("doubtful examples", f"{is_doubtful.sum():,}, {is_doubtful.mean():.0%}"),
        ]
    return [
        *rows,
        ("acceptance by temperature", f"{accepted.min():.2f} to {accepted.max():.2f}"),
        ("non-finite transitions", f"{int(result.num_nonfinite.sum()):,}"),
        ("decoder gradients", f"{result.decoder_gradients:,}"),
        ("seconds", f"{result.seconds:.0f}"),
    ]


def _warnings(result: "LogLikelihood", tolerance: float | None) -> list[str]:
    """Say what a reader of the table must know."""
    lines, bdmc = [], result.bdmc
    if tolerance is None and bdmc and bdmc.gap.mean > _LARGE_GAP:
        lines.append(
            "The gap is large: give --tolerance, which finds the T that it takes, and a better "
            "start where that pays."
        )
    if not result.is_complete:
        lines.append("The time was up before all examples were done; the same command resumes it.")
    if result.is_tolerance_reached is False:
        is_timed = result.settings.get("max_seconds") is not None
        advice = "raise --max-seconds" if is_timed else "raise --bdmc-examples and --chains"
        lines.append(f"The tolerance was not reached: {advice}.")
    share = result.is_doubtful.mean()
    if share > _MANY_DOUBTFUL:
        lines.append(
            f"{share:.0%} of the examples are doubtful (is_doubtful in examples.csv): their "
            "log p(x) may be too low by more than the gap of simulated ones; raise -T."
        )
    number = (~(result.log_p > float("-inf"))).sum()
    if number:
        lines.append(f"{number} examples have no finite log p(x), and neither has the mean.")
    return lines
