"""The joint density of a model and one observation, as the sampler sees it."""

from aisle.types import Latent, LogDensity, Model, Observation, Scalar


def log_joint(model: Model, x: Observation) -> LogDensity:
    """Return log p(x, z) as a function of z."""

    def density(z: Latent) -> Scalar:
        return model.log_prior(z) + model.log_likelihood(x, z)

    return density
