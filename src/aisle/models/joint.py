"""The joint density of a model and one observation, and whether they belong together."""

import jax
import numpy as np

from aisle.errors import InputError
from aisle.types import Latent, LogDensity, Model, Observation, PRNGKey, Scalar


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
