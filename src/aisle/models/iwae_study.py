"""The networks of the IWAE study (Burda, Grosse & Salakhutdinov, 2016), of any size.

One stochastic layer:  x - 200 - 200 - z(50), and back; p(z) = N(0, I).
Two stochastic layers: x - 200 - 200 - h1(100), h1 - 100 - 100 - h2(50), and back; p(h2) = N(0, I).
A two-layer latent is the pair (h1, h2), and annealing runs on both at once.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.errors import InputError
from aisle.models import likelihoods
from aisle.models.distributions import DiagonalNormal, standard_log_prob
from aisle.models.flow import FlowLayer
from aisle.models.likelihoods import Likelihood
from aisle.models.networks import MLP, FullGaussianLayer, GaussianLayer
from aisle.types import PRNGKey, Scalar

Vector = Float[Array, " size"]
Pair = tuple[Float[Array, " first"], Float[Array, " second"]]

Encoder = GaussianLayer | FullGaussianLayer | FlowLayer
PROPOSALS: dict[str, type[Encoder]] = {
    "diagonal": GaussianLayer,
    "full": FullGaussianLayer,
    "flow": FlowLayer,
}


class OneLayerModel(eqx.Module):
    """p(z) p(x|z) with a standard normal prior."""

    decoder: MLP
    likelihood: Likelihood

    def log_prior(self, z: Vector) -> Scalar:
        """Return log p(z)."""
        return standard_log_prob(z)

    def log_likelihood(self, x: Vector, z: Float[Array, " latent"]) -> Scalar:
        """Return log p(x|z)."""
        return self.likelihood.log_prob(x, self.decoder(z))

    def sample_prior(self, key: PRNGKey) -> Vector:
        """Draw z."""
        return jax.random.normal(key, (self.decoder.layers[0].weight.shape[1],))

    def sample_observation(self, key: PRNGKey, z: Float[Array, " latent"]) -> Vector:
        """Draw x given z."""
        return self.likelihood.sample(key, self.decoder(z))

    def mean_observation(self, z: Float[Array, " latent"]) -> Vector:
        """Return E[x|z], which is what pictures show."""
        return self.likelihood.mean(self.decoder(z))


class TwoLayerModel(eqx.Module):
    """p(h2) p(h1|h2) p(x|h1); the latent is (h1, h2)."""

    upper: GaussianLayer
    decoder: MLP
    likelihood: Likelihood

    def log_prior(self, z: Pair) -> Scalar:
        """Return log p(h2) + log p(h1|h2)."""
        first, second = z
        return standard_log_prob(second) + self.upper(second).log_prob(first)

    def log_likelihood(self, x: Vector, z: Pair) -> Scalar:
        """Return log p(x|h1)."""
        return self.likelihood.log_prob(x, self.decoder(z[0]))

    def sample_prior(self, key: PRNGKey) -> Pair:
        """Draw (h1, h2)."""
        key_first, key_second = jax.random.split(key)
        size = self.upper.network.layers[0].weight.shape[1]
        second = jax.random.normal(key_second, (size,))
        return self.upper(second).sample(key_first), second

    def sample_observation(self, key: PRNGKey, z: Pair) -> Vector:
        """Draw x given h1."""
        return self.likelihood.sample(key, self.decoder(z[0]))

    def mean_observation(self, z: Pair) -> Vector:
        """Return E[x|h1], which is what pictures show."""
        return self.likelihood.mean(self.decoder(z[0]))


class PairDistribution(eqx.Module):
    """q(h1|x) q(h2|h1)."""

    first: DiagonalNormal
    upper: GaussianLayer

    def sample(self, key: PRNGKey) -> Pair:
        """Draw (h1, h2), reparameterised."""
        key_first, key_second = jax.random.split(key)
        first = self.first.sample(key_first)
        return first, self.upper(first).sample(key_second)

    def log_prob(self, z: Pair) -> Scalar:
        """Return the log-density of one pair."""
        first, second = z
        return self.first.log_prob(first) + self.upper(first).log_prob(second)

    @property
    def scale(self) -> Pair:
        """Standard deviations of h1 given x, and of h2 given the mean of h1."""
        return self.first.scale, self.upper(self.first.loc).scale


class TwoLayerProposal(eqx.Module):
    """q(h1|x) q(h2|h1)."""

    lower: GaussianLayer
    upper: GaussianLayer

    def __call__(self, x: Vector) -> PairDistribution:
        """Run the lower encoder on one example; the upper one runs on each h1."""
        return PairDistribution(self.lower(x), self.upper)


def one_layer(
    key: PRNGKey,
    mean: np.ndarray,
    *,
    num_latents: int = 50,
    num_hidden: int = 200,
    likelihood: str = "bernoulli",
    proposal: str = "diagonal",
) -> tuple[OneLayerModel, Encoder]:
    """Build a model and its proposal; `mean` of the training data sets the output bias."""
    key_decoder, key_encoder = jax.random.split(key)
    decoder = _decoder(key_decoder, num_latents, num_hidden, mean, likelihood)
    encoder = _encoder(proposal, key_encoder, len(mean), num_hidden, num_latents)
    return OneLayerModel(decoder, likelihoods.named(likelihood)(len(mean))), encoder


def two_layer(
    key: PRNGKey,
    mean: np.ndarray,
    *,
    num_latents: int = 50,
    num_hidden: int = 200,
    likelihood: str = "bernoulli",
    proposal: str = "diagonal",
) -> tuple[TwoLayerModel, TwoLayerProposal]:
    """Build the two-layer model; h1 has twice the latents of h2, its networks half the width."""
    if proposal != "diagonal":
        raise InputError(
            f"proposal is {proposal!r} but that of the two-layer model is always diagonal: leave "
            "it out, or use the one-layer model"
        )
    num_first, num_upper = 2 * num_latents, max(1, num_hidden // 2)
    keys = jax.random.split(key, 4)
    decoder = _decoder(keys[0], num_first, num_hidden, mean, likelihood)
    model = TwoLayerModel(
        GaussianLayer(keys[1], num_latents, num_upper, num_first),
        decoder,
        likelihoods.named(likelihood)(len(mean)),
    )
    lower = GaussianLayer(keys[2], len(mean), num_hidden, num_first)
    upper = GaussianLayer(keys[3], num_first, num_upper, num_latents)
    return model, TwoLayerProposal(lower, upper)


MODELS = {"one-layer": one_layer, "two-layer": two_layer}


def build(
    name: str,
    key: PRNGKey,
    mean: np.ndarray,
    *,
    num_latents: int = 50,
    num_hidden: int = 200,
    likelihood: str = "bernoulli",
    proposal: str = "diagonal",
) -> tuple[OneLayerModel | TwoLayerModel, Encoder | TwoLayerProposal]:
    """Build the model called `name` and its proposal."""
    if name not in MODELS:
        raise InputError(f"model is {name!r}: choose from {', '.join(MODELS)}")
    return MODELS[name](
        key,
        mean,
        num_latents=num_latents,
        num_hidden=num_hidden,
        likelihood=likelihood,
        proposal=proposal,
    )


def _encoder(
    name: str, key: PRNGKey, num_inputs: int, num_hidden: int, num_latents: int
) -> Encoder:
    if name not in PROPOSALS:
        raise InputError(f"proposal is {name!r}: choose from {', '.join(PROPOSALS)}")
    if name != "diagonal" and num_latents < 2:
        raise InputError(f"proposal is {name!r} but num_latents is {num_latents}: use diagonal")
    return PROPOSALS[name](key, num_inputs, num_hidden, num_latents)


def _decoder(
    key: PRNGKey, num_latents: int, num_hidden: int, mean: np.ndarray, likelihood: str
) -> MLP:
    for label, size in (("num_latents", num_latents), ("num_hidden", num_hidden)):
        if size < 1:
            raise InputError(f"{label} is {size}: a network needs at least 1")
    bias = likelihoods.named(likelihood).initial_output(np.asarray(mean, np.float64))
    network = MLP(key, (num_latents, num_hidden, num_hidden, len(mean)))
    return eqx.tree_at(lambda n: n.layers[-1].bias, network, jnp.asarray(bias, jnp.float32))
