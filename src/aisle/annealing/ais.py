"""Annealed importance sampling, forward from the proposal and in reverse from the posterior.

One chain of T transitions through 0 = beta_0 <= ... <= beta_T = 1 has the log-weight

    log w = sum_{t=1}^{T} (beta_t - beta_{t-1}) [log p(x, z_{t-1}) - log q(z_{t-1})],

where z_0 ~ q and z_t comes from z_{t-1} by a kernel that leaves f_{beta_t} invariant. Then
E[w] = p(x), so E[log w] <= log p(x). (This is the equation for w_k of Ding & Freedman, 2020; the
loop of their Algorithm 1 adds the first increment twice and never the last.)

In reverse, z_T is an exact sample of the posterior and z_{t-1} comes from z_t by the reversal of
the same kernel. Then E[1/w] = 1/p(x), so E[log w] >= log p(x): together, bidirectional Monte Carlo.

The functions see one chain; `jax.vmap` makes many, `jax.jit` is the caller's. A run by HMC costs
exactly 1 + T L gradients of log p, or 1 + (T - 1) L without the last move, and nothing crosses to
the host.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aisle.annealing.hmc import HMC
from aisle.annealing.path import Path, log_ratio, path_from, times
from aisle.annealing.transition import MoveInfo, Transition
from aisle.errors import InputError
from aisle.types import Distribution, Latent, LogDensity, PRNGKey, Scalar


class Ladder(eqx.Module):
    """Everything that a chain needs beside where it starts and where it goes.

    Example:
        >>> ladder = aisle.Ladder(aisle.schedules.sigmoid(50), jnp.full(50, 0.2), aisle.HMC(3))
        >>> ladder.num_gradients
        151

    Attributes:
        betas: T + 1 inverse temperatures from 0 to 1; see `aisle.schedules`.
        step_sizes: T of them, one for each of betas[1:].
        transition: what moves the chain at a temperature.
        last_move: whether to move at beta = 1, which leaves the weight as it is.
    """

    betas: Float[Array, " points"] = eqx.field(converter=jnp.asarray)
    step_sizes: Float[Array, " temperatures"] = eqx.field(converter=jnp.asarray)
    transition: Transition = eqx.field(static=True, default=HMC())
    last_move: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        if len(self.betas) != len(self.step_sizes) + 1:
            raise InputError(
                f"{len(self.step_sizes)} step sizes for {len(self.betas)} inverse temperatures: "
                "give one step size for each inverse temperature after the first"
            )

    @property
    def num_moves(self) -> int:
        """Transitions of a chain."""
        return len(self.step_sizes) - (not self.last_move)

    @property
    def num_gradients(self) -> int:
        """Gradients of log p(x, z) that a chain costs; none if it never moves."""
        return 1 + self.num_moves * self.transition.num_gradients if self.num_moves else 0

    def lengthened(self, num_moves: int) -> "Ladder":
        """Return the ladder with so many more moves at beta = 1, which leave a weight as it is."""
        betas, sizes = self.betas, self.step_sizes
        return Ladder(
            jnp.append(betas, jnp.ones(num_moves, betas.dtype)),
            jnp.append(sizes, jnp.full(num_moves, sizes[-1])),
            self.transition,
            self.last_move,
        )


class AnnealInfo(NamedTuple):
    """How a run went, by temperature t = 1..T; `log_ratio[t-1]` is read at z_{t-1}.

    The transitions' entries lack t = T where the last move was left out.
    """

    acceptance: Float[Array, " moves"]
    energy_change: Float[Array, " moves"]
    is_nonfinite: Bool[Array, " moves"]
    log_ratio: Float[Array, " temperatures"]


class Annealed(NamedTuple):
    """Where a chain ended, its log-weight and its diagnostics."""

    z: Latent
    log_weight: Scalar
    info: AnnealInfo


def anneal(key: PRNGKey, q: Distribution, log_joint: LogDensity, ladder: Ladder) -> Annealed:
    """Anneal one chain from q to the joint; E[exp(log_weight)] is the joint's integral.

    Example:
        >>> q = aisle.DiagonalNormal(jnp.zeros(2), jnp.ones(2))
        >>> ladder = aisle.Ladder(aisle.schedules.linear(20), jnp.full(20, 0.5))
        >>> run = aisle.anneal(jax.random.key(0), q, lambda z: -jnp.sum((z - 1) ** 2), ladder)
        >>> run.z.shape, run.log_weight.shape
        ((2,), ())

    Args:
        key: source of all the run's randomness.
        q: normalised proposal, with `sample(key)` and `log_prob(z)`.
        log_joint: unnormalised log-density of the target.
        ladder: inverse temperatures, step sizes and transition.
    """
    return anneal_with_states(key, q, log_joint, ladder)[0]


def anneal_with_states(
    key: PRNGKey, q: Distribution, log_joint: LogDensity, ladder: Ladder
) -> tuple[Annealed, Latent]:
    """Anneal one chain; return where it was after each move, too.

    Moves at beta = 1 do not change the weight, so each state after one has the weight of the end.

    Example:
        >>> q = aisle.DiagonalNormal(jnp.zeros(2), jnp.ones(2))
        >>> ladder = aisle.Ladder(aisle.schedules.ramp(20), jnp.full(20, 0.5))
        >>> arguments = q, lambda z: -jnp.sum((z - 1) ** 2), ladder
        >>> run, states = aisle.anneal_with_states(jax.random.key(0), *arguments)
        >>> states.shape, bool(jnp.all(states[-1] == run.z))
        ((20, 2), True)
    """
    _, key_init, key_moves = jax.random.split(key, 3)
    path = path_from(q, log_joint)
    start = ladder.transition.init(key_init, sample_start(key, q), path)
    end, walk = _walk(ladder.transition.step, key_moves, start, path, ladder)
    run = _weigh(end, walk, ladder.betas, walk.log_ratio_before, log_ratio(end.point))
    return run, walk.z


def sample_start(key: PRNGKey, q: Distribution) -> Latent:
    """Draw the point from which `anneal` with the same key starts."""
    return q.sample(jax.random.split(key, 3)[0])


def anneal_reverse(
    key: PRNGKey, z: Latent, q: Distribution, log_joint: LogDensity, ladder: Ladder
) -> Annealed:
    """Anneal one chain backwards, from `z` to q; E[exp(-log_weight)] is 1 / the joint's integral.

    `z` must be an exact sample of the target: simulate (z, x) from the model. The bound belongs to
    a forward run only if the other arguments are the same.

    Example:
        >>> q = aisle.DiagonalNormal(jnp.zeros(1), jnp.ones(1))
        >>> target = aisle.DiagonalNormal(jnp.ones(1), jnp.ones(1))
        >>> ladder = aisle.Ladder(aisle.schedules.linear(20), jnp.full(20, 0.5))
        >>> z = target.sample(jax.random.key(0))
        >>> aisle.anneal_reverse(jax.random.key(1), z, q, target.log_prob, ladder).z.shape
        (1,)
    """
    key_init, key_moves = jax.random.split(key)
    path = path_from(q, log_joint)
    start = ladder.transition.init(key_init, z, path)
    step = ladder.transition.step_reversed
    end, walk = _walk(step, key_moves, start, path, ladder, reverse=True)
    return _weigh(end, walk, ladder.betas, walk.log_ratio_after, log_ratio(start.point))


class _Moves(NamedTuple):
    """What the scan walks over, one entry for each transition."""

    number: Int[Array, " moves"]
    beta: Float[Array, " moves"]
    step_size: Float[Array, " moves"]


class _Walk(NamedTuple):
    """What the scan returns, in the order of the temperatures whatever the direction."""

    z: Latent
    info: MoveInfo
    log_ratio_before: Float[Array, " moves"]
    log_ratio_after: Float[Array, " moves"]


def _walk(
    step: Callable[..., tuple[Any, MoveInfo]],
    key: PRNGKey,
    state: Any,
    path: Path,
    ladder: Ladder,
    reverse: bool = False,
) -> tuple[Any, _Walk]:
    """Make the moves one after another; the compiler drops what is not read."""

    def transition(state: Any, move: _Moves) -> tuple[Any, _Walk]:
        key_move = jax.random.fold_in(key, move.number)
        moved, info = step(key_move, state, path, move.beta, move.step_size)
        return moved, _Walk(moved.z, info, log_ratio(state.point), log_ratio(moved.point))

    number = ladder.num_moves
    betas, step_sizes = ladder.betas[1 : number + 1], ladder.step_sizes[:number]
    moves = _Moves(jnp.arange(number), betas, step_sizes)
    return jax.lax.scan(transition, state, moves, reverse=reverse)


def _weigh(end: Any, walk: _Walk, betas: Array, ratios: Array, ratio_unmoved: Scalar) -> Annealed:
    """Sum the increments; `ratio_unmoved` stands in for t = T where the last move was left out."""
    if len(ratios) < len(betas) - 1:
        ratios = jnp.append(ratios, ratio_unmoved)
    log_weight = jnp.sum(times(jnp.diff(betas), ratios))
    return Annealed(end.z, log_weight, AnnealInfo(*walk.info, ratios))
