"""The joint density of a model and one observation, and whether they belong together."""

from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import PyTree

from aisle.compilation import jit
from aisle.context import InContext, bind, given, parts_of
from aisle.errors import InputError
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

_METHODS = ("log_prior", "log_likelihood", "sample_prior", "sample_observation")


def log_joint(model: Model, x: Observation) -> LogDensity:
    """Return log p(x, z) as a function of z."""

    def density(z: Latent) -> Scalar:
        return model.log_prior(z) + model.log_likelihood(x, z)

    return density


def check_observation(model: Any, x: Observation | InContext, what: str) -> None:
    """Refuse an observation that has not the shape of those that the model simulates.

    Broadcasting would otherwise make a density of almost any shape.
    """
    for name in _METHODS:
        if not hasattr(model, name):
            raise InputError(
                f"the model, a {type(model).__name__}, has no {name}: give an object with the "
                f"methods {', '.join(_METHODS)}"
            )

    def simulate(key: PRNGKey, context: PyTree | None) -> Observation:
        own = given(model, context)
        return own.sample_observation(key, own.sample_prior(key))

    x, context = parts_of(x)
    own = jax.tree.map(np.shape, jax.eval_shape(simulate, jax.random.key(0), context))
    found = jax.tree.map(np.shape, x)
    if own != found:
        raise InputError(
            f"{what} has the shape {found} but those that the model simulates {own}: give examples "
            "of that shape"
        )


def check_encoder(proposal: Any) -> None:
    """Refuse what is no encoder, such as a distribution."""
    if not callable(proposal):
        raise InputError(
            f"the proposal is a {type(proposal).__name__}: give an encoder, from x to a "
            "distribution q(z|x)"
        )


def check_parts(model: Model, proposal: Any, x: Observation | InContext) -> None:
    """Refuse a model and a proposal whose parts do not fit together, by their shapes alone.

    A density with an axis too many would otherwise be broadcast, and train to a wrong number.

    Args:
        model: whose observations are those of `check_observation`.
        proposal: whatever was given for one.
        x: one observation, or its shape, in its context if it has one.
    """
    check_encoder(proposal)
    jax.eval_shape(lambda x: _densities(model, proposal, x), x)


def _densities(
    model: Model, proposal: Callable[[Observation], Any], x: Observation | InContext
) -> dict[str, Scalar]:
    """Return the densities at a sample of the proposal; complain about the first wrong shape."""
    model, proposal, x = bind(model, cast("Proposal", proposal), x)
    q, key = proposal(x), jax.random.key(0)
    if not isinstance(q, Distribution):
        raise InputError(
            f"the proposal returns a {type(q).__name__}: return a distribution, an object with the "
            "methods sample(key) and log_prob(z)"
        )
    z = q.sample(key)
    found, own = (jax.tree.map(np.shape, a) for a in (z, model.sample_prior(key)))
    if found != own:
        raise InputError(
            f"a sample of the proposal has the shape {found} but one of the prior {own}: make them "
            "the same"
        )
    densities = {
        "log_prior(z)": model.log_prior(z),
        "log_likelihood(x, z)": model.log_likelihood(x, z),
        "log_prob(z) of the proposal": q.log_prob(z),
    }
    for name, value in densities.items():
        if np.shape(value):
            raise InputError(
                f"{name} has the shape {np.shape(value)}: it must be one number, the sum over all "
                "axes; of a NumPyro distribution, take to_event()"
            )
    return densities


_computed = jit(_densities)


def check_density(model: Model, proposal: Proposal, x: Observation | InContext) -> None:
    """Refuse a density that is not a number where the proposal puts z.

    Chains would reject every move and end in numbers that are none either. Minus infinity is all
    right: z may be where the model has no mass. Shapes that `check_parts` refuses are refused here.
    """
    for name, value in _computed(model, proposal, x).items():
        if np.isnan(value):
            raise InputError(
                f"{name} is not a number for the first example at a sample of the proposal: check "
                "it, and the weights; scales must be positive"
            )
