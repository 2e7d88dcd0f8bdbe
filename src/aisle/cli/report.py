"""`aisle report`."""

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from aisle.cli.devices import set_up_jax
from aisle.cli.options import optional
from aisle.cli.output import check_writable, table_console
from aisle.errors import InputError, check_seed
from aisle.runs.options import EvaluateConfig, SamplerOptions

if TYPE_CHECKING:
    from aisle.data import Dataset
    from aisle.experiments.training import Run
    from aisle.report.page.reading import Evaluation
    from aisle.report.page.subjects import Origin, Subject

# Pictures of each kind beyond which a page would be slow.
_MOST_EXAMPLES = 128


@dataclass
class Report:
    """Write a page about runs: figures, curves, pictures, certificates and how to reproduce them.

    For example: aisle report runs/vae runs/ais --out report.html

    The page is one file that needs no network. The runs are compared with the first; what is
    missing, such as an evaluation, is named with the command that makes it.
    """

    run_paths: Positional[Annotated[tuple[Path, ...], optional(metavar="RUN [RUN ...]")]]
    """Folders of training runs."""

    out: Annotated[Path, arg(metavar="HTML")] = Path("report.html")
    """File to write."""

    num_examples: int = 32
    """Samples shown of each run; of reconstructions, half as many with as many originals."""

    seed: int = 0
    """Seed of the draws."""

    data_dir: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the named data sets, or of the file, if it has moved since training."""

    def run(self) -> int:
        """Write the page, and say where it is."""
        set_up_jax()
        write_report(
            self.run_paths,
            self.out,
            num_examples=self.num_examples,
            seed=self.seed,
            data_dir=self.data_dir,
        )
        table_console().print(str(self.out), soft_wrap=True, highlight=False)
        return 0


def write_report(
    run_paths: Sequence[Path],
    out: Path,
    *,
    num_examples: int = 32,
    seed: int = 0,
    data_dir: Path | None = None,
) -> None:
    """Open runs and write the page about them."""
    check_seed(seed)
    rules = {"num_examples": (1 <= num_examples <= _MOST_EXAMPLES, f"from 1 to {_MOST_EXAMPLES}")}
    check_rules({"num_examples": num_examples}, rules)
    _check_paths(run_paths)
    check_writable(out, ".html")
    from aisle.report.page.writing import save_page

    subjects = [_open(path, data_dir) for path in run_paths]
    save_page(out, subjects, num_examples=num_examples, seed=seed)


def _check_paths(paths: Sequence[Path]) -> None:
    if not paths:
        raise InputError("no RUN is given: give the folder of at least one training run")
    whole = [path.resolve() for path in paths]
    for i, path in enumerate(whole):
        if path in whole[:i]:
            raise InputError(f"{paths[i]} is given twice: give each run once")


def _open(path: Path, data_dir: Path | None) -> "Subject":
    """Open a run with all that a page says of it."""
    from aisle.experiments import commands
    from aisle.experiments.training import open_run
    from aisle.report.page.reading import read_folder
    from aisle.report.page.subjects import Subject

    run = open_run(path)
    folder = read_folder(path, run.update)
    dataset, problem = _load(run, data_dir)
    origins = {e.path.name: _origin(run, e) for e in folder.evaluations}
    return Subject(
        folder,
        run.update,
        run.shape,
        run.model,
        run.proposal,
        dataset,
        problem,
        run.config.observations.binarize,
        f"{commands.train(commands.used(run.config))} --out {shlex.quote(str(path))}",
        f"aisle evaluate {shlex.quote(str(path))}",
        {name: origin for name, origin in origins.items() if origin is not None},
    )


def _load(run: "Run", data_dir: Path | None) -> "tuple[Dataset | None, str]":
    """Load a run's data; without them there is still a page, which says what is missing."""
    from aisle.experiments.training import load_data

    try:
        return load_data(run.path, run.config, data_dir), ""
    except InputError as error:
        return None, f"{error}."


def _origin(run: "Run", evaluation: "Evaluation") -> "Origin | None":
    """Say how an evaluation came about, by what it has noted itself."""
    from aisle.experiments import commands
    from aisle.report.page.subjects import Origin

    settings = evaluation.found.settings
    about = settings.get("about") or {}
    names = {field.name for field in dataclasses.fields(SamplerOptions)}
    sampler = SamplerOptions(**{k: v for k, v in settings.items() if k in names})
    try:
        asked = {name: value for name, value in about.items() if name != "update"}
        config, update = EvaluateConfig(**asked, sampler=sampler), about["update"]
    except (KeyError, TypeError):
        # A program may note what it likes, or nothing.
        return None
    other = None if config.data == run.config.data else config.data
    return Origin(config.split, update, commands.evaluate(run.path, config), other)
