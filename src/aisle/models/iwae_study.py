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
from numpy.typing import ArrayLike

from aisle.errors import InputError, check_count
from aisle.models.distributions import DiagonalNormal, standard_log_prob
from aisle.models.likelihoods import Bernoulli, Gaussian, Likelihood
from aisle.models.networks import MLP, GaussianLayer
from aisle.types import PRNGKey, Scalar

# Families that need no more than the mean of the training data.
Family = type[Bernoulli] | type[Gaussian]

Vector = Float[Array, " size"]
Pair = tuple[Float[Array, " first"], Float[Array, " second"]]


class OneLayerModel(eqx.Module):
    """p(z) p(x|z) with a standard normal prior."""

    decoder: MLP
    likelihood: Likelihood

    def log_prior(self, z: Vector) -> Scalar:
        """Return log p(z)."""
        return standard_log_prob(z)

    def log_likelihood(self, x: Array, z: Float[Array, " latent"]) -> Scalar:
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

    def log_likelihood(self, x: Array, z: Pair) -> Scalar:
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
    def loc(self) -> Pair:
        """Mean of h1 given x, and of h2 given that h1."""
        return self.first.loc, self.upper(self.first.loc).loc

    @property
    def scale(self) -> Pair:
        """Standard deviations of h1 given x, and of h2 given the mean of h1."""
        return self.first.scale, self.upper(self.first.loc).scale


class TwoLayerProposal(eqx.Module):
    """q(h1|x) q(h2|h1)."""

    lower: GaussianLayer
    upper: GaussianLayer

    def __call__(self, x: Array) -> PairDistribution:
        """Run the lower encoder on one example; the upper one runs on each h1."""
        return PairDistribution(self.lower(x), self.upper)


def one_layer(
    key: PRNGKey,
    mean: ArrayLike,
    *,
    num_latents: int = 50,
    num_hidden: int = 200,
    likelihood: Family = Bernoulli,
) -> tuple[OneLayerModel, GaussianLayer]:
    """Build a model with one stochastic layer, and its encoder.

    Example:
        >>> x = np.float32(np.random.default_rng(0).random((100, 6)) < 0.3)
        >>> model, proposal = aisle.one_layer(jax.random.key(0), x.mean(0), num_latents=2)
        >>> model.sample_prior(jax.random.key(1)).shape
        (2,)

    Args:
        key: of the first weights.
        mean: of each feature over the training data; sets the output bias.
        num_latents: dimensions of z.
        num_hidden: units of each of the two hidden layers.
        likelihood: what the decoder's output says about x: `aisle.Bernoulli` or `aisle.Gaussian`.
    """
    key_decoder, key_encoder = jax.random.split(key)
    bias = _first_bias(mean, num_latents, num_hidden, likelihood)
    decoder = _decoder(key_decoder, num_latents, num_hidden, bias)
    encoder = GaussianLayer(key_encoder, len(bias), num_hidden, num_latents)
    return OneLayerModel(decoder, likelihood(len(bias))), encoder


def two_layer(
    key: PRNGKey,
    mean: ArrayLike,
    *,
    num_latents: int = 50,
    num_hidden: int = 200,
    likelihood: Family = Bernoulli,
) -> tuple[TwoLayerModel, TwoLayerProposal]:
    """Build a model with two stochastic layers, and its encoder; see `one_layer`.

    h1 has twice the latents of h2, and the networks between them half the width.

    Example:
        >>> model, proposal = aisle.two_layer(jax.random.key(0), np.full(6, 0.3), num_latents=2)
        >>> [h.shape for h in model.sample_prior(jax.random.key(1))]
        [(4,), (2,)]
    """
    num_first, num_upper = 2 * num_latents, max(1, num_hidden // 2)
    bias = _first_bias(mean, num_latents, num_hidden, likelihood)
    keys = jax.random.split(key, 4)
    decoder = _decoder(keys[0], num_first, num_hidden, bias)
    upper = GaussianLayer(keys[1], num_latents, num_upper, num_first)
    model = TwoLayerModel(upper, decoder, likelihood(len(bias)))
    lower = GaussianLayer(keys[2], len(bias), num_hidden, num_first)
    return model, TwoLayerProposal(lower, GaussianLayer(keys[3], num_first, num_upper, num_latents))


def _first_bias(
    mean: ArrayLike, num_latents: int, num_hidden: int, likelihood: Family
) -> np.ndarray:
    """Check the sizes of a network, and return the bias of its output."""
    check_count("num_latents", num_latents)
    check_count("num_hidden", num_hidden)
    values = np.asarray(mean, np.float64)
    if values.ndim != 1 or not len(values):
        raise InputError(
            f"has the shape {values.shape}: give one number for each feature, as in x.mean(0) of "
            "examples that are vectors",
            argument="mean",
        )
    if not np.all(np.isfinite(values)):
        raise InputError("has values that are not finite: repair the data", argument="mean")
    return likelihood.initial_output(values)


def _decoder(key: PRNGKey, num_latents: int, num_hidden: int, bias: np.ndarray) -> MLP:
    network = MLP(key, (num_latents, num_hidden, num_hidden, len(bias)))
    return eqx.tree_at(lambda n: n.layers[-1].bias, network, jnp.asarray(bias, jnp.float32))
