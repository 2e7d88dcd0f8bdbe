"""Everything that determines a training run, and the objects that it stands for."""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aisle.errors import InputError, check_count
from aisle.runs.options.groups import (
    DataOptions,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
)

if TYPE_CHECKING:
    from aisle.data import View
    from aisle.learning import Recipe

# The rate of longer chains at the end, as a share of that before.
_LATE_RATE = 0.4


@dataclass(frozen=True)
class TrainConfig:
    """Everything that determines a training run."""

    data: str
    num_epochs: int | None = None
    num_updates: int | None = None
    method: MethodOptions = field(default_factory=MethodOptions)
    model: ModelOptions = field(default_factory=ModelOptions)
    observations: DataOptions = field(default_factory=DataOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    run: RunOptions = field(default_factory=RunOptions)

    def view(self) -> "View":
        """Return how stored examples become what the model sees."""
        from aisle.data import View
        from aisle.data.arrays import is_file_name, is_table_name

        seen, likelihood = self.observations, self.model.likelihood
        if is_table_name(self.data):
            if seen.grey or seen.binarize not in (None, "none"):
                raise InputError(f"{self.data} is a table: leave --grey and --binarize out")
            return View()
        is_bits = likelihood in ("auto", "bernoulli")
        binarize = seen.binarize or ("dynamic" if is_bits and not self.model.is_own else "none")
        if binarize != "none" and not is_bits:
            raise InputError(
                f"is {binarize!r} but likelihood is {likelihood}, which is not of bits: leave it "
                "out",
                argument="binarize",
            )
        is_grey = seen.grey or not is_file_name(self.data)
        is_flat = not self.model.is_own and self.model.network != "conv"
        return View(is_grey, binarize, is_flat)

    def recipe(self, updates_per_epoch: int, num_updates: int) -> "Recipe":
        """Return the phases of training, for data of so many updates in an epoch."""
        from aisle.learning import VAE, Phase, Recipe

        method, options = self.method.build(), self.optimizer
        epochs = options.warmup_epochs
        if epochs is not None:
            check_count("warmup_epochs", epochs, 0)
        warm = num_updates // 2 if self.method.method == "auto" else 0
        warm = warm if epochs is None else epochs * updates_per_epoch
        if warm > num_updates:
            raise InputError(
                f"is {epochs}, which is longer than the whole training: give fewer",
                argument="warmup_epochs",
            )
        main = Phase(method, self._optimizer(self.method.has_chains, options.learning_rate))
        rate = None if self.method.method == "auto" else options.learning_rate
        start = Phase(VAE(), self._optimizer(False, rate))
        shares, rest = [(start, warm)], num_updates - warm
        late = self.method.build_late()
        if late is not None:
            if self.run.keep != "last":
                raise InputError(
                    "is 'best' but chains become longer at the end: give last, as quick bounds on "
                    "validation data are less tight for what longer chains learn",
                    argument="keep",
                )
            lower = _LATE_RATE * main.optimizer.learning_rate
            optimizer = dataclasses.replace(main.optimizer, learning_rate=lower)
            shares.append((main, rest - rest // 2))
            main, rest = Phase(late, optimizer), rest // 2
        shares.append((main, rest))
        phases = [
            dataclasses.replace(phase, share=float(share)) for phase, share in shares if share
        ]
        return Recipe(tuple(phases), options.ema)

    def _optimizer(self, has_chains: bool, rate: float | None) -> Any:
        from aisle.learning import Adam, Muon, rates
        from aisle.learning.optimizers import RATE_WITH_CHAINS

        schedules = {
            "cosine": rates.cosine,
            "iwae-study": rates.iwae_study,
            "constant": rates.constant,
        }
        kind = Adam if self.optimizer.optimizer == "adam" else Muon
        usual = RATE_WITH_CHAINS if has_chains and kind is Muon else kind().learning_rate
        schedule = schedules[self.optimizer.lr_schedule]
        decay = self.optimizer.weight_decay
        return kind(usual if rate is None else rate, schedule, decay)


# The groups of options of a training run, by their names in it.
GROUPS = {
    option.name: option.default_factory
    for option in dataclasses.fields(TrainConfig)
    if dataclasses.is_dataclass(option.default_factory)
}
