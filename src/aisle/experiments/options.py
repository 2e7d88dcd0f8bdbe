"""The configuration of a training run: what the command line fills in and `config.json` stores.

It is read in this layer and above only; the library below takes plain arguments. Nothing here
needs JAX, so that `aisle train --help` answers at once.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

# An option whose text says what holds without it.
optional = partial(arg, help_behavior_hint="")

DEFAULT_EPOCHS = 100


@dataclass(frozen=True)
class MethodOptions:
    """How the gradient of log p(x) is estimated."""

    method: Literal["vae", "iwae", "dreg", "mh-hmc", "ais"] = "ais"
    """vae: evidence lower bound.
    iwae: importance-weighted bound.
    dreg: the same with doubly reparameterised gradients.
    mh-hmc: HMC at the posterior.
    ais: annealed importance sampling."""

    num_samples: Annotated[int, arg(aliases=["-K"])] = 5
    """K: samples of q, or chains, for each example."""

    num_temperatures: Annotated[int, arg(aliases=["-T"])] = 11
    """T: transitions of a chain (mh-hmc, ais)."""

    kernel: Literal["tuned", "paper"] = "tuned"
    """What a transition is made of (mh-hmc, ais).
    tuned: what was better for the same number of gradients.
    It sets each of the next six that is not given."""

    num_leapfrog: Annotated[int | None, optional(aliases=["-L"], metavar="INT")] = None
    """L: leapfrog steps of a transition. tuned: 2. paper: 5."""

    schedule: Annotated[
        Literal["linear", "sigmoid", "geometric", "ramp", "immediate"] | None,
        optional(metavar="{linear,sigmoid,geometric,ramp,immediate}"),
    ] = None
    """Spacing of the inverse temperatures from q to the posterior (ais).
    tuned: ramp, even but at the posterior for the second half.
    paper: linear."""

    target_accept: Annotated[float | None, optional(metavar="FLOAT")] = None
    """Acceptance that the step size of each temperature is adapted towards.
    tuned: 0.8. paper: 0.6."""

    precondition: Annotated[float | None, optional(metavar="FLOAT")] = None
    """Power of the encoder's scale that preconditions HMC. tuned: 0.75. paper: 0, none."""

    momentum_refresh: Annotated[float | None, optional(metavar="FLOAT")] = None
    """Share of new noise in the momentum at each transition.
    tuned: 0.6. paper: 1, which forgets the old momentum."""

    jitter: Annotated[float | None, optional(metavar="FLOAT")] = None
    """Relative half-width of the random spread of step sizes. Both: 0."""

    phi_objective: Literal["elbo", "elbo+wake", "wake"] = "elbo"
    """What trains the encoder (mh-hmc, ais).
    elbo: the evidence lower bound.
    wake: fit it to the ends of the chains, which are already paid for."""


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

    proposal: Literal["diagonal", "full", "flow"] = "diagonal"
    """q(z|x) (one-layer).
    diagonal: independent normals.
    full: a normal with any covariance.
    flow: noise through coupling layers; needs aisle[flow]."""

    init_from: Annotated[Path | None, optional(metavar="RUN|FILE")] = None
    """Start from the weights of another run, or of a file that aisle export wrote; of the same
    networks."""


@dataclass(frozen=True)
class DataOptions:
    """What the model sees."""

    binarize: Literal["dynamic", "static", "none"] = "dynamic"
    """Values in [0, 1] are probabilities of bits.
    dynamic: new bits each time an example is drawn.
    static: the same bits.
    none: no bits but the values, for real data with --likelihood gaussian.
    Held-out data get bits once, from a fixed seed."""

    data_dir: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the named data sets; by default $AISLE_DATA, or else the user's cache."""


@dataclass(frozen=True)
class OptimizerOptions:
    """How the weights are updated."""

    batch_size: int = 128
    """Examples of an update."""

    optimizer: Literal["adam", "muon"] = "adam"
    """muon orthogonalises the updates of matrices and leaves the rest to adam."""

    learning_rate: Annotated[float | None, optional(metavar="FLOAT")] = None
    """By default 0.001 for adam and 0.02 for muon.
    The latter suits a vae; muon with chains (mh-hmc, ais) did better at 0.0075."""

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
class DistributedOptions:
    """Several processes that work as one, on one machine or on many."""

    distributed: bool = False
    """Join the other processes.
    On Slurm, Open MPI, Kubernetes and TPU pods nothing else is needed.
    Elsewhere give the next three too."""

    coordinator: Annotated[str | None, optional(metavar="HOST:PORT")] = None
    """Address of the first process."""

    num_processes: Annotated[int | None, optional(metavar="INT")] = None
    """How many there are."""

    process_id: Annotated[int | None, optional(metavar="INT")] = None
    """Which one this is, from 0; the first one writes and prints."""


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


