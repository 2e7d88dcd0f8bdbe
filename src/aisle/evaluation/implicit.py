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
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from numpy.typing import ArrayLike

from aisle.annealing import Kernel, presets, schedules, tuning
from aisle.annealing.importance import importance_log_weights
from aisle.annealing.kernel import run_forward
from aisle.annealing.tuning import StepSizes
from aisle.compilation import jit
from aisle.data import Split, check_bits, check_unmasked, check_values
from aisle.data.split import as_values
from aisle.errors import InputError, check_rules, check_seed, check_whole
from aisle.evaluation.arguments import where_not_finite
from aisle.models.distributions import PriorProposal
from aisle.models.joint import check_density, check_encoder, check_observation, log_joint
from aisle.models.likelihoods import takes_bits
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

_WHOLE = ("num_samples", "num_draws", "num_temperatures", "num_leapfrog", "seed")

# Where the pilot starts, and the chains of each of its 30 rounds.
_FIRST_STEP = 0.1
_PILOT_CHAINS = 50


def sample_posterior(
    model: Model,
    proposal: Proposal | None,
    x: Observation,
    *,
    method: str = "ais",
    num_samples: int = 5,
    num_draws: int = 1,
    num_temperatures: int = 11,
    kernel: str = "tuned",
    num_leapfrog: int | None = None,
    schedule: str | None = None,
    precondition: float | None = None,
    momentum_refresh: float | None = None,
    target_accept: float | None = None,
    step_sizes: ArrayLike | None = None,
    seed: int = 0,
) -> Latent:
    """Draw latents from q_IS or q_AIS, which approximate p(z|x), for one observation.

    The draws are independent, each of K samples or chains of its own. One whose weights are all
    zero, or not finite, is NaN.

    Args:
        model: log_prior and log_likelihood; see `aisle.types.Model`.
        proposal: an encoder, from x to a distribution q(z|x); None for the prior.
        x: one observation, without a batch axis.
        method: is or ais.
        num_samples: K, samples of q or chains that a draw is chosen from.
        num_draws: how many latents to draw.
        num_temperatures: T, transitions of a chain (ais).
        kernel: tuned or paper, which say what the next five are where they are None, as in
            training; see `aisle.annealing.presets`.
        num_leapfrog: L, leapfrog steps of a transition (ais).
        schedule: of the inverse temperatures: linear, sigmoid, geometric, ramp or immediate (ais).
        precondition: power of the proposal's scale that preconditions HMC; 0 for none (ais).
        momentum_refresh: share of new noise in the momentum at each transition (ais).
        target_accept: acceptance that the step sizes are tuned to (ais).
        step_sizes: T of them, for HMC; None tunes them on 1,500 pilot chains, which have another
            key, and freezes them before the draws (ais).
        seed: of all draws.

    Returns:
        A latent with a leading axis of `num_draws`, in each of its arrays.
    """
    given = dict(locals())
    _check_leaves(x)
    x = jax.tree.map(lambda a: jnp.asarray(as_values(np.asarray(a))), x)
    check_observation(model, x, "x")
    proposal = PriorProposal(model) if proposal is None else proposal
    check_encoder(proposal)
    has_scale = presets.has_scale(proposal, x)
    given |= presets.complete(presets.TRAINING, kernel, given, has_scale=has_scale)
    _check_arguments(given)
    if takes_bits(model):
        check_bits(Split(np.asarray(x)[None]), "x")
    check_density(model, proposal, x)
    key_pilot, key_draws = jax.random.split(jax.random.key(seed))
    chains = Kernel(
        schedules.named(given["schedule"], num_temperatures),
        _first_step_sizes(step_sizes, num_temperatures),
        num_samples,
        given["num_leapfrog"],
        given["precondition"],
        given["momentum_refresh"],
    )
    if method == "ais" and step_sizes is None:
        target = jnp.asarray(given["target_accept"])
        chains = _tune(key_pilot, model, proposal, x, chains, target)
    return _draw(key_draws, model, proposal, x, chains, method, num_draws)


def draw_is(key: PRNGKey, q: Distribution, log_joint: LogDensity, num_samples: int) -> Latent:
    """Draw one latent from q_IS."""
    key_samples, key_choice = jax.random.split(key)
    log_weights = importance_log_weights(
        key_samples, q, log_joint, num_samples, samples_per_tile=_SAMPLES_PER_TILE
    )
    index, is_defined = _choose(key_choice, log_weights)
    # The sample is drawn again from its key, so that K of them need not be kept. These must be the
    # keys of aisle/annealing/importance.py: with others, every draw would be one of q.
    z = q.sample(jax.random.split(key_samples, num_samples)[index])
    return jax.tree.map(lambda a: jnp.where(is_defined, a, jnp.nan), z)


def draw_ais(key: PRNGKey, q: Distribution, log_joint: LogDensity, kernel: Kernel) -> Latent:
    """Draw one latent from q_AIS, of `kernel.num_samples` chains."""
    key_chains, key_choice = jax.random.split(key)

    def chain(key: PRNGKey) -> tuple[Latent, Scalar]:
        run = run_forward(key, q, log_joint, kernel)
        return run.z, run.log_weight

    keys = jax.random.split(key_chains, kernel.num_samples)
    ends, log_weights = jax.lax.map(chain, keys, batch_size=min(len(keys), _CHAINS_PER_TILE))
    index, is_defined = _choose(key_choice, log_weights)
    return jax.tree.map(lambda a: jnp.where(is_defined, a[index], jnp.nan), ends)


