"""What a method of training is: the losses of one example, and a state that adapts.

A method estimates, for one example, what to minimise; it is usable in anybody's training loop:
`jax.vmap` `estimate` over a batch with a key for each example, average, and differentiate
`losses.theta + losses.phi` with respect to (model, proposal). The gradient of `theta` reaches the
model only and that of `phi` the proposal only; none flows through a chain.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, PyTree

from aisle.errors import InputError
from aisle.types import Model, Observation, PRNGKey, Proposal, Scalar


class Losses(NamedTuple):
    """What to minimise; see the module for where their gradients go."""

    theta: Scalar
    phi: Scalar


class Metrics(NamedTuple):
    """What is worth knowing of one example's estimate.

    Attributes:
        bound: lower bound of log p(x), in expectation: of ELBO, IWAE or AIS, as the method has it.
        effective_sample_size: of the K weights.
        acceptance: mean over the K chains, by temperature; empty without chains.
        num_nonfinite: transitions rejected for an energy that was not finite.
    """

    bound: Scalar
    effective_sample_size: Scalar
    acceptance: Float[Array, " moves"]
    num_nonfinite: Scalar


Estimate = tuple[Losses, Metrics]


@runtime_checkable
class Method(Protocol):
    """What `fit` trains by, such as `aisle.AIS()`; one of your own needs these four.

    Its objects are constants of compiled programs: a frozen dataclass is the usual one. A method
    may also have `num_samples`, the samples of an example that are alive at once, and
    `bound(key, model, proposal, x, state)`, a lower bound of log p(x) to validate by where
    importance sampling would not do, at a cost of `bound_gradients`.
    """

    @property
    def num_gradients(self) -> int:
        """Gradients of log p(x, z) that one example costs."""
        ...

    def init(self) -> PyTree:
        """Return the state before the first update, such as step sizes; () for none."""
        ...

    def estimate(
        self, key: PRNGKey, model: Model, proposal: Proposal, x: Observation, state: Any
    ) -> Estimate:
        """Estimate the losses of one example."""
        ...

    def adapt(self, state: Any, metrics: Metrics) -> Any:
        """Return the state for the next update; `metrics` are means over the batch."""
        ...


def check_method(method: Any) -> None:
    """Refuse what does not have the protocol of a method."""
    if isinstance(method, type) or not isinstance(method, Method):
        raise InputError(
            f"is {method!r}: give an object such as aisle.AIS(), or one of your own with init, "
            "estimate, adapt and num_gradients",
            argument="method",
        )
