"""The options of the command line, as `config.json` stores them, and the objects they stand for.

Nothing here needs JAX before an object is asked for, so that `aisle train --help` answers at once.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aisle.errors import InputError, check_count

if TYPE_CHECKING:
    from aisle.annealing import Kernel
    from aisle.data import View
    from aisle.evaluation import Certificate, Sampler
    from aisle.learning import Method, Recipe

LikelihoodName = Literal[
    "auto",
    "bernoulli",
    "categorical",
    "gaussian",
    "student-t",
    "poisson",
    "negative-binomial",
    "zero-inflated",
    "logit-normal",
    "beta",
]
MethodName = Literal["auto", "vae", "iwae", "dreg", "mh-hmc", "ais"]


@dataclass(frozen=True)
class MethodOptions:
    """How the gradient of log p(x) is estimated."""

    method: MethodName = "auto"
    """auto: vae for half of the updates, then ais with one chain; the best in the same time.
    vae: evidence lower bound.
    iwae: importance-weighted bound.
    dreg: the same with doubly reparameterised gradients.
    mh-hmc: HMC at the posterior.
    ais: annealed importance sampling."""

    num_samples: int | None = None
    """K: samples of q, or chains, for each example. By default 5, and 1 for auto and vae."""

    num_temperatures: int | None = None
    """T: transitions of a chain (mh-hmc, ais, auto). By default 11."""

    kernel: Literal["tuned", "paper"] = "tuned"
    """What a transition is made of (mh-hmc, ais, auto).
    tuned: what was better for the same number of gradients.
    It sets each of the next five that is not given."""

    num_leapfrog: int | None = None
    """L: leapfrog steps of a transition. tuned: 2. paper: 5."""

    schedule: Literal["linear", "sigmoid", "geometric", "ramp", "immediate"] | None = None
    """Spacing of the inverse temperatures from q to the posterior (ais, auto).
    tuned: ramp, even but at the posterior for the second half.
    paper: linear."""

    target_accept: float | None = None
    """Acceptance that the step size of each temperature is adapted towards.
    tuned: 0.8. paper: 0.6."""

    precondition: float | None = None
    """Power of the encoder's scale that preconditions HMC. tuned: 0.75. paper: 0, none."""

    momentum_refresh: float | None = None
    """Share of new noise in the momentum at each transition.
    tuned: 0.6. paper: 1, which forgets the old momentum."""

    phi_objective: Literal["elbo", "elbo+wake", "wake"] = "elbo"
    """What trains the encoder (mh-hmc, ais, auto).
    elbo: the evidence lower bound.
    wake: fit it to the ends of the chains, which are already paid for."""

    @property
    def has_chains(self) -> bool:
        """Whether the method runs chains."""
        return self.method in ("auto", "mh-hmc", "ais")

    def build(self) -> "Method":
        """Return the method; of auto, that of its last phase."""
        from aisle.learning import AIS, IWAE, MHHMC, VAE, DReG

        if not self.has_chains:
            self._check_unused()
            kind = {"vae": VAE, "iwae": IWAE, "dreg": DReG}[self.method]
            return kind() if self.num_samples is None else kind(self.num_samples)
        usual = 1 if self.method == "auto" else 5
        kind = MHHMC if self.method == "mh-hmc" else AIS
        return kind(
            usual if self.num_samples is None else self.num_samples,
            11 if self.num_temperatures is None else self.num_temperatures,
            kernel_of(self, is_long=False),
            self.phi_objective,
        )

    def _check_unused(self) -> None:
        """Refuse options that the method would ignore."""
        usual = MethodOptions(self.method, self.num_samples)
        names = [option.name for option in dataclasses.fields(usual)]
        given = [name for name in names if getattr(self, name) != getattr(usual, name)]
        if given:
            raise InputError(
                f"is {getattr(self, given[0])!r} but {self.method} runs no chains: leave it out, "
                "or use --method ais",
                argument=given[0],
            )


@dataclass(frozen=True)
class ModelOptions:
    """The networks, those of the IWAE study by default."""

    model: str = "one-layer"
    """one-layer, two-layer, or one of your own as MODULE:FUNCTION.
    one-layer: a latent z. two-layer: (h1, h2), with twice the latents in h1.
    The function takes a random key and an aisle.Split, the training examples.
    It returns (model, proposal)."""

    num_latents: int = 50
    """Dimensions of the (top) latent."""

    num_hidden: int = 200
    """Units of a hidden layer."""

    likelihood: LikelihoodName = "auto"
    """p(x|z).
    auto: what the columns of a table are, and bernoulli for all other data.
    bernoulli: bits. categorical: codes from 0. gaussian, student-t: real values.
    poisson, negative-binomial, zero-inflated: counts. logit-normal, beta: between 0 and 1."""

    network: Literal["study", "mlp", "conv"] | None = None
    """study: the IWAE study's, for bernoulli and gaussian alone; the default for bernoulli.
    mlp: linear layers for any likelihood, which standardises x by itself; the default otherwise.
    conv: convolutions, for pictures."""

    hidden: str | None = None
    """Units of each hidden layer of an mlp, as in 200,200; by default two of --num-hidden."""

    activation: Literal["tanh", "elu", "silu", "softplus"] | None = None
    """Between the layers of mlp and conv. By default tanh for mlp, elu for conv."""

    init_from: Path | None = None
    """Start from the weights of another run, or of a file that aisle export wrote.
    They must be of the same networks."""


