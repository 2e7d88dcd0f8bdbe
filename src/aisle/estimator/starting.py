"""Networks to start from: factor analysis where all columns are real."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import multivariate_normal

from aisle.models.context import Takes
from aisle.models.latent import Encoder, LatentModel, num_inputs
from aisle.models.likelihoods import constants_of
from aisle.models.networks import Skip
from aisle.runs.forms import fit_families

# The least variance that a factor model leaves to a column, in units of the column's own.
_LEAST_NOISE = 1e-4
_NUM_FACTORS = (0, 1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90)
# Nats that more factors than usual must gain: more latents are other programs to compile.
_WORTH = 0.1
# Steps of factor analysis at the most, and the gain of twice the log-likelihood that is worth one.
_FACTOR_STEPS, _FACTOR_GAIN = 500, 1e-3


class Form(NamedTuple):
    """What networks are built of, beside the values of their arrays.

    Attributes:
        families: the likelihood of each column, by its name in `aisle.models.FAMILIES`.
        num_levels: of each column of categories, and 0 of others.
        num_latents: dimensions of z.
        hidden: units of each hidden layer of the decoder.
    """

    families: tuple[str, ...]
    num_levels: tuple[int, ...]
    num_latents: int
    hidden: tuple[int, ...]


def build(
    form: Form, x: np.ndarray, seed: int, *, is_silent: bool = False
) -> tuple[LatentModel, Encoder]:
    """Build networks; weights come from NumPy, as nothing has to be compiled for them.

    The likelihood of each column is fitted to x, and the noise of real ones depends on z. Beside
    linear layers that will hold factors, the others begin with nothing: they are silent.
    """
    options = {"gaussian": {"scale": "of z"}}
    likelihood, output = fit_families(form.families, form.num_levels, x, options)
    takes, constants = Takes(has_missing=True), constants_of(likelihood)
    shapes = [
        (form.num_latents, *form.hidden, likelihood.num_outputs),
        (num_inputs(likelihood, takes), *reversed(form.hidden), 2 * form.num_latents),
    ]
    random = np.random.default_rng(seed)
    decoder, encoder = (_filled(shape, random, is_silent=is_silent) for shape in shapes)
    decoder = eqx.tree_at(lambda n: n.linear.bias, decoder, jnp.asarray(output, jnp.float32))
    model = LatentModel(decoder, likelihood, form.num_latents, (likelihood.num_features,), takes)
    return model, Encoder(constants, encoder, takes)


def tanh(x: jax.Array) -> jax.Array:
    """Apply tanh; unlike JAX's own function, this one can be pickled."""
    return jnp.tanh(x)


def _filled(sizes: tuple[int, ...], random: np.random.Generator, *, is_silent: bool) -> Skip:
    """Return a network with Glorot's weights, and linear layers that add nothing yet."""
    empty = eqx.filter_eval_shape(Skip, jax.random.key(0), sizes, tanh)

    def fill(leaf: Any) -> jax.Array:
        limit = np.sqrt(6 / sum(leaf.shape)) if len(leaf.shape) == 2 else 0.0
        return jnp.asarray(random.uniform(-limit, limit, leaf.shape), jnp.float32)

    network = jax.tree.map(fill, empty)
    if is_silent:
        last = network.network.layers[-1]
        network = eqx.tree_at(
            lambda n: n.network.layers[-1].weight, network, jnp.zeros_like(last.weight)
        )
    return _with_linear(network, np.zeros((sizes[-1], sizes[0])), np.zeros(sizes[-1]))


def _with_linear(network: Skip, weight: np.ndarray, bias: np.ndarray) -> Skip:
    linear = (jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32))
    return eqx.tree_at(lambda n: (n.linear.weight, n.linear.bias), network, linear)


