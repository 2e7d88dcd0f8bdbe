"""The joint density of a model and one observation, and whether they belong together."""

import equinox as eqx
import jax
import numpy as np

from aisle.errors import InputError
from aisle.types import Latent, LogDensity, Model, Observation, PRNGKey, Proposal, Scalar


def log_joint(model: Model, x: Observation) -> LogDensity:
    """Return log p(x, z) as a function of z."""

    def density(z: Latent) -> Scalar:
        return model.log_prior(z) + model.log_likelihood(x, z)

    return density


def check_observation(model: Model, x: Observation, what: str) -> None:
    """Refuse an observation that has not the shape of those that the model simulates.

    Broadcasting would otherwise make a density of almost any shape.
    """

    def simulate(key: PRNGKey) -> Observation:
        return model.sample_observation(key, model.sample_prior(key))

    own = jax.tree.map(np.shape, jax.eval_shape(simulate, jax.random.key(0)))
    given = jax.tree.map(np.shape, x)
    if own != given:
        raise InputError(
            f"{what} has the shape {given} but those that the model simulates {own}: give examples "
            "of that shape"
        )


def check_density(model: Model, proposal: Proposal, x: Observation) -> None:
    """Refuse a model whose log p(x, z) is not a number where the proposal puts z.

    Chains would reject every move and end in figures that are none either. Minus infinity is all
    right: z may be where the model has no mass.
    """
    if np.isnan(_at_a_sample(model, proposal, x)):
        raise InputError(
            "log p(x, z) of the first example is not a number at a sample of the proposal: check "
            "the model's log_prior and log_likelihood, its weights, and the proposal"
        )


@eqx.filter_jit
def _at_a_sample(model: Model, proposal: Proposal, x: Observation) -> Scalar:
    return log_joint(model, x)(proposal(x).sample(jax.random.key(0)))
