"""Models with one latent vector for data of any kind, and their encoders."""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from aisle.context import Context
from aisle.errors import InputError, check_count
from aisle.models.context import Takes
from aisle.models.convolutions import ConvolutionalDecoder, ConvolutionalEncoder
from aisle.models.distributions import DiagonalNormal, standard_log_prob
from aisle.models.likelihoods import Categorical, Columns, Likelihood, constants_of, floats
from aisle.models.networks import MLP, Activation
from aisle.types import PRNGKey, Scalar

Network = Callable[[Array], Array]
Latents = Float[Array, " latent"]


class LatentModel(eqx.Module):
    """p(z) p(x|z) with a standard normal prior, any decoder and any likelihood.

    Attributes:
        decoder: from z, and the condition after it, to what the likelihood takes.
        likelihood: what the decoder's output says about x.
        num_latents: dimensions of z.
        shape: of one example.
        takes: which contexts it takes.
        context: that of one example, in what `given` returns.
        conditions: whose `standardise` makes inputs of a condition; None takes it as it is.
    """

    decoder: Network
    likelihood: Likelihood
    num_latents: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    takes: Takes = eqx.field(static=True, default=Takes())
    context: Context | None = None
    conditions: Likelihood | None = None

    @property
    def has_missing(self) -> bool:
        """Whether entries of x may be missing."""
        return self.takes.has_missing

    def given(self, context: PyTree) -> "LatentModel":
        """Return the model of one example in its context."""
        return dataclasses.replace(self, context=self.takes.checked(context))

    def log_prior(self, z: Latents) -> Scalar:
        """Return log p(z)."""
        return standard_log_prob(z)

    def log_likelihood(self, x: Shaped[Array, "..."], z: Latents) -> Scalar:
        """Return log p(x|z)."""
        output, exposure = self._decode(z)
        is_observed = None if self.context is None else self.context.is_observed
        if is_observed is None:
            return self.likelihood.log_prob(x.ravel(), output, **exposure)
        # Filled first: where a term is left out, its gradient must be finite all the same.
        is_observed = is_observed.ravel()
        filled = jnp.where(is_observed, x.ravel(), 0)
        terms = self.likelihood.log_probs(filled, output, **exposure)
        return jnp.sum(jnp.where(is_observed, terms, 0))

    def sample_prior(self, key: PRNGKey) -> Latents:
        """Draw z."""
        return jax.random.normal(key, (self.num_latents,))

    def sample_observation(self, key: PRNGKey, z: Latents) -> Float[Array, "..."]:
        """Draw x given z, with NaN for what is not observed."""
        output, exposure = self._decode(z)
        x = self.likelihood.sample(key, output, **exposure).reshape(self.shape)
        if self.context is None or self.context.is_observed is None:
            return x
        return jnp.where(self.context.is_observed.reshape(self.shape), x, jnp.nan)

    def mean_observation(self, z: Latents) -> Float[Array, "..."]:
        """Return E[x|z], which is what pictures show."""
        output, exposure = self._decode(z)
        return self.likelihood.mean(output, **exposure).reshape(self.shape)

    def _decode(self, z: Latents) -> tuple[Float[Array, " outputs"], dict[str, Array]]:
        """Return the decoder's output, and the exposure if there is one."""
        context, exposure = self.takes.needed(self.context), {}
        z = jnp.concatenate([z, *_condition_of(self, z.dtype)])
        if context.exposure is not None:
            exposure = {"exposure": jnp.asarray(context.exposure).astype(z.dtype)}
        return self.decoder(z), exposure


