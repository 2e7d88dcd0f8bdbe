"""How a cell of a table is trained and evaluated, as it is written into its files.

A cell on record is the cell that is wanted if both have the same plan. A file may lack options that
came later, which then had their defaults, and it may have options that no table varies.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

# Methods that move chains; the others only draw from the encoder.
_WITH_CHAINS = ("ais", "mh-hmc", "auto")

_Plan = TypeVar("_Plan")


@dataclass(frozen=True)
class Method:
    """How the gradient of log p(x) is estimated.

    Attributes:
        method: auto is the library's default, whose options are its own.
        num_samples: K.
        num_temperatures: T, of methods with chains, as is all that follows.
        kernel: sets each of the next five that is None.
    """

    method: Literal["vae", "dreg", "mh-hmc", "ais", "auto"]
    num_samples: int = 1
    num_temperatures: int = 11
    kernel: Literal["tuned", "paper"] = "tuned"
    num_leapfrog: int | None = None
    schedule: Literal["linear", "ramp"] | None = None
    target_accept: float | None = None
    precondition: float | None = None
    momentum_refresh: float | None = None
    phi_objective: Literal["elbo", "elbo+wake"] = "elbo"

    @property
    def has_chains(self) -> bool:
        """Whether it moves chains."""
        return self.method in _WITH_CHAINS

    @property
    def effective(self) -> "Method":
        """The method without the options that it has no use for."""
        if not self.has_chains:
            return Method(self.method, self.num_samples)
        # The chains of MH-HMC are at the posterior from the first move on.
        return dataclasses.replace(self, schedule=None) if self.method == "mh-hmc" else self


@dataclass(frozen=True)
class Networks:
    """The networks, those of the IWAE study by default."""

    model: Literal["one-layer", "two-layer"] = "one-layer"
    num_latents: int = 50
    num_hidden: int = 200


@dataclass(frozen=True)
class Optimizer:
    """How the weights are updated; a rate of None is the optimiser's usual one."""

    batch_size: int = 128
    optimizer: Literal["adam", "muon"] = "adam"
    learning_rate: float | None = None
    lr_schedule: Literal["iwae-study", "cosine", "constant"] = "iwae-study"
    ema: float = 0.0


@dataclass(frozen=True)
class Training:
    """Everything that a cell's weights depend on, but for the weights that it starts from.

    Attributes:
        num_valid: training examples set aside for validation; None for the library's default.
        keep: the weights of the best bound on these, or the last.
    """

    data: str
    num_epochs: int
    method: Method
    networks: Networks = field(default_factory=Networks)
    optimizer: Optimizer = field(default_factory=Optimizer)
    seed: int = 0
    num_valid: int | None = 0
    keep: Literal["best", "last"] = "last"


@dataclass(frozen=True)
class Evaluation:
    """How log p(x) of the test examples is estimated.

    Attributes:
        num_examples: annealed at length.
        whole_split: temperatures of a short run on all examples; 0 for none.
        num_leapfrog: None for that of the kernel, as are the next two.
        refit: updates of a copy of the encoder that the chains start from; 0 for the encoder.
        bdmc_examples: simulated for bidirectional Monte Carlo.
        importance_samples: of the importance-weighted bound; 0 for none.
    """

    num_examples: int = 1000
    whole_split: int = 0
    kernel: Literal["tuned", "paper"] = "tuned"
    num_chains: int = 16
    num_temperatures: int = 500
    num_leapfrog: int | None = None
    schedule: Literal["linear", "sigmoid"] | None = None
    target_accept: float | None = None
    refit: int = 0
    bdmc_examples: int = 100
    importance_samples: int = 0


def training_json(plan: Training) -> dict[str, Any]:
    """Return the plan of a cell's training as its files have it."""
    return {
        "data": plan.data,
        "num_epochs": plan.num_epochs,
        "method": dataclasses.asdict(plan.method.effective),
        "model": dataclasses.asdict(plan.networks),
        "optimizer": dataclasses.asdict(plan.optimizer),
        "observations": {"num_valid": plan.num_valid},
        "run": {"seed": plan.seed, "keep": plan.keep},
    }


def first_command(plan: Training, start: str | None) -> str:
    """Return the command of a plan in aisle 0.1, which tables on record name.

    Its defaults are those of the classes above, but for five chains of AIS.
    """
    usual = (Method("ais", 5), Networks(), Optimizer())
    groups = (plan.method.effective, plan.networks, plan.optimizer)
    words = ["aisle", "train", plan.data, "--epochs", plan.num_epochs]
    for own, other in zip(groups, usual, strict=True):
        for name, value in dataclasses.asdict(own).items():
            if value != getattr(other, name):
                words += [f"--{name.replace('_', '-')}", value]
    words += ["--seed", plan.seed] if plan.seed else []
    words += ["--init-from", start] if start else []
    return " ".join(map(str, words))


def read_training(stored: Mapping[str, Any]) -> Training:
    """Return the plan of a file; raise TypeError, KeyError or AttributeError if it has none."""
    return Training(
        stored["data"],
        stored["num_epochs"],
        _pick(Method, stored["method"]).effective,
        _pick(Networks, stored["model"]),
        _pick(Optimizer, stored["optimizer"]),
        stored["run"]["seed"],
        stored.get("observations", {}).get("num_valid", 0),
        stored["run"].get("keep", "last"),
    )


def evaluation_json(plan: Evaluation) -> dict[str, Any]:
    """Return the plan of a cell's evaluation as its files have it."""
    whole = dataclasses.asdict(plan)
    examples = {name: whole.pop(name) for name in ("num_examples", "whole_split")}
    return examples | {"sampler": whole}


def read_evaluation(stored: Mapping[str, Any]) -> Evaluation:
    """Return the plan of a file; raise TypeError, KeyError or AttributeError if it has none."""
    return _pick(Evaluation, {**stored, **stored["sampler"]})


def _pick(kind: type[_Plan], stored: Mapping[str, Any]) -> _Plan:
    names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    return kind(**{name: stored[name] for name in names if name in stored})