@dataclass(frozen=True)
class DataOptions:
    """What the model sees."""

    binarize: Literal["dynamic", "static", "none"] | None = None
    """Values in [0, 1] are probabilities of bits.
    dynamic: new bits each time an example is drawn. static: the same bits.
    none: no bits but the values.
    By default dynamic for bernoulli, and none otherwise or with a model of your own.
    Held-out data get bits once, from a fixed seed."""

    grey: bool = False
    """The file holds grey values of 0 to 255: divide them by 255. The named sets do so anyway."""

    columns: str | None = None
    """Kinds of a table's columns, where they are not what they look like.
    As in age=real,visits=count,sex=category, or the path of a .json file.
    Kinds are real, heavy-tailed, count, bit, category, share, and ignore to leave one out."""

    num_valid: int | None = None
    """Training examples to set aside for validation, 0 for none.
    By default 5,000 of mnist, 1,345 of omniglot, and a tenth of others.
    An .npz file may have a part called valid instead."""

    data_dir: Path | None = None
    """Folder of the named data sets; by default $AISLE_DATA, or else the user's cache."""


@dataclass(frozen=True)
class OptimizerOptions:
    """How the weights are updated."""

    batch_size: int = 128
    """Examples of an update."""

    optimizer: Literal["muon", "adam"] = "muon"
    """muon orthogonalises the updates of matrices and leaves the rest to adam."""

    learning_rate: float | None = None
    """By default 0.001 for adam, and for muon 0.0075 with chains and 0.02 without.
    Of auto, this is the rate of the second phase."""

    lr_schedule: Literal["cosine", "iwae-study", "constant"] = "cosine"
    """cosine: to zero at the end of a phase. iwae-study: x 10^(-i/7) for 3^i epochs."""

    warmup_epochs: int | None = None
    """Of the epochs, train the first ones by a plain VAE: cheap, and early on as good.
    By default half of them for auto, and none otherwise."""

    ema: float = 0.0
    """Decay of a running average of the weights, which is then what is kept; 0 for none."""