class Encoder(eqx.Module):
    """q(z|x), a diagonal normal, from what the likelihood's `standardise` makes of x.

    Its network also sees the parts of the context that it `takes`: which entries are observed, the
    condition, the logarithm of the exposure.
    """

    likelihood: Likelihood
    network: Network
    takes: Takes = eqx.field(static=True, default=Takes())
    context: Context | None = None
    conditions: Likelihood | None = None

    def given(self, context: PyTree) -> "Encoder":
        """Return the encoder of one example in its context."""
        return dataclasses.replace(self, context=self.takes.checked(context))

    def __call__(self, x: Shaped[Array, "..."]) -> DiagonalNormal:
        """Return the distribution given one example."""
        x = x.ravel()
        if self.context is not None and self.context.is_observed is not None:
            # `standardise` makes 0 of NaN.
            x = jnp.where(self.context.is_observed.ravel(), floats(x), jnp.nan)
        seen = self.likelihood.standardise(x)
        others = self.takes.inputs(self.context, x.size, seen.dtype)
        seen = jnp.concatenate([seen, *others, *_condition_of(self, seen.dtype)])
        loc, log_scale = jnp.split(self.network(seen), 2)
        return DiagonalNormal(loc, jnp.exp(log_scale))


def _condition_of(part: LatentModel | Encoder, dtype: jnp.dtype) -> list[Float[Array, " _"]]:
    """Return what networks see of the condition: one vector, or nothing."""
    if part.context is None or part.context.condition is None:
        return []
    values = jnp.asarray(part.context.condition)
    seen = values if part.conditions is None else part.conditions.standardise(values)
    return [seen.astype(dtype)]


def mlp_model(
    key: PRNGKey,
    likelihood: Likelihood,
    output: np.ndarray,
    *,
    num_latents: int = 50,
    hidden: Sequence[int] = (200, 200),
    activation: Activation = jnp.tanh,
    num_conditions: int = 0,
    conditions: Likelihood | None = None,
    has_missing: bool = False,
    has_exposure: bool = False,
    typical_exposure: float = 1.0,
) -> tuple[LatentModel, Encoder]:
    """Build a model of linear layers for data of any kind, and its encoder.

    Its likelihood, and the output that it starts from, are fitted to training data:

    Example:
        >>> counts = np.random.default_rng(0).poisson(4.0, (100, 6))
        >>> model, proposal = aisle.mlp_model(
        ...     jax.random.key(0), *aisle.Poisson.fitted(counts), num_latents=2, hidden=(16,))
        >>> aisle.sample(model, 10).shape
        (10, 6)

    Args:
        key: of the first weights.
        likelihood: what the decoder's output says about x, such as `aisle.Poisson`'s.
        output: what the decoder's output starts from.
        num_latents: dimensions of z.
        hidden: units of each hidden layer of the decoder; the encoder has them in reverse.
        activation: between the layers; smooth, as chains follow its gradient.
        num_conditions: numbers of the condition that the model is conditional on, see
            `aisle.Context`; 0 for none.
        conditions: instead of their number, a likelihood that was fitted to them. Its `standardise`
            makes what networks see of them: one-hot codes of categories, real values in units of
            their columns.
        has_missing: whether values may be missing, NaN in x: they drop out of log p(x|z).
        has_exposure: whether counts have exposures, one for each example in its context.
        typical_exposure: the encoder sees the logarithm of an exposure over it, which should be of
            order one.
    """
    _check_sizes(likelihood, output, num_latents=num_latents, hidden=hidden)
    if conditions is not None:
        conditions = constants_of(conditions)
        num_conditions = conditions.num_features
    takes = Takes(num_conditions, has_missing, has_exposure, typical_exposure)
    takes.check_likelihood(likelihood)
    num_seen = num_conditions if conditions is None else num_inputs(conditions, Takes())
    key_decoder, key_encoder = jax.random.split(key)
    network = MLP(key_decoder, (num_latents + num_seen, *hidden, len(output)), activation)
    decoder = eqx.tree_at(lambda n: n.layers[-1].bias, network, jnp.asarray(output, float))
    constants = constants_of(likelihood)
    sizes = (num_inputs(constants, takes) + num_seen, *reversed(hidden), 2 * num_latents)
    shape = (likelihood.num_features,)
    model = LatentModel(decoder, likelihood, num_latents, shape, takes, conditions=conditions)
    # Arrays that are also in the model would be trained twice.
    own = jax.tree.map(jnp.copy, conditions)
    network = MLP(key_encoder, sizes, activation)
    return model, Encoder(constants, network, takes, conditions=own)


