"""What an evaluation is made of: the chains, and the certificate of what they say."""

from dataclasses import dataclass

from aisle.annealing import Kernel
from aisle.errors import InputError, check_count, check_positive
from aisle.objects import Chosen


@dataclass(frozen=True, repr=False)
class Sampler(Chosen):
    """Chains of annealing, whose weights are reported.

    Example:
        >>> aisle.Sampler(num_chains=8, num_temperatures=200).num_chains
        8

    Attributes:
        num_chains: C, chains of an example.
        num_temperatures: T, from 2; with a tolerance a pilot chooses it instead.
        kernel: schedule, transition, and the acceptance that a pilot tunes step sizes to. With a
            tolerance a pilot places the temperatures where the schedule is the usual one, sigmoid.
        refit: updates by which a copy of the proposal is fitted to data simulated from the model
            before chains start from it, 0 for none: for an encoder that is too sure of itself.
            None: with a tolerance, this and smaller steps are tried where a plan is long.
        memory_mb: megabytes that the temporary arrays of a tile may take on a device.
    """

    num_chains: int = 16
    num_temperatures: int = 500
    kernel: Kernel = Kernel.tuned(is_long=True)
    refit: int | None = None
    memory_mb: int = 512

    def __post_init__(self) -> None:
        self.take_numbers()
        check_count("num_chains", self.num_chains)
        check_count("num_temperatures", self.num_temperatures, 2)
        if self.refit is not None:
            check_count("refit", self.refit, 0)
        check_count("memory_mb", self.memory_mb)
        if not isinstance(self.kernel, Kernel):
            raise InputError(
                f"is {self.kernel!r}: give a kernel, such as aisle.Kernel.tuned(is_long=True)",
                argument="kernel",
            )
        betas = self.kernel.betas(self.num_temperatures)
        if betas[1] == 1:
            raise InputError(
                "reaches 1 at once, so that nothing is annealed: take aisle.schedules.sigmoid, "
                "linear or geometric",
                argument="schedule",
            )


@dataclass(frozen=True, repr=False)
class ImportanceSampler(Chosen):
    """Samples of the proposal, weighted: annealing without a temperature in between.

    Example:
        >>> aisle.ImportanceSampler(num_samples=50)
        aisle.ImportanceSampler(num_samples=50)
    """

    num_samples: int = 5

    def __post_init__(self) -> None:
        self.take_numbers()
        check_count("num_samples", self.num_samples)


@dataclass(frozen=True, repr=False)
class Certificate(Chosen):
    """How far off an estimate may be, and what that may cost.

    Example:
        >>> aisle.Certificate(tolerance=0.1)
        aisle.Certificate(num_examples=100, tolerance=0.1, max_seconds=None)

    Attributes:
        num_examples: examples simulated from the model for bidirectional Monte Carlo, 0 for none.
            With a tolerance, at least so many.
        tolerance: in nats. Short runs tell which T and how many simulated examples bring the mean
            gap with two standard errors, and the change of the mean, below this.
        max_seconds: time to plan for, after which no new work is begun, but for a first tile of
            each part.
    """

    num_examples: int = 100
    tolerance: float | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        self.take_numbers()
        check_count("num_examples", self.num_examples, 0)
        for name in ("tolerance", "max_seconds"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        if self.tolerance is not None and self.num_examples < 2:
            raise InputError(
                f"is {self.tolerance:g} but num_examples is {self.num_examples}: a tolerance is "
                "judged by bidirectional Monte Carlo, on at least 2 simulated examples",
                argument="tolerance",
            )
