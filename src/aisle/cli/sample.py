"""`aisle sample` and `aisle export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from aisle.cli.output import check_writable, table_console
from aisle.errors import InputError, check_seed
from aisle.experiments.options import optional

RunPath = Annotated[Path, arg(metavar="RUN")]


@dataclass
class Sample:
    """Draw pictures of a trained model: samples, and held-out examples with reconstructions.

    For example: aisle sample runs/digits --out samples.png
    """

    run_path: Positional[RunPath]
    """Folder of a training run."""

    out: Annotated[Path, arg(metavar="PNG")] = Path("samples.png")
    """File to write."""

    num_samples: int = 64
    """Pictures in each grid; of reconstructions, half as many with as many originals."""

    seed: int = 0
    """Seed of the draws."""

    data_dir: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the named data sets, or of the file, if it has moved since training."""

    def run(self) -> int:
        """Draw, and say where the file is."""
        if self.num_samples < 1:
            raise InputError(f"num_samples is {self.num_samples}: it must be at least 1")
        check_seed(self.seed)
        check_writable(self.out, ".png")
        import jax

        from aisle.experiments.held_out import held_out
        from aisle.experiments.training import open_run
        from aisle.report.pictures import reconstruction_panel, sample_panel, save_panels

        run = open_run(self.run_path)
        xs = held_out(run, max(1, self.num_samples // 2), self.data_dir).x
        key_samples, key_rest = jax.random.split(jax.random.key(self.seed))
        panels = [
            sample_panel(key_samples, run.model, self.num_samples),
            reconstruction_panel(key_rest, run.model, run.proposal, xs),
        ]
        save_panels(self.out, panels, run.shape)
        line = f"{self.out}: update {run.update:,} of {self.run_path}"
        table_console().print(line, soft_wrap=True, highlight=False)
        return 0


@dataclass
class Export:
    """Write the weights of a trained model to a safetensors file.

    The file's metadata hold the configuration, so that it can be loaded back without the run and
    without pickle. Equal weights give equal files.
    """

    run_path: Positional[RunPath]
    """Folder of a training run."""

    path: Positional[Annotated[Path, arg(metavar="FILE")]]
    """File to write, such as model.safetensors."""

    def run(self) -> int:
        """Export, and say where the file is."""
        check_writable(self.path, ".safetensors")
        from aisle.experiments.training import export_run, open_run

        run = open_run(self.run_path)
        export_run(run, self.path)
        line = f"{self.path}: update {run.update:,} of {self.run_path}"
        table_console().print(line, soft_wrap=True, highlight=False)
        return 0
