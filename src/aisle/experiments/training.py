"""A training run on disk: its configuration, how to start it, and how to open it again.

The configuration objects are what the command line fills in and what `config.json` stores. The
library below takes plain arguments.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from tyro.conf import arg

from aisle.errors import InputError

DEFAULT_EPOCHS = 100


@dataclass(frozen=True)
class MethodOptions:
    """How the gradient of log p(x) is estimated."""

    method: Literal["vae", "iwae", "dreg", "mh-hmc", "ais"] = "ais"
    """vae: evidence lower bound. iwae: importance-weighted bound. dreg: the same with doubly
    reparameterised gradients. mh-hmc: HMC at the posterior. ais: annealed importance sampling."""

    num_samples: Annotated[int, arg(aliases=["-K"])] = 5
    """K: samples of q, or chains, for each example."""

    num_temperatures: Annotated[int, arg(aliases=["-T"])] = 11
    """T: transitions of a chain (mh-hmc, ais)."""

    num_leapfrog: Annotated[int, arg(aliases=["-L"])] = 5
    """L: leapfrog steps of a transition (mh-hmc, ais)."""

    schedule: Literal["linear", "sigmoid", "geometric", "immediate"] = "linear"
    """Spacing of the inverse temperatures from q (0) to the posterior (1) (ais)."""

    target_accept: float = 0.6
    """Acceptance that the step size of each temperature is adapted towards."""

    precondition: float = 0.0
    """Power of the encoder's scale that preconditions HMC: 0 none, 0.5 its root, 1 the scale."""

    momentum_refresh: float = 1.0
    """Share of new noise in the momentum at each transition; 1 forgets the old momentum."""

    jitter: float = 0.0
    """Relative half-width of the random spread of step sizes."""


@dataclass(frozen=True)
class ModelOptions:
    """The networks, those of the IWAE study by default."""

    model: Literal["one-layer", "two-layer"] = "one-layer"
    """Stochastic layers: z, or (h1, h2) with twice the latents in h1."""

    num_latents: int = 50
    """Dimensions of the (top) latent."""

    num_hidden: int = 200
    """Units of a hidden layer."""

    likelihood: Literal["bernoulli", "gaussian"] = "bernoulli"
    """p(x|z): bits from logits, or real values with a learned scale for each."""

    init_from: Annotated[Path | None, arg(metavar="RUN")] = None
    """Start from the weights of another run, of the same networks."""


@dataclass(frozen=True)
class DataOptions:
    """What the model sees."""

    binarize: Literal["dynamic", "static", "none"] = "dynamic"
    """dynamic: new bits each time an example is drawn. static: the same bits. none: the values.
    Held-out data get bits once, from a fixed seed."""

    data_dir: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder of the named data sets; by default $AISLE_DATA, or else the user's cache."""


@dataclass(frozen=True)
class OptimizerOptions:
    """How the weights are updated."""

    batch_size: int = 128
    """Examples of an update."""

    optimizer: Literal["adam", "muon"] = "adam"
    """muon orthogonalises the updates of matrices: several times fewer epochs early on."""

    learning_rate: float | None = None
    """By default 0.001 for adam and 0.02 for muon."""

    lr_schedule: Literal["iwae-study", "cosine", "constant"] = "iwae-study"
    """iwae-study: x 10^(-i/7) for 3^i epochs. cosine: to zero at the last epoch."""

    warmup_epochs: int = 0
    """Of the epochs, train the first ones by a plain VAE: cheap, and early on as good."""

    ema: float = 0.0
    """Decay of a running average of the weights, which is then what is kept; 0 for none."""


@dataclass(frozen=True)
class RunOptions:
    """What is written, and when."""

    seed: int = 0
    """Seed of the weights, the order of the data and all draws."""

    validate_every: int = 1
    """Epochs between two bounds on held-out data."""

    checkpoint_minutes: float = 5.0
    """Minutes between two checkpoints; the last state is always kept."""

    keep_checkpoints: int = 3
    """Checkpoints that stay on disk."""

    tensorboard: bool = False
    """Also write the metrics for TensorBoard."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that determines a training run."""

    data: str
    num_epochs: int = DEFAULT_EPOCHS
    method: MethodOptions = field(default_factory=MethodOptions)
    model: ModelOptions = field(default_factory=ModelOptions)
    observations: DataOptions = field(default_factory=DataOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    run: RunOptions = field(default_factory=RunOptions)


class Run(NamedTuple):
    """A run opened again: its configuration and its weights at the newest checkpoint."""

    path: Path
    config: TrainConfig
    shape: tuple[int, ...]
    update: int
    model: Any
    proposal: Any


def train(config: TrainConfig, out: Path, *, show_progress: bool = True):
    """Start a new run in the folder `out`, which must not exist or be empty."""
    from aisle import data
    from aisle.learning import run_directory

    dataset = data.load(config.data, config.observations.data_dir)
    weights = _first_weights(config, dataset)
    facts = {
        "name": dataset.name,
        "source": dataset.source,
        "shape": list(dataset.shape),
        "num_train": len(dataset.train),
        "num_test": len(dataset.test),
    }
    _check(config, dataset)
    run_directory.create(out, {"train": to_json(config), "data": facts})
    return _fit(config, dataset, weights, out, resume=False, show_progress=show_progress)


def resume(out: Path, num_epochs: int | None = None, *, show_progress: bool = True):
    """Go on with a run from its newest checkpoint, perhaps to more epochs than planned."""
    from aisle import data
    from aisle.learning import run_directory

    stored = run_directory.read_config(out)
    config = from_json(stored, out)
    if num_epochs is not None and num_epochs != config.num_epochs:
        if num_epochs < config.num_epochs:
            raise InputError(
                f"epochs is {num_epochs} but {out} was planned for {config.num_epochs}: a run can "
                "be extended, not cut"
            )
        config = dataclasses.replace(config, num_epochs=num_epochs)
        run_directory.update_config(out, {**stored, "train": to_json(config)})
    dataset = data.load(config.data, config.observations.data_dir)
    weights = _first_weights(config, dataset)
    return _fit(config, dataset, weights, out, resume=True, show_progress=show_progress)


def open_run(path: Path) -> Run:
    """Load the weights of a run's newest checkpoint that is whole."""
    raise NotImplementedError(path)


def to_json(config: TrainConfig) -> dict[str, Any]:
    """Return a configuration as plain values."""
    return dataclasses.asdict(
        config, dict_factory=lambda items: {k: str(v) if isinstance(v, Path) else v for k, v in items}
    )


def from_json(stored: dict[str, Any], path: Path) -> TrainConfig:
    """Read a configuration back; fields that are not there have their defaults."""
    try:
        values = dict(stored["train"])
        parts = {f.name: f.default_factory for f in dataclasses.fields(TrainConfig)}
        for name, make in parts.items():
            if make is not dataclasses.MISSING:
                values[name] = type(make())(**values.get(name, {}))
        return TrainConfig(**values)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path / 'config.json'} is not the configuration of a training run ({error}): give "
            "the folder of one"
        ) from None


def _fit(config, dataset, weights, out, *, resume: bool, show_progress: bool):
    from aisle.learning.trainer import fit

    return fit(
        *weights,
        dataset.train,
        num_epochs=config.num_epochs,
        held_out=dataset.test,
        **_plain(config),
        out=out,
        resume=resume,
        show_progress=show_progress,
    )
