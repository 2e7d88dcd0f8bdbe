"""Scores of single rows, each by itself: whatever else is scored, a row has the same numbers."""

import dataclasses
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from aisle.annealing import (
    Ladder,
    anneal,
    effective_sample_size,
    log_mean_exp,
    normalised_weights,
    tuning,
)
from aisle.compilation import jit, quick_options
from aisle.context import InContext, bind, given, parts_of
from aisle.evaluation.diagnostics import monte_carlo_errors
from aisle.models.joint import log_joint
from aisle.types import Model, Observation, PRNGKey, Proposal

# Rows that are computed at once, always as many: the last ones are filled up.
_TILE = 32
_TUNING_ROUNDS = 20


class RowScores(NamedTuple):
    """What is known of each row.

    Attributes:
        log_p: stochastic lower bound of log p(x).
        error: Monte Carlo standard error of it, by the spread of the chains' weights.
        effective_chains: of the weights.
        latents: posterior mean of z, by the weighted ends of the chains, as one vector.
    """

    log_p: np.ndarray
    error: np.ndarray
    effective_chains: np.ndarray
    latents: np.ndarray


def score_rows(
    model: Model,
    proposal: Proposal,
    examples: PyTree | InContext,
    ladder: Ladder,
    *,
    num_chains: int,
    seed: int = 0,
) -> RowScores:
    """Anneal the chains of each row, with draws that depend on its content alone.

    All is computed in double precision: rounding, which depends on a row's neighbours, then stays
    below what anybody sees.

    Args:
        model: see `aisle.Model`.
        proposal: an encoder.
        examples: along the first axis, with their context.
        ladder: with step sizes that were frozen before.
        num_chains: of a row.
        seed: of all draws.
    """
    # Of x alone, in which NaN is missing: whether others have a context must not matter.
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(parts_of(examples)[0])]
    keys = np.stack([_key([leaf[i] for leaf in leaves], seed) for i in range(len(leaves[0]))])
    networks = (model, proposal, ladder)
    log_p, size, latents, _ = _by_tiles(_score_tile, networks, (examples, keys), num_chains)
    return RowScores(log_p, monte_carlo_errors(size, num_chains), size, latents)


def tuned(
    model: Model,
    proposal: Proposal,
    examples: PyTree | InContext,
    ladder: Ladder,
    *,
    num_chains: int,
    target: float,
) -> Ladder:
    """Return a ladder whose step sizes are tuned on these rows, by the program that scores rows."""
    number = len(jax.tree.leaves(examples)[0])
    few = jax.tree.map(lambda a: np.asarray(a)[np.resize(np.arange(number), _TILE)], examples)
    zeros = np.zeros(ladder.step_sizes.shape)
    state, trace = tuning.Search(np.log(np.float64(ladder.step_sizes)), zeros, zeros), []
    for i in range(_TUNING_ROUNDS):
        trial = dataclasses.replace(ladder, step_sizes=np.exp(state.log_size))
        keys = np.random.default_rng(i).integers(0, 2**32, (_TILE, 2), np.uint32)
        found = _by_tiles(_score_tile, (model, proposal, trial), (few, keys), num_chains)
        state = state.moved(found[3].mean(axis=0) - target)
        trace.append(state.log_size)
    sizes = np.exp(np.mean(trace[_TUNING_ROUNDS // 2 :], axis=0))
    return dataclasses.replace(ladder, step_sizes=np.float32(sizes))


def encode_rows(proposal: Proposal, examples: PyTree | InContext) -> np.ndarray:
    """Return the mean of q(z|x) of each row, for an encoder whose distribution has `loc`."""
    return _by_tiles(_encode_tile, (proposal,), (examples,))[0]


def _by_tiles(
    function: Callable[..., tuple[Array, ...]], networks: tuple[Any, ...], rows: PyTree, *rest: Any
) -> list[np.ndarray]:
    """Apply a compiled function to tiles of one size; the last rows are repeated to fill it."""
    number, found = len(jax.tree.leaves(rows)[0]), []
    with jax.enable_x64(True):
        networks = jax.tree.map(_double, networks)
        for start in range(0, number, _TILE):
            places = np.minimum(np.arange(start, start + _TILE), number - 1)
            tile = jax.tree.map(lambda a, p=places: _double(np.asarray(a)[p]), rows)
            parts = function(*networks, *tile, *rest)
            found.append([np.asarray(part)[: number - start] for part in parts])
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def _key(row: list[np.ndarray], seed: int) -> np.ndarray:
    """Return the random key of a row, from its content."""
    content = hashlib.blake2b(np.uint64(seed).tobytes(), digest_size=8)
    for part in row:
        values = np.asarray(part)
        if values.dtype.kind == "f":
            # One NaN, and one zero, whatever their bits.
            values = np.where(np.isnan(values), np.nan, values) + 0.0
        content.update(np.ascontiguousarray(values).tobytes())
    return np.frombuffer(content.digest(), np.uint32)


def _double(leaf: Any) -> Any:
    """Return floats in double precision, and other leaves as they are."""
    is_float = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
    return jnp.asarray(np.asarray(leaf), jnp.float64) if is_float else leaf


@partial(jit, compiler_options=quick_options())
def _score_tile(
    model: Model,
    proposal: Proposal,
    ladder: Ladder,
    tile: PyTree | InContext,
    keys: Array,
    num_chains: int,
) -> tuple[Array, ...]:
    def one(key_data: Array, example: Observation | InContext) -> tuple[Array, ...]:
        own, encoder, x = bind(model, proposal, example)
        q, density = encoder(x), log_joint(own, x)

        def chain(key: PRNGKey) -> tuple[Array, Array, Array]:
            run = anneal(key, q, density, ladder)
            return ravel_pytree(run.z)[0], run.log_weight, run.info.acceptance

        ends, log_weights, acceptance = jax.vmap(chain)(
            jax.random.split(jax.random.wrap_key_data(key_data), num_chains)
        )
        shares = normalised_weights(log_weights)
        size = effective_sample_size(log_weights)
        mean_acceptance = jnp.mean(acceptance, axis=0)
        return log_mean_exp(log_weights), size, shares @ ends, mean_acceptance

    return jax.vmap(one)(keys, tile)


@jit
def _encode_tile(proposal: Proposal, tile: PyTree | InContext) -> tuple[Array, ...]:
    def one(example: Observation | InContext) -> Array:
        x, context = parts_of(example)
        return given(proposal, context)(x).loc

    return (jax.vmap(one)(tile),)
