"""`aisle sample` and `aisle export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from aisle.cli.options import DataName, ModelName, MovedData, RunPath
from aisle.cli.output import check_writable, table_console
from aisle.errors import InputError, check_count, check_seed

if TYPE_CHECKING:
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
    """Draw from a trained model: pictures of samples and reconstructions, or samples as an array.

    For example: aisle sample runs/digits --out samples.png
    """

    run_path: Positional[RunPath]

    out: Annotated[Path, arg(metavar="FILE")] = Path("samples.png")
    """File to write: .png for pictures, .npy for an array of the samples alone."""

    num_samples: int = 64
    """How many; of reconstructions, half as many with as many originals."""

    seed: int = 0
    """Seed of the draws."""

    model: ModelName = None
    data: DataName = None
    data_dir: MovedData = None

    def run(self) -> int:
        """Draw, and say where the file is."""
        check_count("num_samples", self.num_samples)
        check_seed(self.seed)
        check_writable(self.out, ".npy" if self.out.suffix == ".npy" else ".png")
        run, dataset = opened(self.run_path, self.model, self.data, self.data_dir)
        if self.out.suffix == ".npy":
            self._save_samples(run)
        else:
            self._draw(run, dataset)
        line = f"{self.out}: update {run.update:,} of {self.run_path}"
        table_console().print(line, soft_wrap=True, highlight=False)
        return 0

    def _save_samples(self, run: "Run") -> None:
        import numpy as np

        from aisle.files import writing
        from aisle.models import sample

        drawn = np.asarray(sample(run.model, self.num_samples, seed=self.seed))
        with writing(self.out) as part, part.open("wb") as file:
            np.save(file, drawn)

    def _draw(self, run: "Run", dataset: "Dataset | None") -> None:
        import jax

        from aisle.data import spread
        from aisle.report.pictures import reconstruction_panel, sample_panel, save_panels
        from aisle.runs.opening import load_data

        dataset = dataset or load_data(run, self.data_dir)
        held_out = dataset.valid or dataset.test
        xs = held_out.observe(spread(len(held_out), max(1, self.num_samples // 2)))
        key_samples, key_rest = jax.random.split(jax.random.key(self.seed))
        panels = [
            sample_panel(key_samples, run.model, self.num_samples),
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
        from aisle.report.card import check_new, export_with_card
        from aisle.runs.opening import export_run

        if not is_file:
            check_new(self.path)
        run, _ = opened(self.run_path, self.model, self.data, self.data_dir)
        (export_run if is_file else export_with_card)(run, self.path)
        line = f"{self.path}: update {run.update:,} of {self.run_path}"
        table_console().print(line, soft_wrap=True, highlight=False)
        return 0
