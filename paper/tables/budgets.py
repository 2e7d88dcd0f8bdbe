"""How much work goes into the cells of a table.

smoke   seconds a cell, on the digits: that everything works
cpu     what two cores can do in hours: a start by cheap methods, then at least 10,000 updates
        of each cell's own, with the same start and the same recipe for all of a table
paper   3,280 epochs by the IWAE study's learning rates, for accelerators
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from paper.tables.plans import Evaluation, Networks, Optimizer

DATA = ("mnist", "omniglot")


class Extension(NamedTuple):
    """A cell that would take too long: some epochs more, at a low rate, after another cell."""

    start: str
    epochs: int


class Budget(NamedTuple):
    """How much work goes into a cell.

    Attributes:
        epochs: of a cell, by data set.
        evaluation: likewise.
        careful: evaluation where the encoder is too sure of itself, for all data sets.
        start_epochs: of the cheap start by a VAE, likewise; empty for no start.
        annealed_epochs: of AIS with the tuned kernel after that, likewise, before the cells of the
            paper's tables: a VAE gives up latents, and the paper's kernel does not bring them back.
        default_epochs: of the library's default recipe, on MNIST.
        extensions: cells that would take too long otherwise, by data set and name.
        extension_rate: learning rate of these.
        networks: of every cell, but for what its base changes.
        start_optimizer: of the start.
        optimizer: of every other cell.
        data: stands in for the table's own data set, or None.
    """

    epochs: Mapping[str, int]
    evaluation: Mapping[str, Evaluation]
    careful: Evaluation
    start_epochs: Mapping[str, int] = {}
    annealed_epochs: Mapping[str, int] = {}
    default_epochs: int = 1
    extensions: Mapping[str, Mapping[str, Extension]] = {}
    extension_rate: float | None = None
    networks: Networks = Networks()
    start_optimizer: Optimizer = Optimizer()
    optimizer: Optimizer = Optimizer()
    data: str | None = None


def _annealing(num_examples: int, whole_split: int = 0, **sampler: Any) -> Evaluation:
    return Evaluation(num_examples, whole_split, importance_samples=100, **sampler)


def _muon(rate: float) -> Optimizer:
    return Optimizer(optimizer="muon", learning_rate=rate, lr_schedule="cosine")


# Where posteriors are narrow, small steps, and many of them, from a start that is not too narrow.
CAREFUL = {"refit": 6000, "num_leapfrog": 8, "target_accept": 0.97}

BUDGETS = {
    "smoke": Budget(
        epochs=dict.fromkeys(DATA, 1),
        evaluation=dict.fromkeys(
            DATA, _annealing(20, 5, num_chains=2, num_temperatures=10, bdmc_examples=8)
        ),
        careful=_annealing(20, 5, num_chains=2, num_temperatures=10, bdmc_examples=8, refit=5),
        start_epochs=dict.fromkeys(DATA, 1),
        annealed_epochs=dict.fromkeys(DATA, 1),
        default_epochs=2,
        extensions={"mnist": {"ais-T5-K50": Extension("ais-T5-K5", 1)}},
        extension_rate=0.0005,
        networks=Networks(num_latents=4, num_hidden=16),
        start_optimizer=Optimizer(batch_size=100),
        optimizer=Optimizer(batch_size=100),
        data="digits",
    ),
    "cpu": Budget(
        epochs={"mnist": 22, "omniglot": 53},
        # Chosen for a gap below 0.2.
        evaluation={
            "mnist": _annealing(1000, 30, num_chains=8, num_temperatures=500),
            "omniglot": _annealing(1000, 30, num_chains=8, num_temperatures=1000),
        },
        careful=_annealing(1000, 30, num_chains=8, num_temperatures=1000, **CAREFUL),
        start_epochs={"mnist": 120, "omniglot": 240},
        annealed_epochs={"mnist": 11, "omniglot": 26},
        default_epochs=50,
        extensions={
            "mnist": {
                "ais-T5-K50": Extension("ais-T5-K5", 2),
                "ais-T11-K50": Extension("ais-T11-K5", 1),
            },
            "omniglot": {
                "ais-T5-K50": Extension("ais-T5-K5", 5),
                "ais-T11-K50": Extension("ais-T11-K5", 3),
                "mh-hmc-T5-K50": Extension("mh-hmc-T5-K5", 5),
                "mh-hmc-T11-K50": Extension("mh-hmc-T11-K5", 3),
                "dreg-K275": Extension("dreg-K55", 12),
                "dreg-K2750": Extension("dreg-K275", 1),
            },
        },
        extension_rate=0.0025,
        start_optimizer=_muon(0.02),
        optimizer=_muon(0.0075),
    ),
    "paper": Budget(
        epochs=dict.fromkeys(DATA, 3280),
        default_epochs=3280,
        evaluation=dict.fromkeys(
            DATA, _annealing(10_000, kernel="paper", num_chains=16, num_temperatures=10_000)
        ),
        careful=_annealing(10_000, num_chains=16, num_temperatures=10_000, **CAREFUL),
    ),
}
