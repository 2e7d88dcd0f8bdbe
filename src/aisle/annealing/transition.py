"""The protocol of a transition: what moves a chain at one temperature of the path."""

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Bool

from aisle.annealing.path import Evaluation, Path
from aisle.types import Latent, PRNGKey, Scalar


@runtime_checkable
class ChainState(Protocol):
    """Where a chain is, with what the next transition needs to know of it; a pytree."""

    @property
    def z(self) -> Latent:
        """The latent."""
        ...

    @property
    def point(self) -> Evaluation:
        """Both ends of the path at `z`, from which the weight is read."""
        ...


class MoveInfo(NamedTuple):
    """How a transition went.

    Attributes:
        acceptance: probability with which the proposal was accepted.
        energy_change: of the proposal; not finite where `is_nonfinite`.
        is_nonfinite: whether an energy was not finite, which rejects the proposal.
    """

    acceptance: Scalar
    energy_change: Scalar
    is_nonfinite: Bool[Array, ""]


State = TypeVar("State", bound=ChainState)


@runtime_checkable
class Transition(Protocol[State]):
    """A Markov kernel that leaves f_beta(z), extended by what else it needs, invariant.

    `step_reversed` must be the time reversal of `step`: with `step` alone a forward run is right,
    but the upper bound would not belong to it. Crooks' relation tests that. Objects are constants
    of compiled programs, so they must be hashable: a frozen dataclass is the usual one.
    """

    @property
    def num_gradients(self) -> int:
        """Gradients of log p(x, z) that one step costs."""
        ...

    @property
    def first_step_size(self) -> float:
        """The step size that training starts from; a pilot run finds its own from 0.3 on."""
        ...

    @property
    def largest_step_size(self) -> float:
        """An upper limit of step sizes that are adapted in training."""
        ...

    def init(self, key: PRNGKey, z: Latent, path: Path) -> State:
        """Start a chain at `z`; costs one gradient of log p(x, z)."""
        ...

    def step(
        self, key: PRNGKey, state: State, path: Path, beta: Scalar, step_size: Scalar
    ) -> tuple[State, MoveInfo]:
        """Make one transition at inverse temperature `beta`."""
        ...

    def step_reversed(
        self, key: PRNGKey, state: State, path: Path, beta: Scalar, step_size: Scalar
    ) -> tuple[State, MoveInfo]:
        """Make the time reversal of `step`."""
        ...
