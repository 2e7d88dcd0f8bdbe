"""`aisle report`."""

import dataclasses
import importlib.util
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from aisle.cli.devices import set_up_jax
from aisle.cli.options import DataName, ModelName, MovedData, optional
from aisle.cli.output import check_writable, show
from aisle.errors import InputError, check, check_seed
from aisle.runs.options import EvaluateConfig, SamplerOptions

if TYPE_CHECKING:
    from aisle.report.reading import Evaluation, Run

# Pictures of each kind beyond which a page would be slow.
_MOST_EXAMPLES = 128


@dataclass
class Report:
    """Write a page about runs: results, curves, samples, latents, and how to reproduce them.

    For example: aisle report runs/vae runs/ais --out report.html

    The page is one file that needs no network. Runs on the same data are compared with the first
    of them.
    """

    run_paths: Positional[Annotated[tuple[Path, ...], optional(metavar="RUN [RUN ...]")]]
    """Folders of training runs."""

    out: Annotated[Path, arg(metavar="HTML")] = Path("report.html")
    """File to write."""

    num_examples: int = 32
    """Pictures of samples shown of each run; half as many reconstructions."""

    seed: int = 0
    """Seed of the draws."""

    label: Annotated[str | None, optional(metavar="COLUMN")] = None
    """Column of a table that colours the latents, also one that was left out of the model.
    By default a condition, or else the first category."""

    model: ModelName = None
    data: DataName = None
    data_dir: MovedData = None

    def run(self) -> int:
        """Write the page, and print where it is."""
        set_up_jax()
        self.write()
        show(self.out)
        return 0

    def write(self) -> None:
        """Open the runs and write the page about them."""
        self._check()
        from aisle.report.page import save_page

        runs = [self._open(path) for path in self.run_paths]
        save_page(self.out, runs, num_examples=self.num_examples, seed=self.seed)

    def _open(self, path: Path) -> "Run":
        """Read a run, and load its weights and data where its networks can be built."""
        from aisle.cli.sample import opened
        from aisle.report.labelling import with_data
        from aisle.report.reading import Weights, read_run
        from aisle.runs import commands
        from aisle.runs.opening import load_data

        found = read_run(path)
        is_own = "fit" in found.config
        if is_own and self.model is None:
            return found
        run, dataset = opened(path, self.model if is_own else None, self.data, self.data_dir)
        shape = run.shape or (() if dataset is None else dataset.shape)
        weights, lines = Weights(run.model, run.proposal, shape, None), ()
        try:
            dataset = dataset or load_data(run, self.data_dir)
        except InputError as error:
            weights = weights._replace(problem=f"The data are not available: {error}.")
        else:
            place = self.data_dir or (run.config and run.config.observations.data_dir)
            weights = with_data(weights, dataset, self.label, place)
        if run.config is not None:
            train = f"{commands.train(run.config)} --out {shlex.quote(str(path))}"
            evaluations = [_evaluate_command(path, e) for e in reversed(found.evaluations)]
            lines = (train, *filter(None, evaluations))
        return found._replace(update=run.update, weights=weights, commands=lines)

    def _check(self) -> None:
        check_seed(self.seed)
        is_kept = 1 <= self.num_examples <= _MOST_EXAMPLES
        check(is_kept, "num_examples", self.num_examples, f"from 1 to {_MOST_EXAMPLES}")
        if not self.run_paths:
            raise InputError("no RUN is given: give the folder of at least one training run")
        places = [path.resolve() for path in self.run_paths]
        for i, path in enumerate(self.run_paths):
            if places[i] in places[:i]:
                raise InputError(f"{path} is given twice: give each run once")
        check_writable(self.out, ".html")
        if importlib.util.find_spec("jinja2") is None:
            raise InputError("the report needs Jinja2: pip install 'aisle[report]'")


def _evaluate_command(path: Path, evaluation: "Evaluation") -> str | None:
    """Return the command of an evaluation; a program may have made it, and then there is none."""
    from aisle.runs import commands

    names = {field.name for field in dataclasses.fields(SamplerOptions)}
    about = evaluation.settings.get("about") or {}
    # The first edition wrote the sampler's options beside the others.
    sampler = about.get("sampler") or {
        name: v for name, v in evaluation.settings.items() if name in names
    }
    asked = {name: value for name, value in about.items() if name not in ("update", "sampler")}
    try:
        config = EvaluateConfig(**asked, sampler=SamplerOptions(**sampler))
    except TypeError:
        return None
    return commands.evaluate(path, config) if about else None