def convolutional_model(
    key: PRNGKey,
    likelihood: Likelihood,
    output: np.ndarray,
    *,
    shape: Sequence[int],
    num_latents: int = 50,
    channels: Sequence[int] = (32, 64),
    num_hidden: int = 200,
    activation: Activation = jax.nn.elu,
    has_missing: bool = False,
) -> tuple[LatentModel, Encoder]:
    """Build a model of convolutions for pictures of any size, and its encoder; see `mlp_model`.

    Example:
        >>> pictures = np.random.default_rng(0).integers(0, 2, (100, 9, 7))
        >>> model, proposal = aisle.convolutional_model(
        ...     jax.random.key(0), *aisle.Bernoulli.fitted(pictures), shape=(9, 7), num_latents=2,
        ...     channels=(4, 8), num_hidden=16)
        >>> aisle.sample(model, 10).shape
        (10, 9, 7)

    Args:
        key: of the first weights.
        likelihood: of the same kind for each number of a picture.
        output: what the decoder's output starts from.
        shape: (height, width) or (height, width, channels) of a picture.
        num_latents: dimensions of z.
        channels: after each convolution of the encoder, which halves height and width; the decoder
            has them in reverse.
        num_hidden: units of the linear layer between them and z.
        activation: between the layers; smooth, as chains follow its gradient.
        has_missing: whether pixels may be missing; the encoder sees which in channels of their own.
    """
    shape, channels = tuple(shape), tuple(channels)
    _check_sizes(
        likelihood, output, num_latents=num_latents, channels=channels, num_hidden=num_hidden
    )
    if len(shape) not in (2, 3) or np.prod(shape) != likelihood.num_features:
        raise InputError(
            f"is {shape} but the likelihood is of {likelihood.num_features} numbers: give (height, "
            "width) or (height, width, channels) of a picture",
            argument="shape",
        )
    is_uneven = isinstance(likelihood, Categorical) and len(likelihood.groups) > 1
    if is_uneven or isinstance(likelihood, Columns):
        raise InputError(
            f"is a {type(likelihood).__name__} whose features are not of one kind: all of a "
            "picture must be; aisle.Categorical.fitted takes num_levels=NUMBER for all",
            argument="likelihood",
        )
    full = (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)
    key_decoder, key_encoder = jax.random.split(key)
    decoder = ConvolutionalDecoder(
        key_decoder, num_latents, num_hidden, channels, full, output, activation
    )
    constants, takes = constants_of(likelihood), Takes(has_missing=has_missing)
    inputs, outputs = num_inputs(constants, takes), 2 * num_latents
    network = ConvolutionalEncoder(
        key_encoder, full, inputs, channels, num_hidden, outputs, activation
    )
    model = LatentModel(decoder, likelihood, num_latents, shape, takes)
    return model, Encoder(constants, network, takes)


def _check_sizes(likelihood: Likelihood, output: np.ndarray, **sizes: int | Sequence[int]) -> None:
    for name, given in sizes.items():
        for size in given if isinstance(given, Sequence) else (given,):
            check_count(name, size)
    if np.shape(output) != (likelihood.num_outputs,):
        raise InputError(
            f"has the shape {np.shape(output)} but the likelihood takes {likelihood.num_outputs} "
            "numbers: give what its `fitted` returned",
            argument="output",
        )


def num_inputs(likelihood: Likelihood, takes: Takes) -> int:
    """Return how many numbers an encoder sees beside those of the condition."""
    of_x = jax.eval_shape(likelihood.standardise, jnp.zeros(likelihood.num_features)).size
    return of_x + takes.num_inputs(likelihood.num_features)
