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

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from aisle.annealing.path import Evaluation, Path, evaluate, gradient, log_density
from aisle.annealing.transition import MoveInfo
from aisle.errors import InputError, check, check_count, check_real
from aisle.objects import Chosen
from aisle.types import Latent, PRNGKey, Scalar


class HMCState(NamedTuple):
    """A point of the extended space; `scale` is s, the same throughout a run."""

    z: Latent
    momentum: Latent
    point: Evaluation
    scale: Latent


@dataclass(frozen=True, repr=False)
class HMC(Chosen):
    """Hamiltonian Monte Carlo, a transition of the annealing run.

    Example:
        >>> aisle.HMC(num_leapfrog=2, refresh=0.6, precondition=0.75)
        aisle.HMC(num_leapfrog=2, refresh=0.6, precondition=0.75)

    Attributes:
        num_leapfrog: L, steps of the integrator in a transition.
        refresh: r in (0, 1], the share of new noise in the momentum; 1 forgets the old one.
        precondition: power of the proposal's standard deviations that makes the scale s; 0 for
            no preconditioning.
    """

    num_leapfrog: int = 5
    refresh: float = 1.0
    precondition: float = 0.0

    def __post_init__(self) -> None:
        check_count("num_leapfrog", self.num_leapfrog)
        for name in ("refresh", "precondition"):
            check_real(name, getattr(self, name))
        check(0 < self.refresh <= 1, "refresh", self.refresh, "above 0 and at most 1")
        is_kept = 0 <= self.precondition < math.inf
        check(is_kept, "precondition", self.precondition, "finite, and 0 or more")

    @property
    def num_gradients(self) -> int:
        """L: a gradient for each leapfrog step, and none beside."""
        return self.num_leapfrog

    @property
    def first_step_size(self) -> float:
        """The paper's first step, or one in units of the proposal's scale."""
        return 0.5 if self.precondition else 0.1

    @property
    def largest_step_size(self) -> float:
        """The paper's largest step, or one in units of the proposal's scale."""
        return 2.0 if self.precondition else 0.3

    def init(self, key: PRNGKey, z: Latent, path: Path) -> HMCState:
        """Start at `z` with a momentum from its stationary law."""
        return HMCState(z, _normal_like(key, z), evaluate(path, z), self._scale(z, path))

    def step(
        self, key: PRNGKey, state: HMCState, path: Path, beta: Scalar, step_size: Scalar
    ) -> tuple[HMCState, MoveInfo]:
        """Make one transition that leaves f_beta(z) N(v) invariant."""
        key_momentum, key_accept = jax.random.split(key)
        refreshed = self._refresh(key_momentum, state)
        return self._move(key_accept, refreshed, path, beta, step_size)

    def step_reversed(
        self, key: PRNGKey, state: HMCState, path: Path, beta: Scalar, step_size: Scalar
    ) -> tuple[HMCState, MoveInfo]:
        """Make the time reversal of `step`: the kernel that a reverse annealing run needs."""
        key_momentum, key_accept = jax.random.split(key)
        moved, info = self._move(key_accept, _negate(state), path, beta, step_size)
        return self._refresh(key_momentum, _negate(moved)), info

    def _scale(self, z: Latent, path: Path) -> Latent:
        if not self.precondition:
            return jax.tree.map(jnp.ones_like, z)
        if path.scale is None:
            raise InputError(
                f"is {self.precondition:g} but the proposal's distribution has no `scale`: add "
                "one, or use 0",
                argument="precondition",
            )
        if jax.tree.map(jnp.shape, path.scale) != jax.tree.map(jnp.shape, z):
            raise InputError(
                f"the proposal's scale has the shapes {jax.tree.map(jnp.shape, path.scale)} and "
                f"the latent {jax.tree.map(jnp.shape, z)}: give a scale for each latent dimension"
            )
        return jax.tree.map(lambda s: s**self.precondition, path.scale)

    def _move(
        self, key: PRNGKey, state: HMCState, path: Path, beta: Scalar, step_size: Scalar
    ) -> tuple[HMCState, MoveInfo]:
        """Propose by leapfrog; accept, or stay with the momentum negated."""
        proposed = leapfrog(state, path, beta, step_size, self.num_leapfrog)
        energy_proposed = energy(proposed, beta)
        energy_change = energy_proposed - energy(state, beta)
        is_nonfinite = ~jnp.isfinite(energy_proposed) | jnp.isnan(energy_change)
        acceptance = jnp.where(is_nonfinite, 0, jnp.exp(jnp.minimum(-energy_change, 0)))
        is_accepted = jax.random.uniform(key, dtype=acceptance.dtype) < acceptance

        # The scale is the same in both and stays out, so that the loop carries it untouched.
        moved, stayed = (s._replace(scale=None) for s in (proposed, _negate(state)))
        chosen = jax.tree.map(lambda a, b: jnp.where(is_accepted, a, b), moved, stayed)
        return chosen._replace(scale=state.scale), MoveInfo(acceptance, energy_change, is_nonfinite)

    def _refresh(self, key: PRNGKey, state: HMCState) -> HMCState:
        kept = (1 - self.refresh**2) ** 0.5
        noise = _normal_like(key, state.momentum)
        momentum = jax.tree.map(lambda v, n: kept * v + self.refresh * n, state.momentum, noise)
        return state._replace(momentum=momentum)


def leapfrog(
    state: HMCState, path: Path, beta: Scalar, step_size: Scalar, num_steps: int
) -> HMCState:
    """Integrate Hamilton's equations for `num_steps` steps, with as many gradients of log p.

    Values of the log-densities are computed at the last point only.
    """

    def kick(momentum: Latent, grad: Latent, size: Scalar) -> Latent:
        return jax.tree.map(lambda v, g, s: v + size * s * g, momentum, grad, state.scale)

    def drift(z: Latent, momentum: Latent) -> Latent:
        return jax.tree.map(lambda a, v, s: a + step_size * s * v, z, momentum, state.scale)

    def inner_step(carry: tuple[Latent, Latent], _: None) -> tuple[tuple[Latent, Latent], None]:
        z, momentum = carry
        z = drift(z, momentum)
        return (z, kick(momentum, gradient(evaluate(path, z), beta), step_size)), None

    momentum = kick(state.momentum, gradient(state.point, beta), step_size / 2)
    (z, momentum), _ = jax.lax.scan(inner_step, (state.z, momentum), length=num_steps - 1)
    z = drift(z, momentum)
    point = evaluate(path, z)
    momentum = kick(momentum, gradient(point, beta), step_size / 2)
    return HMCState(z, momentum, point, state.scale)


def energy(state: HMCState, beta: Scalar) -> Scalar:
    """Return -log of the extended density, up to the momentum's constant."""
    kinetic = sum(jnp.sum(v**2) for v in jax.tree.leaves(state.momentum)) / 2
    return kinetic - log_density(state.point, beta)


def _negate(state: HMCState) -> HMCState:
    return state._replace(momentum=jax.tree.map(jnp.negative, state.momentum))


def _normal_like(key: PRNGKey, tree: Latent) -> Latent:
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.random.normal(key, flat.shape, flat.dtype))
