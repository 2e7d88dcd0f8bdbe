"""What all measurements of gradients share: how much is measured, on what, and its progress."""

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
from jaxtyping import PyTree

from aisle.errors import check, check_seed
from aisle.progress import Progress
from aisle.types import Model, PRNGKey, Proposal
from paper.core.chains import Preset, preset_for
from paper.gradients.averages import Examples


class Settings(NamedTuple):
    """How much is measured.

    Attributes:
        num_examples: held-out examples, spread evenly.
        repeats: independent estimates of the same examples.
        num_samples: K, chains of an example.
        temperatures: T of the paper's kernel, one or more of them.
        num_leapfrog: L of the paper's kernel.
        seed: of all draws.
        reference_temperatures: of the reference's chains.
        reference_parts: independent parts of the reference.
        reference_chains: of an example in each part.
        reference_stops: samples of each chain, the later ones from its walk at the posterior.
        reference_moves: transitions between two stops.
    """

    num_examples: int = 128
    repeats: int = 32
    num_samples: int = 5
    temperatures: tuple[int, ...] = (5, 11)
    num_leapfrog: int = 5
    seed: int = 0
    reference_temperatures: int = 500
    reference_parts: int = 8
    reference_chains: int = 4
    reference_stops: int = 16
    reference_moves: int = 15


def check_settings(settings: Settings) -> None:
    """Refuse numbers that make no sense, each with its rule."""
    lowest = min(settings.temperatures, default=0)
    rules = {
        "num_examples": (settings.num_examples >= 1, "at least 1"),
        "repeats": (settings.repeats >= 3, "at least 3, as standard errors come from them"),
        "num_samples": (settings.num_samples >= 1, "at least 1"),
        "temperatures": (lowest >= 1, "one or more numbers, each at least 1"),
        "num_leapfrog": (settings.num_leapfrog >= 1, "at least 1"),
    }
    for name, (is_kept, rule) in rules.items():
        check(is_kept, name, getattr(settings, name), rule)
    check_seed(settings.seed)


class Bench(NamedTuple):
    """What all measurements share."""

    model: Model
    proposal: Proposal
    examples: Examples
    pilot_xs: PyTree
    settings: Settings
    folder: Path | None
    show_progress: bool

    def key(self, *words: str) -> PRNGKey:
        """Return the key of a purpose: another line in a table changes no other line's draws."""
        number = zlib.crc32("/".join(words).encode())
        return jax.random.fold_in(jax.random.key(self.settings.seed), number)

    def preset(self, presets: Mapping[str, Preset], name: str) -> Preset:
        """Return a preset, without preconditioning where the proposal has no scale."""
        x = jax.tree.map(lambda a: a[0], self.examples.xs)
        return preset_for(presets, name, self.proposal, x)

    def meter(self, costs: Iterable[int]) -> "Meter":
        """Return a bar for work on all examples, so many gradients of each."""
        total = sum(costs) * len(self.examples.indices)
        return Meter(Progress(total, "", "gradients", is_shown=self.show_progress and total > 0))


class Meter:
    """Adds up the gradients that are spent, and shows them."""

    def __init__(self, progress: Progress):
        """Start from nothing."""
        self.progress, self._spent = progress, 0

    def spend(self, text: str, cost: int, num_examples: int) -> None:
        """Show that so many examples more are done, with `text` before the bar."""
        self._spent += cost * num_examples
        self.progress.advance(self._spent, text)
