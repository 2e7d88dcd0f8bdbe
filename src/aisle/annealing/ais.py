"""Annealed importance sampling, forward from the proposal and in reverse from the posterior.

One chain of T transitions through 0 = beta_0 <= ... <= beta_T = 1 has the log-weight

    log w = sum_{t=1}^{T} (beta_t - beta_{t-1}) [log p(x, z_{t-1}) - log q(z_{t-1})],

where z_0 ~ q and z_t comes from z_{t-1} by a kernel that leaves f_{beta_t} invariant. Then
E[w] = p(x), so E[log w] <= log p(x). (This is the equation for w_k of Ding & Freedman, 2020; the
loop of their Algorithm 1 adds the first increment twice and never the last.)

In reverse, z_T is an exact sample of the posterior and z_{t-1} comes from z_t by the reversal of
the same kernel. Then E[1/w] = 1/p(x), so E[log w] >= log p(x): together, bidirectional Monte Carlo.

The functions see one chain; `jax.vmap` makes many, `jax.jit` is the caller's. A run costs exactly
1 + T L gradients of log p, or 1 + (T - 1) L without the last move, and nothing crosses to the host.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aisle.annealing import hmc
from aisle.annealing.path import Path, log_ratio, times
from aisle.errors import InputError
from aisle.types import Distribution, Latent, LogDensity, PRNGKey, Scalar


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


def anneal(
    key: PRNGKey,
    q: Distribution,
    log_joint: LogDensity,
    betas: Float[Array, " points"],
    step_sizes: Float[Array, " temperatures"],
    num_leapfrog: int,
    *,
    scale: Latent | None = None,
    refresh: float | Scalar = 1.0,
    jitter: float | Scalar = 0.0,
    last_move: bool = True,
) -> Annealed:
    """Anneal one chain from q to the joint; E[exp(log_weight)] is the joint's integral.

    Args:
        key: source of all the run's randomness.
        q: normalised proposal, with `sample(key)` and `log_prob(z)`.
        log_joint: unnormalised log-density of the target.
        betas: T + 1 inverse temperatures from 0 to 1; see `aisle.annealing.schedules`.
        step_sizes: T of them, one for each of betas[1:].
        num_leapfrog: L, leapfrog steps of a transition.
        scale: diagonal preconditioner, a pytree like the latent; None for ones.
        refresh: share of new noise in the momentum; see `aisle.annealing.hmc`.
        jitter: relative half-width of the step size's random spread.
        last_move: whether to move at beta = 1, which leaves the weight as it is.
    """
    _, key_momentum, key_moves = jax.random.split(key, 3)
    path = Path(q.log_prob, log_joint)
    start = hmc.init(key_momentum, sample_start(key, q), path)
    moves = _moves(betas, step_sizes, last_move)
    params = _params(start.z, scale, num_leapfrog, refresh, jitter)
    end, walk = _walk(hmc.step, key_moves, start, path, moves, params)
    return _weigh(end, walk, betas, walk.log_ratio_before, log_ratio(end.point))


def sample_start(key: PRNGKey, q: Distribution) -> Latent:
    """Draw the point from which `anneal` with the same key starts."""
    return q.sample(jax.random.split(key, 3)[0])


def anneal_reverse(
    key: PRNGKey,
    z: Latent,
    q: Distribution,
    log_joint: LogDensity,
    betas: Float[Array, " points"],
    step_sizes: Float[Array, " temperatures"],
    num_leapfrog: int,
    *,
    scale: Latent | None = None,
    refresh: float | Scalar = 1.0,
    jitter: float | Scalar = 0.0,
    last_move: bool = True,
) -> Annealed:
    """Anneal one chain backwards, from `z` to q; E[exp(-log_weight)] is 1 / the joint's integral.

    `z` must be an exact sample of the target: simulate (z, x) from the model. The other arguments
    are those of `anneal`, and a bound belongs to a forward run only if they are the same ones.
    """
    key_momentum, key_moves = jax.random.split(key)
    path = Path(q.log_prob, log_joint)
    start = hmc.init(key_momentum, z, path)
    moves = _moves(betas, step_sizes, last_move)
    params = _params(z, scale, num_leapfrog, refresh, jitter)
    end, walk = _walk(hmc.step_reversed, key_moves, start, path, moves, params, reverse=True)
    return _weigh(end, walk, betas, walk.log_ratio_after, log_ratio(start.point))


class _Moves(NamedTuple):
    """What the scan walks over, one entry for each transition."""

    number: Int[Array, " moves"]
    beta: Float[Array, " moves"]
    step_size: Float[Array, " moves"]


class _Walk(NamedTuple):
    """What the scan returns, in the order of the temperatures whatever the direction."""

    info: hmc.HMCInfo
    log_ratio_before: Float[Array, " moves"]
    log_ratio_after: Float[Array, " moves"]


def _walk(
    step: Callable[..., tuple[hmc.HMCState, hmc.HMCInfo]],
    key: PRNGKey,
    state: hmc.HMCState,
    path: Path,
    moves: _Moves,
    params: hmc.HMCParams,
    reverse: bool = False,
) -> tuple[hmc.HMCState, _Walk]:
    """Make the moves one after another; the compiler drops the log-ratio that is not read."""

    def transition(state: hmc.HMCState, move: _Moves) -> tuple[hmc.HMCState, _Walk]:
        key_move = jax.random.fold_in(key, move.number)
        moved, info = step(
            key_move, state, path, move.beta, params._replace(step_size=move.step_size)
        )
        return moved, _Walk(info, log_ratio(state.point), log_ratio(moved.point))

    return jax.lax.scan(transition, state, moves, reverse=reverse)


def _weigh(
    end: hmc.HMCState, walk: _Walk, betas: Array, ratios: Array, ratio_unmoved: Scalar
) -> Annealed:
    """Sum the increments; `ratio_unmoved` stands in for t = T where the last move was left out."""
    if len(ratios) < len(betas) - 1:
        ratios = jnp.append(ratios, ratio_unmoved)
    log_weight = jnp.sum(times(jnp.diff(betas), ratios))
    return Annealed(end.z, log_weight, AnnealInfo(*walk.info, ratios))


def _moves(betas: Array, step_sizes: Array, last_move: bool) -> _Moves:
    if len(betas) != len(step_sizes) + 1:
        raise InputError(
            f"{len(step_sizes)} step sizes for {len(betas)} inverse temperatures: "
            "give one step size for each inverse temperature after the first"
        )
    num_moves = len(step_sizes) if last_move else len(step_sizes) - 1
    return _Moves(jnp.arange(num_moves), betas[1 : num_moves + 1], step_sizes[:num_moves])


def _params(
    z: Latent,
    scale: Latent | None,
    num_leapfrog: int,
    refresh: float | Scalar,
    jitter: float | Scalar,
) -> hmc.HMCParams:
    """Complete the kernel's parameters, all but the step size, which differs from move to move."""
    if num_leapfrog < 1:
        raise InputError(f"num_leapfrog is {num_leapfrog}: a transition needs at least 1 step")
    ones = jax.tree.map(jnp.ones_like, z)
    scale = ones if scale is None else scale
    if jax.tree.map(jnp.shape, scale) != jax.tree.map(jnp.shape, ones):
        raise InputError(
            f"scale has the shapes {jax.tree.map(jnp.shape, scale)} and the latent "
            f"{jax.tree.map(jnp.shape, ones)}: give a scale for each latent dimension"
        )
    return hmc.HMCParams(jnp.zeros(()), scale, num_leapfrog, refresh, jitter)
