"""Hamiltonian Monte Carlo on one temperature of a path.

The target is the extended density f_beta(z) N(v; 0, I). A transition

1. refreshes the momentum, v <- sqrt(1 - r^2) v + r n with n ~ N(0, I),
2. proposes (z, v) by L leapfrog steps of size eps, preconditioned by a diagonal scale s,

       v <- v + eps/2 s grad log f_beta(z);  z <- z + eps s v;  v <- v + eps/2 s grad log f_beta(z),

3. accepts with probability min(1, exp(-change of energy)); on rejection z stays and v is negated.

With s on both sides this is plain HMC on the target in the coordinates z / s. With r = 1 the
momentum is new each time and the transition is reversible. With r < 1 it is not: its reversal takes
the parts in opposite order with the momentum negated around the move, and is `step_reversed`.

Written here rather than taken from a sampling library because the state must keep both ends of
the path apart (`aisle.annealing.path`), so that a transition costs exactly L gradients of log p.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool

from aisle.annealing.path import Evaluation, Path, evaluate, gradient, log_density
from aisle.types import Latent, PRNGKey, Scalar


class HMCParams(NamedTuple):
    """What a transition is made of; fixed during a run whose weights are reported.

    Attributes:
        step_size: eps, in units of `scale`.
        scale: s, a pytree like the latent; ones for no preconditioning.
        num_leapfrog: L, at least 1.
        refresh: r in (0, 1], the share of new noise in the momentum; 1 forgets the old one.
        jitter: in [0, 1); each transition draws its step size from eps (1 +- jitter), uniformly.
    """

    step_size: Scalar
    scale: Latent
    num_leapfrog: int
    refresh: float | Scalar = 1.0
    jitter: float | Scalar = 0.0


class HMCState(NamedTuple):
    """A point of the extended space with what the next transition needs to know of it."""

    z: Latent
    momentum: Latent
    point: Evaluation


class HMCInfo(NamedTuple):
    """How a transition went.

    Attributes:
        acceptance: probability with which the proposal was accepted.
        energy_change: of the proposal; not finite where `is_nonfinite`.
        is_nonfinite: whether an energy was not finite, which rejects the proposal.
    """

    acceptance: Scalar
    energy_change: Scalar
    is_nonfinite: Bool[Array, ""]


def init(key: PRNGKey, z: Latent, path: Path) -> HMCState:
    """Start at `z` with a momentum from its stationary law. Costs one gradient of log p."""
    return HMCState(z, _normal_like(key, z), evaluate(path, z))


def step(
    key: PRNGKey, state: HMCState, path: Path, beta: Scalar, params: HMCParams
) -> tuple[HMCState, HMCInfo]:
    """Make one transition that leaves f_beta(z) N(v) invariant. Costs L gradients of log p."""
    key_momentum, key_jitter, key_accept = jax.random.split(key, 3)
    refreshed = _refresh(key_momentum, state, params.refresh)
    return _move(key_jitter, key_accept, refreshed, path, beta, params)


def step_reversed(
    key: PRNGKey, state: HMCState, path: Path, beta: Scalar, params: HMCParams
) -> tuple[HMCState, HMCInfo]:
    """Make the time reversal of `step`: the kernel that a reverse annealing run needs."""
    key_momentum, key_jitter, key_accept = jax.random.split(key, 3)
    moved, info = _move(key_jitter, key_accept, _negate(state), path, beta, params)
    return _refresh(key_momentum, _negate(moved), params.refresh), info


def leapfrog(
    state: HMCState, path: Path, beta: Scalar, step_size: Scalar, scale: Latent, num_steps: int
) -> HMCState:
    """Integrate Hamilton's equations for `num_steps` steps, with as many gradients of log p.

    Values of the log-densities are computed at the last point only.
    """

    def kick(momentum: Latent, grad: Latent, size: Scalar) -> Latent:
        return jax.tree.map(lambda v, g, s: v + size * s * g, momentum, grad, scale)

    def drift(z: Latent, momentum: Latent) -> Latent:
        return jax.tree.map(lambda a, v, s: a + step_size * s * v, z, momentum, scale)

    def inner_step(carry: tuple[Latent, Latent], _: None) -> tuple[tuple[Latent, Latent], None]:
        z, momentum = carry
        z = drift(z, momentum)
        return (z, kick(momentum, gradient(evaluate(path, z), beta), step_size)), None

    momentum = kick(state.momentum, gradient(state.point, beta), step_size / 2)
    (z, momentum), _ = jax.lax.scan(inner_step, (state.z, momentum), length=num_steps - 1)
    z = drift(z, momentum)
    point = evaluate(path, z)
    momentum = kick(momentum, gradient(point, beta), step_size / 2)
    return HMCState(z, momentum, point)


def energy(state: HMCState, beta: Scalar) -> Scalar:
    """Return -log of the extended density, up to the momentum's constant."""
    kinetic = sum(jnp.sum(v**2) for v in jax.tree.leaves(state.momentum)) / 2
    return kinetic - log_density(state.point, beta)


def _move(
    key_jitter: PRNGKey,
    key_accept: PRNGKey,
    state: HMCState,
    path: Path,
    beta: Scalar,
    params: HMCParams,
) -> tuple[HMCState, HMCInfo]:
    """Propose by leapfrog; accept, or stay with the momentum negated."""
    dtype = state.point.log_p.dtype
    noise = jax.random.uniform(key_jitter, dtype=dtype, minval=-1, maxval=1)
    step_size = params.step_size * (1 + params.jitter * noise)
    proposed = leapfrog(state, path, beta, step_size, params.scale, params.num_leapfrog)

    energy_proposed = energy(proposed, beta)
    energy_change = energy_proposed - energy(state, beta)
    is_nonfinite = ~jnp.isfinite(energy_proposed) | jnp.isnan(energy_change)
    acceptance = jnp.where(is_nonfinite, 0, jnp.exp(jnp.minimum(-energy_change, 0)))
    is_accepted = jax.random.uniform(key_accept, dtype=dtype) < acceptance

    chosen = jax.tree.map(lambda a, b: jnp.where(is_accepted, a, b), proposed, _negate(state))
    return chosen, HMCInfo(acceptance, energy_change, is_nonfinite)


def _refresh(key: PRNGKey, state: HMCState, refresh: float | Scalar) -> HMCState:
    kept = (1 - refresh**2) ** 0.5
    noise = _normal_like(key, state.momentum)
    return state._replace(
        momentum=jax.tree.map(lambda v, n: kept * v + refresh * n, state.momentum, noise)
    )


def _negate(state: HMCState) -> HMCState:
    return state._replace(momentum=jax.tree.map(jnp.negative, state.momentum))


def _normal_like(key: PRNGKey, tree: Latent) -> Latent:
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.random.normal(key, flat.shape, flat.dtype))
