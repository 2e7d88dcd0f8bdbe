"""What to evaluate, and how."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aisle.errors import check_count
from aisle.runs.options.groups import kernel_of

if TYPE_CHECKING:
    from aisle.evaluation import Certificate, Sampler


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
    """Other data than the run's: a named set, a table, an .npy or .npz file, of the same shape.
    For a data set with a test split, that split is evaluated; a plain array is evaluated whole.
    For a plain array, step sizes are tuned on examples simulated from the model."""

    data_dir: Path | None = None
    """Folder of the named data sets, or of the file, if it has moved since training."""

    sampler: SamplerOptions = field(default_factory=SamplerOptions)