def draw_many(
    keys: Key[Array, " draws"],
    q: Distribution,
    log_joint: LogDensity,
    kernel: Kernel,
    method: str,
) -> Latent:
    """Make one draw for each key, along a leading axis; memory stays that of a tile."""
    alive = _SAMPLES_PER_TILE if method == "is" else _CHAINS_PER_TILE
    num_tiles = math.ceil(len(keys) / max(1, alive // kernel.num_samples))
    tile = math.ceil(len(keys) / num_tiles)
    # Filled up to whole tiles, as a last one of another size would be compiled for itself.
    filled = keys[jnp.arange(num_tiles * tile) % len(keys)]
    draw = _METHODS[method]
    draws = jax.lax.map(lambda key: draw(key, q, log_joint, kernel), filled, batch_size=tile)
    return jax.tree.map(lambda a: a[: len(keys)], draws)


def tune(
    key: PRNGKey,
    q: Distribution,
    log_joint: LogDensity,
    kernel: Kernel,
    target: float | Scalar = 0.65,
) -> Kernel:
    """Return the kernel with step sizes from pilot chains, for draws with another key."""

    def acceptance(key: PRNGKey, step_sizes: StepSizes) -> StepSizes:
        trial = dataclasses.replace(kernel, step_sizes=step_sizes)
        keys = jax.random.split(key, _PILOT_CHAINS)
        runs = jax.vmap(lambda k: run_forward(k, q, log_joint, trial).info.acceptance)(keys)
        return jnp.mean(runs, axis=0)

    tuned = tuning.pilot(key, acceptance, kernel.step_sizes, target=target)
    return dataclasses.replace(kernel, step_sizes=tuned)


_METHODS: dict[str, Callable[[PRNGKey, Distribution, LogDensity, Kernel], Latent]] = {
    "is": lambda key, q, log_joint, kernel: draw_is(key, q, log_joint, kernel.num_samples),
    "ais": draw_ais,
}


@jit
def _draw(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    x: Observation,
    kernel: Kernel,
    method: str,
    num_draws: int,
) -> Latent:
    keys = jax.random.split(key, num_draws)
    return draw_many(keys, proposal(x), log_joint(model, x), kernel, method)


@jit
def _tune(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    x: Observation,
    kernel: Kernel,
    target: Scalar,
) -> Kernel:
    return tune(key, proposal(x), log_joint(model, x), kernel, target)


def _choose(
    key: PRNGKey, log_weights: Float[Array, " samples"]
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """Choose one by its normalised weight, and say whether the weights allow a choice."""
    return jax.random.categorical(key, log_weights), jnp.isfinite(jnp.max(log_weights))


def _first_step_sizes(step_sizes: ArrayLike | None, num_temperatures: int) -> StepSizes:
    """Return the step sizes given, checked, or those that the pilot starts from."""
    if step_sizes is None:
        return jnp.full(num_temperatures, _FIRST_STEP)
    values = np.asarray(step_sizes, np.float32)
    if values.shape != (num_temperatures,):
        raise InputError(
            f"step_sizes has the shape {values.shape} and num_temperatures is {num_temperatures}: "
            "give one step size for each temperature, or None to tune them"
        )
    if not np.all((values > 0) & np.isfinite(values)):
        wrong = values[~((values > 0) & np.isfinite(values))][0]
        raise InputError(f"step_sizes has the value {wrong:g}: each must be finite and positive")
    return jnp.asarray(values)


def _check_arguments(given: Mapping[str, Any]) -> None:
    """Refuse arguments that make no sense, each with its rule; comparisons with NaN fail too."""
    if given["method"] not in _METHODS:
        raise InputError(f"method is {given['method']!r}: choose from {', '.join(_METHODS)}")
    check_whole(given, _WHOLE)
    rules = {
        "num_samples": (given["num_samples"] >= 1, "at least 1"),
        "num_draws": (given["num_draws"] >= 1, "at least 1"),
        "num_temperatures": (given["num_temperatures"] >= 1, "at least 1"),
        "num_leapfrog": (given["num_leapfrog"] >= 1, "at least 1"),
        "precondition": (0 <= given["precondition"] < math.inf, "finite, and 0 or more"),
        "momentum_refresh": (0 < given["momentum_refresh"] <= 1, "above 0 and at most 1"),
        "target_accept": (0 < given["target_accept"] < 1, "between 0 and 1"),
    }
    check_rules(given, rules)
    check_seed(given["seed"])


def _check_leaves(x: Observation) -> None:
    for given in jax.tree.leaves(x):
        check_unmasked(given, "the values of x")
        leaf = np.asarray(given)
        if leaf.dtype == np.uint8:
            check_values(Split(leaf[None]), "none", "x")
        places = where_not_finite(leaf)
        if len(places):
            wrong = leaf[tuple(places[0])]
            raise InputError(f"x has the value {wrong}: every value must be a finite number")
