"""What people do with a trained model, for many examples at once: sample, encode, reconstruct."""

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from aisle.compilation import jit
from aisle.errors import InputError, check_count, check_seed
from aisle.types import Latent, Model, Observation, PRNGKey, Proposal

# Draws whose mean stands for that of a distribution which does not know its own.
_NUM_DRAWS = 256


def sample(model: Model, number: int, *, seed: int = 0) -> PyTree:
    """Draw observations from the model, examples along the first axis.

    Example:
        >>> model, _ = aisle.one_layer(jax.random.key(0), np.full(6, 0.3), num_latents=2)
        >>> aisle.sample(model, 10).shape
        (10, 6)
    """
    check_count("number", number)
    check_seed(seed)
    return simulate(jax.random.key(seed), model, number)


def encode(proposal: Proposal, x: PyTree) -> Latent:
    """Return the mean of q(z|x) of each example, examples along the first axis.

    Example:
        >>> x = np.ones((5, 6))
        >>> model, proposal = aisle.one_layer(jax.random.key(0), np.full(6, 0.3), num_latents=2)
        >>> aisle.encode(proposal, x).shape
        (5, 2)
    """
    return _encode(proposal, jax.tree.map(jnp.asarray, x))


def reconstruct(model: Model, proposal: Proposal, x: PyTree) -> PyTree:
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
    return _decode(model, encode(proposal, x))


@jit
def simulate(key: PRNGKey, model: Model, number: int) -> PyTree:
    """Draw observations from the model with a key."""

    def one(key: PRNGKey) -> Observation:
        key_z, key_x = jax.random.split(key)
        return model.sample_observation(key_x, model.sample_prior(key_z))

    return jax.vmap(one)(jax.random.split(key, number))


@jit
def _encode(proposal: Proposal, xs: PyTree) -> Latent:
    def one(x: Observation) -> Latent:
        q = proposal(x)
        if hasattr(q, "loc"):
            return q.loc  # pyright: ignore[reportAttributeAccessIssue]
        draws = jax.vmap(q.sample)(jax.random.split(jax.random.key(0), _NUM_DRAWS))
        return jax.tree.map(lambda a: jnp.mean(a, axis=0), draws)

    return jax.vmap(one)(xs)


@jit
def _decode(model: Model, zs: Latent) -> PyTree:
    return jax.vmap(model.mean_observation)(zs)  # pyright: ignore[reportAttributeAccessIssue]
