"""What people do with a trained model, for many examples at once: sample, encode, reconstruct."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from aisle.compilation import jit
from aisle.context import InContext, given, has_nan, in_context, masked, parts_of
from aisle.errors import InputError, check_count, check_seed
from aisle.types import Latent, Model, Observation, PRNGKey, Proposal

# Draws whose mean stands for that of a distribution which does not know its own.
_NUM_DRAWS = 256


def sample(model: Model, number: int, context: PyTree | None = None, *, seed: int = 0) -> PyTree:
    """Draw observations from the model, examples along the first axis.

    Example:
        >>> model, _ = aisle.one_layer(jax.random.key(0), np.full(6, 0.3), num_latents=2)
        >>> aisle.sample(model, 10).shape
        (10, 6)

    Args:
        model: see `aisle.Model`.
        number: of draws.
        context: one for each draw, along the first axis of each array, if the model takes any.
        seed: of all draws.
    """
    check_count("number", number)
    check_seed(seed)
    lengths = {len(leaf) for leaf in jax.tree.leaves(context)}
    if lengths - {number}:
        raise InputError(
            f"has {min(lengths - {number})} rows for {number} draws: give one for each draw",
            argument="context",
        )
    contexts = jax.tree.map(jnp.asarray, context)
    return simulate(jax.random.key(seed), model, number, contexts)


def encode(proposal: Proposal, x: PyTree, context: PyTree | None = None) -> Latent:
    """Return the mean of q(z|x) of each example, examples along the first axis.

    In an array of floats, NaN is a missing value, for encoders that take any.

    Example:
        >>> x = np.ones((5, 6))
        >>> model, proposal = aisle.one_layer(jax.random.key(0), np.full(6, 0.3), num_latents=2)
        >>> aisle.encode(proposal, x).shape
        (5, 2)
    """
    context = masked(x, context) if has_nan(x) else context
    return _encode(proposal, jax.tree.map(jnp.asarray, in_context(x, context)))


def reconstruct(
    model: Model, proposal: Proposal, x: PyTree, context: PyTree | None = None
) -> PyTree:
    """Return E[x|z] at the encoder's mean of each example, examples along the first axis.

    Example:
        >>> x = np.ones((5, 6))
        >>> model, proposal = aisle.one_layer(jax.random.key(0), np.full(6, 0.3), num_latents=2)
        >>> aisle.reconstruct(model, proposal, x).shape
        (5, 6)
    """
    if not hasattr(model, "mean_observation"):
        raise InputError(
            f"the model, a {type(model).__name__}, has no mean_observation(z): add one that "
            "returns E[x|z]"
        )
    contexts = jax.tree.map(jnp.asarray, context)
    return _decode(model, encode(proposal, x, context), contexts)


@jit
def simulate(key: PRNGKey, model: Model, number: int, contexts: PyTree | None = None) -> PyTree:
    """Draw observations from the model with a key, one for each context if there are any."""

    def one(key: PRNGKey, context: PyTree | None) -> Observation:
        own = given(model, context)
        key_z, key_x = jax.random.split(key)
        return own.sample_observation(key_x, own.sample_prior(key_z))

    return jax.vmap(one)(jax.random.split(key, number), contexts)


@jit
def _encode(proposal: Proposal, xs: PyTree) -> Latent:
    def one(example: Observation | InContext) -> Latent:
        x, context = parts_of(example)
        q = given(proposal, context)(x)
        if hasattr(q, "loc"):
            return q.loc
        draws = jax.vmap(q.sample)(jax.random.split(jax.random.key(0), _NUM_DRAWS))
        return jax.tree.map(lambda a: jnp.mean(a, axis=0), draws)

    return jax.vmap(one)(xs)


@jit
def _decode(model: Any, zs: Latent, contexts: PyTree | None) -> PyTree:
    def one(z: Latent, context: PyTree | None) -> Observation:
        return given(model, context).mean_observation(z)

    return jax.vmap(one)(zs, contexts)
