"""`aisle reproduce`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from aisle.cli import figure1
from aisle.cli.devices import set_up_jax


@dataclass
class Reproduce:
    """Run an experiment of the paper anew, and say whether its claim holds.

    figure1: q_IS and q_AIS at the same cost, on a correlated normal target; in a minute.
    """

    what: Positional[Literal["figure1"]]
    """Which one."""

    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder of the picture (.png), the table (.md) and all figures (.json); by default
    runs/figure1."""

    draws: int = 20_000
    """Points to draw from each sampler."""

    correlation: float = 0.95
    """Correlation of the target's two variables."""

    seed: int = 0
    """Seed of everything."""

    def run(self) -> int:
        """Run the experiment, print its table and write its files."""
        set_up_jax()
        out = Path("runs") / self.what if self.out is None else self.out
        return _EXPERIMENTS[self.what](self, out)


_EXPERIMENTS: dict[str, Callable[[Reproduce, Path], int]] = {
    "figure1": lambda command, out: figure1.reproduce(
        out, command.draws, command.correlation, command.seed
    ),
}
