"""Array aliases and the small protocols that the layers of the package share."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, Key, PyTree

PRNGKey = Key[Array, ""]
Scalar = Float[Array, ""]

# A point of the latent space: an array, or any pytree of arrays (two stochastic layers are a pair).
Latent = PyTree[Float[Array, "..."]]

# An observation: whatever the user's model takes as x, for one example.
Observation = PyTree[Any]

LogDensity = Callable[[Latent], Scalar]


@runtime_checkable
class Distribution(Protocol):
    """A normalised distribution over latents: where an annealing run starts.

    It may also have `scale`, a pytree like the latent with its standard deviations; HMC can use
    that as its preconditioner.
    """

    def sample(self, key: PRNGKey) -> Latent:
        """Draw one latent."""
        ...

    def log_prob(self, z: Latent) -> Scalar:
        """Return the normalised log-density of one latent."""
        ...


@runtime_checkable
class Model(Protocol):
    """A generative model p(x, z) = p(z) p(x|z) of one example, without a batch axis.

    Any pytree of arrays with these methods will do; an `equinox.Module` is the usual one.

    It may also have `given(context)`, which returns the model of one example in its context, with
    these methods; and `has_missing = True`, if that takes an `aisle.Context` whose `is_observed`
    says which entries of x are not NaN.
    """

    def log_prior(self, z: Latent) -> Scalar:
        """Return log p(z)."""
        ...

    def log_likelihood(self, x: Observation, z: Latent) -> Scalar:
        """Return log p(x|z)."""
        ...

    def sample_prior(self, key: PRNGKey) -> Latent:
        """Draw z from p(z)."""
        ...

    def sample_observation(self, key: PRNGKey, z: Latent) -> Observation:
        """Draw x from p(x|z)."""
        ...


@runtime_checkable
class Proposal(Protocol):
    """An encoder: it runs once for an observation and returns q(z|x).

    It may also have `given(context)`, which returns the encoder of one example in its context.
    """

    def __call__(self, x: Observation) -> Distribution:
        """Return the proposal distribution of one example."""
        ...