@dataclass(frozen=True)
class RunOptions:
    """What is written, and when."""

    seed: int = 0
    """Seed of the weights, the order of the data and all draws."""

    keep: Literal["best", "last"] = "best"
    """Which weights the run is opened with.
    best: those of the best bound on validation data, if there are such data.
    last: those of the last update."""

    patience: int | None = None
    """End training after so many bounds on validation data that are not above the best."""

    validate_every: int | None = None
    """Epochs between two bounds on validation data.
    By default as many as keep their cost to a tenth of that of training."""

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
    num_epochs: int | None = None
    num_updates: int | None = None
    method: MethodOptions = field(default_factory=MethodOptions)
    model: ModelOptions = field(default_factory=ModelOptions)
    observations: DataOptions = field(default_factory=DataOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    run: RunOptions = field(default_factory=RunOptions)

    @property
    def is_own_model(self) -> bool:
        """Whether the networks are a user's own."""
        return ":" in self.model.model

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
        binarize = seen.binarize or ("dynamic" if is_bits and not self.is_own_model else "none")
        if binarize != "none" and not is_bits:
            raise InputError(
                f"is {binarize!r} but likelihood is {likelihood}, which is not of bits: leave it "
                "out",
                argument="binarize",
            )
        is_grey = seen.grey or not is_file_name(self.data)
        is_flat = not self.is_own_model and self.model.network != "conv"
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
        shares = [(start, warm), (main, num_updates - warm)]
        phases = [
            dataclasses.replace(phase, share=float(share)) for phase, share in shares if share
        ]
        return Recipe(tuple(phases), options.ema)

    def _optimizer(self, has_chains: bool, rate: float | None) -> Any:
        from aisle.learning import Adam, Muon, rates

        schedules = {
            "cosine": rates.cosine,
            "iwae-study": rates.iwae_study,
            "constant": rates.constant,
        }
        if self.optimizer.optimizer == "adam":
            usual, kind = 1e-3, Adam
        else:
            usual, kind = 0.0075 if has_chains else 0.02, Muon
        schedule = schedules[self.optimizer.lr_schedule]
        return kind(usual if rate is None else rate, schedule)


# The groups of options of a training run, by their names in it.
GROUPS = {
    "method": MethodOptions,
    "model": ModelOptions,
    "observations": DataOptions,
    "optimizer": OptimizerOptions,
    "run": RunOptions,
}


@dataclass(frozen=True)
class SamplerOptions:
    """The annealing runs. The defaults suit an encoder of its own; without one, raise T."""

    num_chains: int = 16
    """C: chains of each example."""

    num_temperatures: int = 500
    """T: inverse temperatures between q and the posterior; --tolerance plans its own."""

    kernel: Literal["tuned", "paper"] = "tuned"
    """What a transition is made of.
    tuned: what was tighter for the same number of gradients.
    It sets each of the next five that is not given."""

    num_leapfrog: int | None = None
    """L: leapfrog steps of a transition. tuned: 4. paper: 10."""

    schedule: Literal["sigmoid", "linear", "geometric"] | None = None
    """Spacing of the inverse temperatures: dense at both ends, even, or dense at the proposal.
    Both: sigmoid."""

    precondition: float | None = None
    """Power of the encoder's scale that preconditions HMC.
    tuned: 0.75, and 0 from the prior. paper: 0."""

    momentum_refresh: float | None = None
    """Share of new noise in the momentum at each transition.
    tuned: 0.6. paper: 1, which forgets the old momentum."""

    target_accept: float | None = None
    """Acceptance that the step sizes are tuned to on the pilot, then frozen.
    tuned: 0.8. paper: 0.65."""

    refit: int | None = None
    """Fit a copy of the encoder to data simulated from the model, and start from that.
    For an encoder that is too sure of itself: 6000, which --tolerance tries where it pays."""

    bdmc_examples: int = 100
    """Examples simulated for bidirectional Monte Carlo, the certificate; 0 turns it off."""

    tolerance: float | None = None
    """Choose T and simulated examples so that the gap and the change of the mean are below this.
    Two standard errors are added to the gap of bidirectional Monte Carlo."""

    max_seconds: float | None = None
    """Plan for this time, and begin no new work after it, but for a first tile of each part.
    What was reached is reported."""

    importance_samples: int = 0
    """Number of samples of an importance-weighted bound to give as well.
    The ELBO and the active units come with it. 0: none of them."""

    seed: int = 0
    """Seed of all draws."""

    memory_mb: int = 512
    """Megabytes that the temporary arrays of a tile may take on a device."""

    def sampler(self) -> "Sampler":
        """Return the chains."""
        from aisle.evaluation import Sampler

        return Sampler(
            self.num_chains,
            self.num_temperatures,
            kernel_of(self, is_long=True),
            self.refit,
            self.memory_mb,
        )

    def certificate(self) -> "Certificate":
        """Return the certificate."""
        from aisle.evaluation import Certificate

        # A tolerance is judged by them.
        check_count("bdmc_examples", self.bdmc_examples, 0 if self.tolerance is None else 2)
        return Certificate(self.bdmc_examples, self.tolerance, self.max_seconds)


@dataclass(frozen=True)
class EvaluateConfig:
    """What to evaluate, and how."""

    split: Literal["test", "valid", "train"] = "test"
    """Which examples.
    Step sizes are tuned on training examples, or on validation examples with --split train."""

    num_examples: int = 1000
    """How many, spread evenly over the split."""

    whole_split: int = 0
    """Also estimate the mean over the whole split, with so few temperatures.
    It is corrected by the mean difference to the long run on the examples above.
    0: do not."""

    start: Literal["encoder", "prior"] = "encoder"
    """Where the chains start."""

    data: str | None = None
    """Other data than the run's: a named set, an .npy or .npz file, of the same shape.
    For a data set with a test split, that split is evaluated; a plain array is evaluated whole.
    For a plain array, step sizes are tuned on examples simulated from the model."""

    data_dir: Path | None = None
    """Folder of the named data sets, or of the file, if it has moved since training."""

    sampler: SamplerOptions = field(default_factory=SamplerOptions)


def kernel_of(options: MethodOptions | SamplerOptions, *, is_long: bool) -> "Kernel":
    """Return the named kernel with what is given otherwise."""
    from aisle.annealing import HMC, Kernel, schedules

    if options.kernel not in ("tuned", "paper"):
        raise InputError(f"is {options.kernel!r}: choose from tuned, paper", argument="kernel")
    usual = getattr(Kernel, options.kernel)(is_long=is_long)
    hmc = usual.transition
    assert isinstance(hmc, HMC)
    given = {
        "num_leapfrog": options.num_leapfrog,
        "refresh": options.momentum_refresh,
        "precondition": options.precondition,
    }
    transition = dataclasses.replace(hmc, **{k: v for k, v in given.items() if v is not None})
    schedule = usual.schedule
    if options.schedule is not None:
        schedule = getattr(schedules, options.schedule)
    accept = usual.target_accept if options.target_accept is None else options.target_accept
    return Kernel(schedule, transition, accept)