def with_factors(
    model: LatentModel, encoder: Encoder, x: np.ndarray, number: int
) -> tuple[LatentModel, Encoder]:
    """Return networks that are factor analysis of x, with its exact posterior for an encoder."""
    units = model.likelihood.units  # pyright: ignore[reportAttributeAccessIssue]
    inside = np.nan_to_num((x - np.asarray(units.location)) / np.asarray(units.scale))
    loadings, noise = _factors(inside, number)
    num_columns, num_latents = x.shape[1], model.num_latents
    weight = np.zeros((2 * num_columns, num_latents))
    weight[:num_columns, :number] = loadings
    bias = np.concatenate([np.zeros(num_columns), 0.5 * np.log(noise)])
    decoder = _with_linear(model.decoder, weight, bias)  # pyright: ignore[reportArgumentType]
    # Loadings of maximum likelihood make this matrix diagonal, so q is the posterior itself.
    precision = 1 + np.sum(loadings**2 / noise[:, None], axis=0)
    inwards = np.zeros((2 * num_latents, 2 * num_columns))
    inwards[:number, :num_columns] = (loadings / noise[:, None] / precision).T
    log_scale = np.zeros(2 * num_latents)
    log_scale[num_latents : num_latents + number] = -0.5 * np.log(precision)
    network = _with_linear(encoder.network, inwards, log_scale)  # pyright: ignore
    return (
        eqx.tree_at(lambda m: m.decoder, model, decoder),
        eqx.tree_at(lambda e: e.network, encoder, network),
    )


def choose_factors(x: np.ndarray, folds: Sequence[np.ndarray], most: int, usual: int) -> int:
    """Return the number of factors with the best log-likelihood of what is held out.

    More than the usual number must be worth it.
    """
    deviations = np.nanstd(x, axis=0)
    inside = (x - np.nanmean(x, axis=0)) / np.where(deviations > 0, deviations, 1)
    inside = np.nan_to_num(inside)
    if not folds:
        return 0
    parts = [(np.delete(inside, fold, axis=0), inside[fold]) for fold in folds]
    scores: dict[int, float] = {}
    for number in (n for n in _NUM_FACTORS if n <= min(most, min(len(p[0]) for p in parts) - 2)):
        scores[number] = float(np.mean([_held_out(*part, number) for part in parts]))
        # Beyond twice the best number nothing is gained any more.
        if number > 2 * max(scores, key=lambda n: scores[n]) + 2:
            break
    best = max(scores, key=lambda n: scores[n], default=0)
    fewer = max((n for n in scores if n <= usual), key=lambda n: scores[n], default=0)
    return best if best <= usual or scores[best] > scores[fewer] + _WORTH else fewer


def _held_out(rest: np.ndarray, fold: np.ndarray, number: int) -> float:
    """Return the mean log-likelihood of a fold by the factors of the rest."""
    loadings, noise = _factors(rest, number)
    covariance = loadings @ loadings.T + np.diag(noise)
    normal: Any = multivariate_normal
    return float(np.mean(normal.logpdf(fold, rest.mean(axis=0), covariance)))


def _factors(inside: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return loadings and variances of the noise, by maximum likelihood.

    Given the noise, the loadings are the leading eigenvectors of the covariance in its units; given
    these, the noise is what they leave. By hand, as scikit-learn's goes over all rows in each step
    and this over their covariance alone; a test compares the two.
    """
    covariance = np.atleast_2d(np.cov(inside.T, bias=True))
    variance = np.diag(covariance)
    noise, before = np.maximum(variance, _LEAST_NOISE), np.inf
    loadings = np.zeros((len(variance), 0))
    for _ in range(_FACTOR_STEPS if number else 0):
        scale = np.sqrt(noise)
        values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
        # Twice the mean negative log-likelihood, but for a constant.
        value = np.log(noise).sum() + np.log(np.maximum(values[-number:], 1)).sum()
        value += np.sum(values) - np.maximum(values[-number:] - 1, 0).sum()
        if before - value < _FACTOR_GAIN:
            break
        before = value
        sizes = np.sqrt(np.maximum(values[-number:][::-1] - 1, 0))
        loadings = vectors[:, -number:][:, ::-1] * sizes * scale[:, None]
        noise = np.maximum(variance - np.sum(loadings**2, axis=1), _LEAST_NOISE)
    return loadings, noise
