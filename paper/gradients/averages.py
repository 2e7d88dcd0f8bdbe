"""Gradients of log p(x) in a model's weights, from weighted samples of z.

The gradient of log p(x) is the posterior mean of the gradient of log p(x, z). A program averages
the latter over samples, under several weightings of the same samples at once, and over examples
before anything leaves the device: a gradient for each example would be too large to keep.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from aisle.types import Distribution, Latent, LogDensity, Model, Observation, PRNGKey, Proposal
from paper.core.chains import Kernel, anneal, compiler_options, log_joint, walk_on

# Chains that a device walks at once: their activations stay in the cache.
_CHAINS_PER_TILE = 400


class Samples(NamedTuple):
    """Weighted samples of one example's latent, along the first axis, and how the chains went."""

    z: Latent
    log_weight: Float[Array, " samples"]
    acceptance: Float[Array, " moves"]


Sampler = Callable[[PRNGKey, Distribution, LogDensity, Kernel], Samples]

# From log-weights to the shares that the samples get under each of several weightings.
Weigh = Callable[[Float[Array, " samples"]], Float[Array, "weightings samples"]]


def chain_ends(key: PRNGKey, q: Distribution, density: LogDensity, kernel: Kernel) -> Samples:
    """Anneal K chains and return where they end."""
    # The keys of aisle/learning/methods.py: with others, what is measured could not be compared
    # with what trains, draw by draw.
    keys = jax.random.split(jax.random.split(key)[0], kernel.num_samples)
    run = jax.vmap(lambda key: anneal(key, q, density, kernel))(keys)
    return Samples(run.z, run.log_weight, jnp.mean(run.info.acceptance, axis=0))


def chain_stops(
    num_stops: int,
    num_moves: int,
    key: PRNGKey,
    q: Distribution,
    density: LogDensity,
    kernel: Kernel,
) -> Samples:
    """Anneal K chains, let them walk on at the posterior, and return all their stops.

    Moves at the posterior leave the weights right, and a few of them make a sample that is almost
    a new one. The first stop is the end of the annealing; stops of a chain are neighbours.
    """
    key_ends, key_walks = jax.random.split(key)
    ends = chain_ends(key_ends, q, density, kernel)
    walk = partial(walk_on, num_stops, num_moves, q=q, density=density, kernel=kernel)
    stops = jax.vmap(walk)(jax.random.split(key_walks, kernel.num_samples), ends.z)
    return Samples(
        jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), stops),
        jnp.repeat(ends.log_weight, num_stops),
        ends.acceptance,
    )


class Examples(NamedTuple):
    """Observations along the first axis of each leaf, and the numbers that their draws have."""

    xs: PyTree
    indices: np.ndarray


class Averages(NamedTuple):
    """What the samples of some examples say under each weighting.

    Attributes:
        gradients: of mean log p(x) in the model's weights.
        log_joint: mean of log p(x, z) under the samples, for each example.
        effective_sample_size: of the shares, for each example.
        acceptance: mean, by transition.
    """

    gradients: Float[np.ndarray, "weightings parameters"]
    log_joint: Float[np.ndarray, "weightings examples"]
    effective_sample_size: Float[np.ndarray, "weightings examples"]
    acceptance: Float[np.ndarray, " moves"]


class _Tile(NamedTuple):
    """The same of a tile: gradients are summed, and the others have its examples first."""

    gradients: Any
    log_joint: Any
    effective_sample_size: Any
    acceptance: Any


Program = Callable[[Kernel, PRNGKey, Any, Any, PyTree], _Tile]


def make_program(
    model: Model, proposal: Proposal, weigh: Weigh, sampler: Sampler = chain_ends
) -> Program:
    """Return `(kernel, key, indices, is_counted, xs) -> tile`, compiled once for each kernel."""
    mesh = jax.sharding.Mesh(jax.devices(), ("examples",))
    arrays, static = eqx.partition((model, proposal), eqx.is_array)

    def local(
        arrays: PyTree, kernel: Kernel, key: PRNGKey, indices: Array, is_counted: Array, xs: PyTree
    ) -> _Tile:
        model, proposal = eqx.combine(arrays, static)

        def samples(index: Int[Array, ""], x: Observation) -> Samples:
            key_example = jax.random.fold_in(key, index)
            return sampler(key_example, proposal(x), log_joint(model, x), kernel)

        tile = _average(model, xs, jax.vmap(samples)(indices, xs), weigh, is_counted)
        return tile._replace(gradients=jax.lax.psum(tile.gradients, "examples"))

    over, everywhere = jax.P("examples"), jax.P()
    sharded = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(everywhere, everywhere, everywhere, over, over, over),
        out_specs=_Tile(everywhere, over, over, over),
        check_vma=False,
    )
    return partial(jax.jit(sharded, compiler_options=compiler_options()), arrays)


def average(
    program: Program,
    kernel: Kernel,
    key: PRNGKey,
    examples: Examples,
    advance: Callable[[int], object] = lambda _: None,
) -> Averages:
    """Run a program on all examples, tile by tile; `advance` gets the size of each."""
    number, tiles, gradients = len(examples.indices), [], np.zeros(())
    size = _tile_size(number, kernel.num_samples)
    for begin in range(0, number, size):
        places = np.arange(begin, min(begin + size, number))
        # The last tile is filled up with copies, which do not count.
        filled, is_counted = np.resize(places, size), np.arange(size) < len(places)
        xs = jax.tree.map(lambda a, filled=filled: a[filled], examples.xs)
        found = program(kernel, key, examples.indices[filled].astype(np.int32), is_counted, xs)
        gradients = gradients + np.asarray(found.gradients)
        tiles.append([np.asarray(a)[: len(places)] for a in found[1:]])
        advance(len(places))
    log_joints, sizes, acceptance = map(np.concatenate, zip(*tiles, strict=True))
    # Laid out as they will be when read from a file: sums then round the same.
    log_joints, sizes = (np.ascontiguousarray(a.T, np.float64) for a in (log_joints, sizes))
    return Averages(gradients / number, log_joints, sizes, acceptance.mean(axis=0))


def _average(
    model: Model, xs: PyTree, samples: Samples, weigh: Weigh, is_counted: Bool[Array, " examples"]
) -> _Tile:
    """Average over the samples by each weighting, and add up gradients over the examples."""
    shares = jax.vmap(weigh)(samples.log_weight)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def log_joints(params: PyTree) -> Float[Array, "examples samples"]:
        model = eqx.combine(params, static)
        return jax.vmap(lambda x, z: jax.vmap(log_joint(model, x))(z))(xs, samples.z)

    values, pull_back = jax.vjp(log_joints, params)
    counted = jnp.where(is_counted[:, None, None], shares, 0)
    return _Tile(
        jax.lax.map(lambda a: ravel_pytree(pull_back(a)[0])[0], jnp.swapaxes(counted, 0, 1)),
        jnp.einsum("nwk,nk->nw", shares, values),
        # 0 where no sample has any weight.
        jnp.sum(shares, axis=2) / jnp.maximum(jnp.sum(shares**2, axis=2), 1e-30),
        samples.acceptance,
    )


def _tile_size(num_examples: int, num_samples: int) -> int:
    """Return the examples of a tile: much the same in each, and as many for each device."""
    num_devices = len(jax.devices())
    largest = num_devices * max(1, _CHAINS_PER_TILE // num_samples)
    each = math.ceil(num_examples / math.ceil(num_examples / largest))
    return each + -each % num_devices
