"""What is missing, drawn from its distribution given what was observed."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from aisle.compilation import jit
from aisle.context import Context, InContext, given, parts_of
from aisle.errors import InputError, check_count, check_seed
from aisle.evaluation.log_likelihood import prepared
from aisle.evaluation.posterior import USUAL, draw_posterior, prepare_drawing
from aisle.evaluation.sampler import ImportanceSampler, Sampler
from aisle.progress import Progress
from aisle.types import Latent, Model, Observation, PRNGKey, Proposal

# Folded into the seed's key for the draws of x. The latents' keys are split from the same key, and
# `split` gives what `fold_in` gives for 0, 1 and so on: this number must be larger.
_VALUES = 1000
# Examples between two looks at the progress.
_NUM_AT_ONCE = 64


def impute(
    model: Model,
    proposal: Proposal | None,
    x: PyTree,
    context: PyTree | None = None,
    *,
    num_draws: int = 10,
    average: bool = False,
    sampler: Sampler | ImportanceSampler = USUAL,
    seed: int = 0,
    show_progress: bool = True,
) -> PyTree:
    """Draw missing values from the model, given what was observed of each example.

    A draw takes z from the posterior of what was observed, as `aisle.sample_posterior` does, and
    the missing values from p(x|z). Several draws are multiple imputations.

    Example:
        >>> model = aisle.LinearGaussian(jnp.ones((2, 1)), jnp.zeros(2), jnp.log(0.1))
        >>> x = np.array([[3.0, np.nan], [np.nan, -2.0], [1.0, 1.0]])
        >>> context = aisle.Context(is_observed=~np.isnan(x))
        >>> filled = aisle.impute(model, None, x, context, num_draws=100, show_progress=False)
        >>> filled.shape, filled[0, 0, 0].item(), abs(filled[0, :, 1].mean() - 3) < 0.2
        ((3, 100, 2), 3.0, Array(True, dtype=bool))

    Args:
        model: see `aisle.Model`.
        proposal: an encoder, from x to a distribution q(z|x); None for the prior.
        x: examples along the first axis, NaN where a value is missing.
        context: of the examples; an `aisle.Context` may say what is observed.
        num_draws: how many draws to make for each example.
        average: whether to return the mean over the draws, as an estimate of E[x | what was
            observed]; by E[x|z] of each draw, where the model has `mean_observation`.
        sampler: of the latents.
        seed: of all draws.
        show_progress: whether to show a progress bar on standard error.

    Returns:
        Examples with observed values as they are and missing ones filled in, with an axis of draws
        after that of the examples unless they are averaged.
    """
    check_count("num_draws", num_draws)
    check_seed(seed)
    proposal, examples = prepared(model, proposal, x, context)
    _, contexts = parts_of(examples)
    if contexts is not None and not isinstance(contexts, Context):
        raise InputError(
            f"is a {type(contexts).__name__}, which does not say what is missing: give an "
            "aisle.Context",
            argument="context",
        )
    drawing = prepare_drawing(model, proposal, examples, sampler, None, seed)
    key = jax.random.fold_in(jax.random.key(seed), _VALUES)
    number, filled = len(jax.tree.leaves(examples)[0]), []
    size = min(number, _NUM_AT_ONCE)
    with Progress(number, "imputing", "examples", is_shown=show_progress) as progress:
        for start in range(0, number, size):
            # Filled up with the first ones, as a last block of another size would be compiled too.
            numbers = np.arange(start, start + size) % number
            xs = jax.tree.map(lambda a, chosen=numbers: a[chosen], examples)
            zs = draw_posterior(drawing, numbers, xs, num_draws)
            filled.append(_fill(key, model, numbers, xs, zs, average))
            progress.advance(min(start + size, number), "imputing")
    return jax.tree.map(lambda *blocks: jnp.concatenate(blocks)[:number], *filled)


@jit
def _fill(
    key: PRNGKey,
    model: Model,
    numbers: Int[Array | np.ndarray, " examples"],
    examples: PyTree | InContext,
    zs: Latent,
    average: bool,
) -> PyTree:
    def one(item: tuple[Array, Observation | InContext, Latent]) -> PyTree:
        number, example, own_zs = item
        x, context = parts_of(example)
        is_observed = jax.tree.map(lambda a: jnp.ones(a.shape, bool), x)
        if context is not None:
            is_observed = is_observed if context.is_observed is None else context.is_observed
            context = context._replace(is_observed=None)
        own, num_draws = given(model, context), len(jax.tree.leaves(own_zs)[0])
        if average and hasattr(own, "mean_observation"):
            values = jax.vmap(own.mean_observation)(own_zs)
        else:
            keys = jax.random.split(jax.random.fold_in(key, number), num_draws)
            values = jax.vmap(own.sample_observation)(keys, own_zs)
        if average:
            values = jax.tree.map(lambda a: jnp.mean(a, axis=0, keepdims=True), values)

        def fill(is_there: Array, given_: Array, drawn: Array) -> Array:
            chosen = jnp.where(is_there[None], given_[None].astype(drawn.dtype), drawn)
            return chosen[0] if average else chosen

        is_observed = jax.tree.map(lambda a, b: a.reshape(b.shape), is_observed, x)
        return jax.tree.map(fill, is_observed, x, values)

    return jax.lax.map(one, (numbers, examples, zs))
