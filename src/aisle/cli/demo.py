"""`aisle demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tyro.conf import arg

from aisle.cli.devices import set_up_jax
from aisle.cli.output import Columns, plain, screen_table, show, write_json
from aisle.errors import InputError, check_count
from aisle.runs.options import (
    EvaluateConfig,
    MethodName,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    SamplerOptions,
    TrainConfig,
)

if TYPE_CHECKING:
    from aisle.evaluation import LogLikelihood
    from aisle.runs.opening import Run
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
METHODS: tuple[MethodName, ...] = ("vae", "dreg", "mh-hmc", "ais")
# Of a digit.
_SHAPE = (8, 8)


class Compared(NamedTuple):
    """What the table says of a method."""

    method: str
    updates: int
    decoder_gradients: int
    seconds: float
    log_likelihood: "Mean"
    gap: "Mean"
    better_than_vae: "Mean | None"


@dataclass
class Demo:
    """Train four methods on the embedded digits and compare them, in minutes.

    vae, dreg, mh-hmc and ais make the same number of updates of the same networks. Ends with a
    table, with pictures of samples and with a page to look at, report.html, in the folder given. A
    demo that was interrupted is resumed by the same command.
    """

    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo")
    """Folder of the runs, the table (results.json), the pictures and the page."""

    epochs: int = 100
    """Passes over the 1,350 training digits."""

    seed: int = 0
    """Seed of everything."""

    def run(self) -> int:
        """Train, compare, print the table and draw."""
        check_count("epochs", self.epochs)
        set_up_jax()
        import jax

        from aisle.cli.report import Report
        from aisle.provenance import provenance
        from aisle.report.pictures import sample_panel, save_panels

        found, panels = {}, []
        for name in METHODS:
            show(f"training {name}")
            run, result = self._trained(name)
            found[name] = (run, result)
            panel = sample_panel(jax.random.key(self.seed), run.model, 64)
            panels.append(panel._replace(title=f"samples, {name}"))
        vae = found["vae"][1]
        rows = [_compared(name, run, result, vae) for name, (run, result) in found.items()]
        show(screen_table(TITLE, COLUMNS, [texts(row) for row in rows]))
        content = {"epochs": self.epochs, "seed": self.seed, **provenance()}
        write_json(self.out / "results.json", {"results": [plain(row) for row in rows], **content})
        save_panels(self.out / "samples.png", panels, _SHAPE)
        show(self.out / "samples.png", self.out / "results.json")
        try:
            folders = tuple(self.out / name for name in METHODS)
            Report(folders, self.out / "report.html", seed=self.seed).write()
            show(self.out / "report.html")
        except InputError as error:
            # All else is there: the page needs an extra that not everybody has installed.
            show(f"no report.html: {error}")
        return 0

    def _trained(self, name: MethodName) -> tuple["Run", "LogLikelihood"]:
        """Train and evaluate one method, as far as that is not done."""
        from aisle.runs.evaluating import evaluate
        from aisle.runs.training import completed

        config = TrainConfig(
            "digits",
            self.epochs,
            method=MethodOptions(name),
            model=ModelOptions(num_latents=20, num_hidden=100),
            optimizer=OptimizerOptions(batch_size=100, optimizer="adam", learning_rate=3e-3),
            run=RunOptions(seed=self.seed, validate_every=10),
        )
        run = completed(config, self.out / name)
        sampler = SamplerOptions(num_chains=8, num_temperatures=200, seed=self.seed)
        return run, evaluate(run, EvaluateConfig(sampler=sampler))[0]


def _compared(name: str, run: "Run", result: "LogLikelihood", vae: "LogLikelihood") -> Compared:
    from aisle.runs.folder import last_metrics
    from aisle.statistics import summarise

    last, gap = last_metrics(run.path), result.gap
    assert gap is not None
    better = None if result is vae else summarise(result.log_p - vae.log_p)
    cost = (run.update, last["decoder_gradients"], last["seconds"])
    return Compared(name, *cost, result.estimate, gap, better)


def texts(row: Compared) -> list[str]:
    """Return what the table says of a method."""
    better = row.better_than_vae
    return [
        row.method,
        f"{row.updates:,}",
        f"{row.decoder_gradients:,}",
        f"{row.seconds:.0f}",
        str(row.log_likelihood),
        str(row.gap),
        "" if better is None else str(better),
    ]
