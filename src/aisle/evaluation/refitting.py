"""A copy of the proposal, fitted to what the model simulates before chains start from it.

An encoder that learned by its ELBO can be far too sure of itself: where it has next to no mass,
chains need very long to get to and from. That shows on simulated examples, whose latents are exact
samples of the posterior, as a gap of bidirectional Monte Carlo that more temperatures hardly close.
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from aisle import processes
from aisle.compilation import compiler_options
from aisle.context import given
from aisle.errors import InputError
from aisle.evaluation.folders import kept
from aisle.models.joint import log_joint
from aisle.progress import Progress
from aisle.types import Model, PRNGKey, Proposal, Scalar

# Simulated examples of an update, each of which costs a gradient of log p(x, z).
BATCH_SIZE = 256

_FIRST_RATE = 1e-3


def unannealed_gap(
    key: PRNGKey, model: Model, proposal: Proposal, context: PyTree | None = None
) -> Scalar:
    """Estimate, by one simulated example, the gap of bidirectional Monte Carlo without annealing.

    It is KL(p || q) + KL(q || p) of the posterior p and the proposal q: the first keeps q from
    having less mass than p somewhere, the second from having more.
    """
    model, proposal = given(model, context), given(proposal, context)
    key_z, key_x, key_q = jax.random.split(key, 3)
    exact = model.sample_prior(key_z)
    x = model.sample_observation(key_x, exact)
    q, density = proposal(x), log_joint(model, x)
    drawn = q.sample(key_q)
    upper = density(exact) - q.log_prob(exact)
    lower = density(drawn) - q.log_prob(drawn)
    return upper - lower


def refit(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    num_updates: int,
    file: Path | None = None,
    *,
    contexts: PyTree | None = None,
    show_progress: bool = True,
) -> tuple[Proposal, float]:
    """Return the refitted proposal and the seconds it took, from `file` if it is there.

    Examples are simulated in some of the contexts, if there are any.
    """
    arrays, static = eqx.partition(proposal, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    if not leaves:
        raise InputError(f"refit is {num_updates} but the proposal has no weights to fit: use 0")

    def make() -> dict[str, np.ndarray]:
        is_shown = show_progress and processes.is_first()
        found = jax.tree.leaves(_fit(key, model, proposal, num_updates, contexts, is_shown))
        return {str(i): np.asarray(a) for i, a in enumerate(found)}

    stored, seconds = kept(file, make)
    fitted = [jnp.asarray(stored[str(i)]) for i in range(len(leaves))]
    return eqx.combine(jax.tree.unflatten(structure, fitted), static), seconds


def _fit(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    num_updates: int,
    contexts: PyTree | None,
    show_progress: bool,
) -> PyTree:
    """Return the proposal's arrays after updates by Adam that make `unannealed_gap` smaller."""
    arrays, static = eqx.partition((model, proposal), eqx.is_inexact_array)
    optimizer = optax.adam(optax.cosine_decay_schedule(_FIRST_RATE, num_updates))

    def loss(params: PyTree, fixed: PyTree, key: PRNGKey) -> Scalar:
        both = eqx.combine((fixed, params), static)
        keys = jax.random.split(key, BATCH_SIZE)
        chosen = _some(jax.random.fold_in(key, BATCH_SIZE), contexts)
        return jnp.mean(jax.vmap(lambda k, c: unannealed_gap(k, *both, c))(keys, chosen))

    def update(
        params: PyTree, state: PyTree, fixed: PyTree, key: PRNGKey
    ) -> tuple[PyTree, PyTree, Scalar]:
        gap, gradient = jax.value_and_grad(loss)(params, fixed, key)
        steps, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, steps), state, gap

    run = jax.jit(update, donate_argnums=(0, 1), compiler_options=compiler_options())
    fixed, params = arrays[0], jax.tree.map(jnp.copy, arrays[1])
    state = optimizer.init(params)
    bar = Progress(
        num_updates, "refitting", "examples", units_per_step=BATCH_SIZE, is_shown=show_progress
    )
    with bar as progress:
        for number, key_update in enumerate(jax.random.split(key, num_updates), 1):
            params, state, gap = run(params, state, fixed, key_update)
            progress.advance(
                number,
                f"refitting  {number:,}/{num_updates:,}",
                f"gap without annealing {float(gap):.1f}",
            )
    if not all(bool(jnp.all(jnp.isfinite(a))) for a in jax.tree.leaves(params)):
        raise InputError(
            f"refit is {num_updates} but that ends in weights that are not finite: use 0"
        )
    return params


def _some(key: PRNGKey, contexts: PyTree | None) -> PyTree | None:
    """Choose a context for each example of a batch; the key is that of none of them."""
    leaves = jax.tree.leaves(contexts)
    if not leaves:
        return contexts
    places = jax.random.randint(key, (BATCH_SIZE,), 0, len(leaves[0]))
    return jax.tree.map(lambda a: jnp.asarray(a)[places], contexts)
