"""The distributions that importance sampling and annealing define without a density.

With K samples z_1..z_K of q and their weights w_k = p(x, z_k) / q(z_k), or with the ends and the
weights of K annealed chains,

    return z_j with j ~ Categorical(w_1 / sum_k w_k, ..., w_K / sum_k w_k)

draws from q_IS(z|x) or q_AIS(z|x) (Ding & Freedman, 2020, Algorithm 2). Both tend to p(z|x) as K
grows; for K = 1, q_IS is q, and q_AIS is where one chain ends.

Weights that are all zero leave nothing to choose by, and one that is NaN or infinite says that
something is broken. Such a draw is NaN in every component: it must not pass for a sample.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree
from numpy.typing import ArrayLike

from aisle.annealing import Kernel, Ladder, anneal
from aisle.annealing.importance import importance_log_weights
from aisle.annealing.tiles import map_tiles
from aisle.annealing.tuning import StepSizes
from aisle.compilation import jit
from aisle.context import InContext, bind
from aisle.errors import InputError, check_count, check_seed
from aisle.evaluation import pilot
from aisle.evaluation.log_likelihood import prepared, suited
from aisle.evaluation.sampler import ImportanceSampler, Sampler
from aisle.models.joint import log_joint
from aisle.types import (
    Distribution,
    Latent,
    LogDensity,
    Model,
    Observation,
    PRNGKey,
    Proposal,
    Scalar,
)

# Samples of q, and chains, that are alive at once.
_SAMPLES_PER_TILE = 4096
_CHAINS_PER_TILE = 1024

# A few chains as in training: enough for most encoders.
USUAL = Sampler(num_chains=5, num_temperatures=11, kernel=Kernel.tuned())


def sample_posterior(
    model: Model,
    proposal: Proposal | None,
    x: PyTree,
    context: PyTree | None = None,
    *,
    sampler: Sampler | ImportanceSampler = USUAL,
    num_draws: int = 1,
    step_sizes: ArrayLike | None = None,
    seed: int = 0,
) -> Latent:
    """Draw latents from q_AIS or q_IS, which approximate p(z|x), for each example.

    The draws are independent, each of K chains or samples of its own. One whose weights are all
    zero, or not finite, is NaN.

    Example:
        >>> model = aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.array(0.0))
        >>> aisle.sample_posterior(model, None, np.zeros((5, 3)), num_draws=4).shape
        (5, 4, 1)

    Args:
        model: log_prior and log_likelihood; see `aisle.Model`.
        proposal: an encoder, from x to a distribution q(z|x); None for the prior.
        x: examples along the first axis of an array or of each array of a pytree.
        context: of the examples, if model and proposal take it.
        sampler: the chains that a draw is chosen from, or `aisle.ImportanceSampler`.
        num_draws: how many latents to draw for each example.
        step_sizes: one for each temperature; None tunes them on a pilot, which has another key,
            and freezes them before the draws.
        seed: of all draws.

    Returns:
        A latent with two leading axes, examples and draws, in each of its arrays.
    """
    check_count("num_draws", num_draws)
    check_seed(seed)
    proposal, xs = prepared(model, proposal, x, context)
    drawing = prepare_drawing(model, proposal, xs, sampler, step_sizes, seed)
    numbers = np.arange(len(jax.tree.leaves(xs)[0]))
    return draw_posterior(drawing, numbers, xs, num_draws)


class Drawing(NamedTuple):
    """How latents are drawn: of what, along the ladder of chains if any, chosen from how many."""

    key: PRNGKey
    model: Model
    proposal: Proposal
    ladder: Ladder | None
    num_samples: int


def prepare_drawing(
    model: Model,
    proposal: Proposal,
    xs: PyTree | InContext,
    sampler: Sampler | ImportanceSampler,
    step_sizes: ArrayLike | None,
    seed: int,
) -> Drawing:
    """Tune chains on examples that `prepared` has seen; see `sample_posterior`."""
    if not isinstance(sampler, Sampler | ImportanceSampler):
        raise InputError(
            f"is {sampler!r}: give an aisle.Sampler or an aisle.ImportanceSampler",
            argument="sampler",
        )
    key_pilot, key_draws = jax.random.split(jax.random.key(seed))
    if isinstance(sampler, ImportanceSampler):
        return Drawing(key_draws, model, proposal, None, sampler.num_samples)
    kernel = suited(sampler.kernel, proposal, xs)
    ladder = kernel.ladder(sampler.num_temperatures)
    if step_sizes is None:
        target = jnp.asarray(kernel.target_accept)
        pilot_xs = pilot.repeated(xs)
        sizes = pilot.tune_exactly(key_pilot, model, proposal, pilot_xs, ladder, target)
    else:
        sizes = _checked_sizes(step_sizes, sampler.num_temperatures)
    ladder = dataclasses.replace(ladder, step_sizes=sizes)
    return Drawing(key_draws, model, proposal, ladder, sampler.num_chains)


def draw_many(
    keys: Key[Array, " draws"],
    q: Distribution,
    log_joint: LogDensity,
    ladder: Ladder | None,
    num_samples: int,
) -> Latent:
    """Make one draw for each key, along a leading axis; memory stays that of a tile.

    Each is chosen from `num_samples` chains along a ladder or, without one, samples of q.
    """
    alive = _SAMPLES_PER_TILE if ladder is None else _CHAINS_PER_TILE

    def draw(key: PRNGKey) -> Latent:
        return draw_one(key, q, log_joint, ladder, num_samples)

    return map_tiles(draw, keys, max(1, alive // num_samples))


def draw_one(
    key: PRNGKey, q: Distribution, log_joint: LogDensity, ladder: Ladder | None, num_samples: int
) -> Latent:
    """Draw one latent from q_AIS or, without a ladder, from q_IS."""
    key_samples, key_choice = jax.random.split(key)
    keys = jax.random.split(key_samples, num_samples)
    if ladder is None:
        log_weights = importance_log_weights(
            key_samples, q, log_joint, num_samples, samples_per_tile=_SAMPLES_PER_TILE
        )
        index = jax.random.categorical(key_choice, log_weights)
        # The sample is drawn again from its key, so that K of them need not be kept. These must be
        # the keys of aisle/annealing/importance.py: with others, every draw would be one of q.
        z = q.sample(keys[index])
    else:

        def chain(key: PRNGKey) -> tuple[Latent, Scalar]:
            run = anneal(key, q, log_joint, ladder)
            return run.z, run.log_weight

        ends, log_weights = map_tiles(chain, keys, _CHAINS_PER_TILE)
        index = jax.random.categorical(key_choice, log_weights)
        z = jax.tree.map(lambda a: a[index], ends)
    is_defined = jnp.isfinite(jnp.max(log_weights))
    return jax.tree.map(lambda a: jnp.where(is_defined, a, jnp.nan), z)


@jit
def draw_posterior(
    drawing: Drawing,
    numbers: Int[Array | np.ndarray, " examples"],
    xs: PyTree | InContext,
    num_draws: int,
) -> Latent:
    """Draw latents of examples; the draws of each depend on its number and on no other example."""
    key, model, proposal, ladder, num_samples = drawing

    def one(item: tuple[Array, Observation | InContext]) -> Latent:
        number, example = item
        own, encoder, x = bind(model, proposal, example)
        keys = jax.random.split(jax.random.fold_in(key, number), num_draws)
        return draw_many(keys, encoder(x), log_joint(own, x), ladder, num_samples)

    return jax.lax.map(one, (numbers, xs))


def _checked_sizes(step_sizes: ArrayLike, num_temperatures: int) -> StepSizes:
    values = np.asarray(step_sizes, np.float32)
    if values.shape != (num_temperatures,):
        raise InputError(
            f"has the shape {values.shape} and num_temperatures is {num_temperatures}: give one "
            "step size for each temperature, or None to tune them",
            argument="step_sizes",
        )
    if not np.all((values > 0) & np.isfinite(values)):
        wrong = values[~((values > 0) & np.isfinite(values))][0]
        raise InputError(
            f"has the value {wrong:g}: each must be finite and positive", argument="step_sizes"
        )
    return jnp.asarray(values)
