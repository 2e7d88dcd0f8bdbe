"""The geometric path from a proposal q(z) to an unnormalised joint p(x, z).

    log f_beta(z) = (1 - beta) log q(z) + beta log p(x, z),    0 <= beta <= 1

An `Evaluation` keeps log q, log p and both gradients of one point apart; a temperature is applied
only on reading. A sampler can so move on to the next temperature without evaluating again, and
never meets an energy that was cached at another temperature.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aisle.types import Distribution, Latent, LogDensity, Scalar


class Path(NamedTuple):
    """The two ends of the path, as functions of one latent.

    Attributes:
        log_q: log-density of the proposal.
        log_p: log of the joint density.
        scale: standard deviations of the proposal, a pytree like the latent, or None if it does
            not know them. Transitions may use them as units.
    """

    log_q: LogDensity
    log_p: LogDensity
    scale: Latent | None = None


class Evaluation(NamedTuple):
    """Everything the path needs to know of one point, at every temperature at once."""

    log_q: Scalar
    log_p: Scalar
    grad_log_q: Latent
    grad_log_p: Latent


def path_from(q: Distribution, log_joint: LogDensity) -> Path:
    """Return the path from q to the joint."""
    return Path(q.log_prob, log_joint, getattr(q, "scale", None))


def evaluate(path: Path, z: Latent) -> Evaluation:
    """Evaluate both ends at `z`: one value and one gradient of each."""
    log_q, grad_log_q = jax.value_and_grad(path.log_q)(z)
    log_p, grad_log_p = jax.value_and_grad(path.log_p)(z)
    return Evaluation(log_q, log_p, grad_log_q, grad_log_p)


def log_density(point: Evaluation, beta: Scalar) -> Scalar:
    """Read log f_beta off an evaluated point."""
    return times(1 - beta, point.log_q) + times(beta, point.log_p)


def gradient(point: Evaluation, beta: Scalar) -> Latent:
    """Read the gradient of log f_beta off an evaluated point."""
    return jax.tree.map(
        lambda g_q, g_p: (1 - beta) * g_q + beta * g_p, point.grad_log_q, point.grad_log_p
    )


def log_ratio(point: Evaluation) -> Scalar:
    """Return log p(x, z) - log q(z), the derivative of log f_beta in beta."""
    return point.log_p - point.log_q


def times(factor: Float[Array, "*shape"], value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Multiply, with 0 x infinity = 0: an end of the path that has no share has no say."""
    return jnp.where(factor == 0, jnp.zeros_like(value), factor * value)
