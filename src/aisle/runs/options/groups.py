"""The options of training, by groups, as `config.json` stores them.

Nothing here needs JAX before an object is asked for, so that `aisle train --help` answers at once.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aisle.errors import InputError

if TYPE_CHECKING:
    from aisle.annealing import Kernel
    from aisle.learning import AIS, MHHMC, Method

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
    wake: fit it to the ends of the chains, which are already paid for.
    elbo+wake: the sum of both."""

    num_states: int | None = None
    """States that the decoder's gradient is averaged over (mh-hmc, ais, auto). By default 1.
    They are the last of a chain, all at the posterior.
    More have less noise, a little more bias, and take a little more time."""

    precision: Literal["float32", "bfloat16"] | None = None
    """Of the matrix products inside chains (mh-hmc, ais, auto). By default float32.
    bfloat16: faster on processors with units for it, such as AVX512-BF16.
    Everything else, and all evaluation, is in float32 all the same."""

    late_temperatures: int | None = None
    """T of longer chains for the second half of the updates by chains (mh-hmc, ais, auto).
    By default none.
    Late in a long training, the bias of short chains is what is left.
    They learn at 0.4 of the rate before, and --num-states grows in proportion to T.
    It takes --keep last: the quick bounds on validation data may fall while log p(x) rises."""

    @property
    def has_chains(self) -> bool:
        """Whether the method runs chains."""
        return self.method in ("auto", "mh-hmc", "ais")

    def build(self) -> "Method":
        """Return the method; of auto, that of its chains."""
        from aisle.learning import IWAE, VAE, DReG

        if self.has_chains:
            return self._chains()
        self._check_unused()
        kind = {"vae": VAE, "iwae": IWAE, "dreg": DReG}[self.method]
        return kind() if self.num_samples is None else kind(self.num_samples)

    def build_late(self) -> "Method | None":
        """Return the method with the longer chains of the end, if there are any."""
        if self.late_temperatures is None:
            return None
        method = self._chains()
        if self.late_temperatures <= method.num_temperatures:
            raise InputError(
                f"is {self.late_temperatures} but chains have {method.num_temperatures} before: "
                "give more",
                argument="late_temperatures",
            )
        return method.lengthened(self.late_temperatures)

    def _chains(self) -> "AIS | MHHMC":
        from aisle.learning import AIS, MHHMC

        usual = 1 if self.method == "auto" else 5
        kind = MHHMC if self.method == "mh-hmc" else AIS
        return kind(
            usual if self.num_samples is None else self.num_samples,
            11 if self.num_temperatures is None else self.num_temperatures,
            kernel_of(self, is_long=False),
            self.phi_objective,
            1 if self.num_states is None else self.num_states,
            "float32" if self.precision is None else self.precision,
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
    """The networks; --network says which are the default."""

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

    @property
    def is_own(self) -> bool:
        """Whether the networks are a user's own."""
        return ":" in self.model


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

    condition: tuple[str, ...] = ()
    """Columns of a table that the model is given and is not of: p(x | condition).
    Categories become one-hot codes, and numbers are standardised inside the model."""

    exposure: str | None = None
    """Column that the means of counts are in proportion to, such as a time or an area.
    total: the sum of a row's counts, as is usual for single cells."""

    weights: str | None = None
    """Column that says how much each row counts in training."""

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
    By default half of them for auto, and none otherwise.
    With --hours, the method has the time that is left."""

    ema: float = 0.0
    """Decay of a running average of the weights, which is then what is kept; 0 for none."""

    weight_decay: float = 0.0
    """Each update multiplies matrices by 1 - rate x this; for small data, 0.1 may help."""


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


def kernel_of(options: Any, *, is_long: bool) -> "Kernel":
    """Return the named kernel with what is given otherwise."""
    from aisle.annealing import HMC, Kernel, schedules

    kernels = {"tuned": Kernel.tuned, "paper": Kernel.paper}
    if options.kernel not in kernels:
        raise InputError(f"is {options.kernel!r}: choose from tuned, paper", argument="kernel")
    usual = kernels[options.kernel](is_long=is_long)
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
