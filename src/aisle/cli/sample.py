"""`aisle sample` and `aisle export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from aisle.cli.devices import set_up_jax
from aisle.cli.options import DataName, ModelName, MovedData, RunPath, optional
from aisle.cli.output import check_writable, show, write_rows
from aisle.errors import InputError, check_count, check_seed

if TYPE_CHECKING:
    from aisle.context import Context
    from aisle.data import Dataset
    from aisle.runs.opening import Run


def opened(
    path: Path, model: str | None, data: str | None, data_dir: Path | None
) -> tuple["Run", "Dataset | None"]:
    """Open a run; one of `aisle.fit` by the function that builds its networks, and its data."""
    import jax

    from aisle.data import View, load
    from aisle.runs.networks import own_networks
    from aisle.runs.opening import open_run

    if model is None:
        return open_run(path, data_dir=data_dir), None
    if data is None:
        raise InputError("--model needs --data, the examples that the function is called with")
    dataset = load(data, data_dir, view=View())
    networks = own_networks(model, jax.random.key(0), dataset.train)
    return open_run(path, *networks), dataset


@dataclass
class Sample:
    """Draw from a trained model: samples as pictures, as an array or as a table.

    For example: aisle sample runs/digits --out samples.png

    Of a model with conditions: aisle sample runs/patients --given sex=f,age=30 --out samples.csv
    """

    run_path: Positional[RunPath]

    out: Annotated[Path, arg(metavar="FILE")] = Path("samples.png")
    """File to write.
    .png: pictures of samples and of reconstructions. .npy: an array of samples.
    .csv, .tsv: samples of a table, with names of columns and levels, and what they were given."""

    num_samples: int = 64
    """How many; of reconstructions, half as many with as many originals."""

    seed: int = 0
    """Seed of the draws."""

    given: Annotated[str | None, optional(metavar="NAME=VALUE,...")] = None
    """Conditions of the samples, and their exposure by its name, as in sex=f,age=30.
    What is not given is that of held-out rows."""

    model: ModelName = None
    data: DataName = None
    data_dir: MovedData = None

    def run(self) -> int:
        """Draw, and say where the file is."""
        check_count("num_samples", self.num_samples)
        check_seed(self.seed)
        check_writable(self.out, ".png", ".npy", ".csv", ".tsv")
        set_up_jax()
        from aisle.runs.tables import contexts_for, sampled

        run, dataset = opened(self.run_path, self.model, self.data, self.data_dir)
        context = contexts_for(run, self.num_samples, self.given, self.data_dir)
        if self.out.suffix == ".npy":
            self._save_samples(run, context)
        elif self.out.suffix == ".png":
            self._draw(run, dataset, context)
        else:
            write_rows(self.out, *sampled(run, self.num_samples, context, self.seed))
        show(f"{self.out}: update {run.update:,} of {self.run_path}")
        return 0

    def _save_samples(self, run: "Run", context: "Context | None") -> None:
        import numpy as np

        from aisle.files import writing
        from aisle.models import sample

        drawn = np.asarray(sample(run.model, self.num_samples, context, seed=self.seed))
        with writing(self.out) as part, part.open("wb") as file:
            np.save(file, drawn)

    def _draw(self, run: "Run", dataset: "Dataset | None", context: "Context | None") -> None:
        import jax

        from aisle.data import as_split, spread
        from aisle.report.pictures import reconstruction_panel, sample_panel, save_panels
        from aisle.runs.opening import load_data

        dataset = dataset or load_data(run, self.data_dir)
        held_out = dataset.valid or dataset.test
        chosen = spread(len(held_out), max(1, self.num_samples // 2))
        xs = as_split(held_out, model=run.model).with_context(held_out.observe(chosen), chosen)
        key_samples, key_rest = jax.random.split(jax.random.key(self.seed))
        panels = [
            sample_panel(key_samples, run.model, self.num_samples, context),
            reconstruction_panel(key_rest, run.model, run.proposal, xs),
        ]
        save_panels(self.out, panels, run.shape or dataset.shape)


@dataclass
class Export:
    """Write a trained model to a folder for others, or its weights to a file.

    The folder has the weights (model.safetensors), a card that describes them (README.md) and a
    picture of samples. The weights hold the configuration, so that aisle.load reads them without
    the run and without pickle. Equal weights give equal files.
    """

    run_path: Positional[RunPath]

    path: Positional[Annotated[Path, arg(metavar="PATH")]]
    """New folder to write, or a file for the weights alone, such as model.safetensors."""

    model: ModelName = None
    data: DataName = None
    data_dir: MovedData = None

    def run(self) -> int:
        """Export, and say where the file is."""
        is_file = bool(self.path.suffix)
        if is_file:
            check_writable(self.path, ".safetensors")
        set_up_jax()
        from aisle.report.card import check_new, export_with_card
        from aisle.runs.opening import export_run

        if not is_file:
            check_new(self.path)
        run, _ = opened(self.run_path, self.model, self.data, self.data_dir)
        (export_run if is_file else export_with_card)(run, self.path)
        show(f"{self.path}: update {run.update:,} of {self.run_path}")
        return 0
