"""A copy of the proposal, fitted to what the model simulates before chains start from it.

An encoder that learned by its ELBO can be far too sure of itself: where it has next to no mass,
chains need very long to get to and from. That shows on simulated examples, whose latents are exact
samples of the posterior, as a gap of bidirectional Monte Carlo that more temperatures hardly close.
"""

import time
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
from aisle.evaluation.folders import kept, load_arrays, save_arrays
from aisle.models.joint import log_joint
from aisle.progress import Progress
from aisle.types import Model, PRNGKey, Proposal, Scalar

# Simulated examples of an update, each of which costs a gradient of log p(x, z).
BATCH_SIZE = 256

_FIRST_RATE = 1e-3

# Updates after which the state is kept: what a kill can cost.
_KEEP_EVERY = 250


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
    if not jax.tree.leaves(arrays):
        raise InputError(f"refit is {num_updates} but the proposal has no weights to fit: use 0")

    def make() -> dict[str, np.ndarray]:
        is_shown = show_progress and processes.is_first()
        partial = None if file is None else file.with_name(f"{file.stem}-partial.npz")
        found, seconds = _fit(key, model, proposal, num_updates, contexts, partial, is_shown)
        if partial is not None:
            processes.first_does(lambda: partial.unlink(missing_ok=True))
        return _named(found) | {"seconds": np.array(seconds)}

    stored, seconds = kept(file, make)
    return eqx.combine(_unnamed(arrays, stored), static), seconds


def _fit(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    num_updates: int,
    contexts: PyTree | None,
    partial: Path | None,
    show_progress: bool,
) -> tuple[PyTree, float]:
    """Return the proposal's arrays after updates by Adam that make `unannealed_gap` smaller.

    The state is kept in a file, from which a refit that was killed goes on; with the seconds that
    were spent before that.
    """
    arrays, static = eqx.partition((model, proposal), eqx.is_inexact_array)
    optimizer = optax.adam(optax.cosine_decay_schedule(_FIRST_RATE, num_updates))

    def loss(params: PyTree, fixed: PyTree, contexts: PyTree, key: PRNGKey) -> Scalar:
        both = eqx.combine((fixed, params), static)
        keys = jax.random.split(key, BATCH_SIZE)
        chosen = _some(jax.random.fold_in(key, BATCH_SIZE), contexts)
        return jnp.mean(jax.vmap(lambda k, c: unannealed_gap(k, *both, c))(keys, chosen))

    # Contexts are passed on: as constants, those of all examples would be in the program.
    def update(
        whole: PyTree, fixed: PyTree, contexts: PyTree, key: PRNGKey
    ) -> tuple[PyTree, Scalar]:
        params, state = whole
        gap, gradient = jax.value_and_grad(loss)(params, fixed, contexts, key)
        steps, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, steps), state), gap

    run = jax.jit(update, donate_argnums=0, compiler_options=compiler_options())
    fixed, params = arrays[0], jax.tree.map(jnp.copy, arrays[1])
    whole, first, before = (params, optimizer.init(params)), 0, 0.0
    stored = None if partial is None else load_arrays(partial)
    if stored is not None:
        whole = _unnamed(whole, stored)
        first, before = int(stored["number"]), float(stored["seconds"])
    start = time.perf_counter()
    bar = Progress(
        num_updates,
        "refitting",
        "examples",
        units_per_step=BATCH_SIZE,
        first=first,
        is_shown=show_progress,
    )
    with bar as progress:
        keys = jax.random.split(key, num_updates)
        for number in range(first + 1, num_updates + 1):
            whole, gap = run(whole, fixed, contexts, keys[number - 1])
            progress.advance(
                number,
                f"refitting  {number:,}/{num_updates:,}",
                f"gap without annealing {float(gap):.1f}",
            )
            if partial is not None and number % _KEEP_EVERY == 0:
                seconds = before + time.perf_counter() - start
                counted = {"number": np.array(number), "seconds": np.array(seconds)}
                done = _named(whole) | counted
                processes.first_does(lambda done=done: save_arrays(partial, done))
    if not all(bool(jnp.all(jnp.isfinite(a))) for a in jax.tree.leaves(whole[0])):
        raise InputError(
            f"refit is {num_updates} but that ends in weights that are not finite: use 0"
        )
    return whole[0], before


def _named(tree: PyTree) -> dict[str, np.ndarray]:
    """Return the arrays of a tree by their numbers."""
    return {str(i): np.asarray(a) for i, a in enumerate(jax.tree.leaves(tree))}


def _unnamed(tree: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """Return a tree like this one, of arrays that `_named` returned."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, [jnp.asarray(arrays[str(i)]) for i in range(len(leaves))])


def _some(key: PRNGKey, contexts: PyTree | None) -> PyTree | None:
    """Choose a context for each example of a batch; the key is that of none of them."""
    leaves = jax.tree.leaves(contexts)
    if not leaves:
        return contexts
    places = jax.random.randint(key, (BATCH_SIZE,), 0, len(leaves[0]))
    return jax.tree.map(lambda a: jnp.asarray(a)[places], contexts)