@dataclass(frozen=True)
class SamplerOptions:
    """The annealing runs. The defaults suit an encoder of its own; without one, raise T."""

    num_chains: Annotated[int, arg(name="chains", aliases=["-C", "--num-chains"])] = 16
    """C: chains of each example."""

    num_temperatures: Annotated[
        int, arg(name="temperatures", aliases=["-T", "--num-temperatures"])
    ] = 500
    """T: inverse temperatures between q and the posterior; with --tolerance, to begin with."""

    kernel: Literal["tuned", "paper"] = "tuned"
    """What a transition is made of.
    tuned: what was tighter for the same number of gradients.
    It sets each of the next five that is not given."""

    num_leapfrog: Annotated[
        int | None, optional(name="leapfrog", aliases=["-L", "--num-leapfrog"], metavar="INT")
    ] = None
    """L: leapfrog steps of a transition. tuned: 4. paper: 10."""

    schedule: Annotated[
        Literal["sigmoid", "linear", "geometric"] | None,
        optional(metavar="{sigmoid,linear,geometric}"),
    ] = None
    """Spacing of the inverse temperatures: dense at both ends, even, or dense at the proposal.
    Both: sigmoid."""

    precondition: Annotated[float | None, optional(metavar="FLOAT")] = None
    """Power of the encoder's scale that preconditions HMC.
    tuned: 0.75, and 0 from the prior. paper: 0."""

    momentum_refresh: Annotated[float | None, optional(metavar="FLOAT")] = None
    """Share of new noise in the momentum at each transition.
    tuned: 0.6. paper: 1, which forgets the old momentum."""

    target_accept: Annotated[float | None, optional(metavar="FLOAT")] = None
    """Acceptance that the step sizes are tuned to on the pilot, then frozen.
    tuned: 0.8. paper: 0.65."""

    refit: Annotated[int, arg(metavar="UPDATES")] = 0
    """Fit a copy of the encoder to examples simulated from the model, and start from that.
    For an encoder that is too sure of itself, if more temperatures do not close the gap: 6000."""

    bdmc_examples: int = 100
    """Examples simulated for bidirectional Monte Carlo, the certificate; 0 turns it off."""

    tolerance: Annotated[float | None, optional(metavar="NATS")] = None
    """Double T until the gap of bidirectional Monte Carlo, with two standard errors added, and
    the change of the mean are below this."""

    max_seconds: Annotated[float | None, optional(metavar="SECONDS")] = None
    """Begin no new work after this time, but for a first tile of each part.
    What was reached is reported."""

    importance_samples: int = 0
    """Number of samples of an importance-weighted bound to give as well.
    The ELBO and the active units come with it. 0: none of them."""

    seed: int = 0
    """Seed of all draws."""

    memory_mb: int = 512
    """Megabytes that the temporary arrays of a tile may take on a device."""


@dataclass(frozen=True)
class EvaluateConfig:
    """What to evaluate, and how."""

    split: Literal["test", "train"] = "test"
    """Which examples; step sizes are tuned on the other ones."""

    num_examples: int = 1000
    """How many, spread evenly over the split."""

    whole_split: Annotated[int, arg(metavar="T")] = 0
    """Also estimate the mean over the whole split, with so few temperatures.
    It is corrected by the mean difference to the long run on the examples above.
    0: do not."""

    start: Literal["encoder", "prior"] = "encoder"
    """Where the chains start."""

    data: Annotated[str | None, optional(metavar="DATA")] = None
    """Other data than the run's: a named set, an .npy or .npz file, of the same shape.
    Of an array by itself all examples are evaluated, and step sizes are tuned on simulated ones."""

    data_dir: Annotated[Path | None, optional(metavar="DIR")] = None
    """Folder of the named data sets, or of the file, if it has moved since training."""

    sampler: SamplerOptions = field(default_factory=SamplerOptions)
