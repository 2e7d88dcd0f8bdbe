"""A model and a proposal of networks that come from elsewhere."""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Shaped

from aisle.errors import InputError, check
from aisle.models.context import Takes
from aisle.models.distributions import DiagonalNormal
from aisle.models.latent import LatentModel, Network
from aisle.models.likelihoods import FAMILIES, Bernoulli, Likelihood
from aisle.types import Proposal

# Inputs on which a network is compared with the original.
NUM_COMPARED = 5
# Relative to the largest number: what rounding in 32 bits may add up to, and no wrong axis stays
# below.
_TOLERANCE = 1e-3


class NoEncoder(eqx.Module):
    """The proposal N(0, I), which is the prior: it has no weights."""

    num_latents: int = eqx.field(static=True)

    def __call__(self, x: PyTree) -> DiagonalNormal:
        """Return the prior, whatever the observation."""
        del x
        return DiagonalNormal(jnp.zeros(self.num_latents), jnp.ones(self.num_latents))

    def given(self, context: PyTree) -> "NoEncoder":
        """Return the proposal of an example in its context, the same."""
        del context
        return self


class ForeignEncoder(eqx.Module):
    """q(z|x) by a network from x to the means and then the logarithms of the variances."""

    network: Network

    def __call__(self, x: Shaped[Array, "..."]) -> DiagonalNormal:
        """Return the distribution given one example."""
        loc, log_variance = jnp.split(self.network(x), 2)
        return DiagonalNormal(loc, jnp.exp(log_variance / 2))


def needed(module: str, function: str, extra: str) -> Any:
    """Return a module of an extra, or say which to install."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"{function} needs {module}, which is not installed: pip install 'aisle[{extra}]'"
        ) from None


def likelihood_of(likelihood: str | Likelihood, outputs: Sequence[tuple[int, ...]]) -> Likelihood:
    """Return a likelihood for outputs of these shapes, by its name or as it is."""
    num_outputs = sum(map(math.prod, outputs))
    if isinstance(likelihood, str):
        names = [name for name in FAMILIES if name != "categorical"]
        check(
            likelihood in names,
            "likelihood",
            likelihood,
            f"one of {', '.join(names)}, or one that was made, such as aisle.Categorical([3] * 20)",
        )
        family: Any = FAMILIES[likelihood]
        each = family(1).num_outputs
        if len(outputs) > each:
            raise InputError(
                f"is {likelihood!r}, whose arrays are {each} at the most, but the decoder returns "
                f"{len(outputs)}: return what the likelihood takes, or give an object",
                argument="likelihood",
            )
        likelihood = family(num_outputs // each)
    if not isinstance(likelihood, Likelihood):
        kind = likelihood if isinstance(likelihood, type) else type(likelihood)
        raise InputError(
            f"is {kind.__name__}: give a name, such as 'bernoulli', or an object, such as "
            "aisle.Bernoulli(784)",
            argument="likelihood",
        )
    if likelihood.num_outputs != num_outputs:
        raise InputError(
            f"is a {type(likelihood).__name__} that takes {likelihood.num_outputs} numbers, but "
            f"the decoder gives {num_outputs}: give one that fits",
            argument="likelihood",
        )
    return likelihood


def shape_of(likelihood: Likelihood, outputs: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of an example: that of an output if it has a number for each feature."""
    fits = math.prod(outputs[0]) == likelihood.num_features
    return outputs[0] if fits else (likelihood.num_features,)


def check_logits(likelihood: Likelihood, outputs: np.ndarray) -> None:
    """Refuse outputs that are taken for logits and look like probabilities."""
    if isinstance(likelihood, Bernoulli) and np.all((outputs >= 0) & (outputs <= 1)):
        raise InputError(
            "all outputs of the decoder are between 0 and 1, as probabilities are, and a Bernoulli "
            "likelihood takes logits: leave out what makes them probabilities"
        )


def check_equal(name: str, what: str, found: np.ndarray, wanted: np.ndarray, why: str) -> None:
    """Refuse a network whose numbers are not those that are wanted."""
    if not np.isfinite(wanted).all():
        raise InputError(f"the {what} of the {name} are not finite: see to its weights")
    error, size = np.max(np.abs(found - wanted)), np.max(np.abs(wanted))
    if not error <= _TOLERANCE * size:
        raise InputError(f"the {what} of the {name} differ by up to {error:.2g} {why}")


def compared(
    network: Callable[[Array], Array], inputs: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the outputs for each input, and the gradients of their weighted sum there."""
    outputs, pull = jax.vjp(jax.jit(jax.vmap(network)), jnp.asarray(inputs))
    (gradients,) = pull(jnp.asarray(weights, outputs.dtype))
    return np.asarray(outputs), np.asarray(gradients)


def assembled(
    decoder: Network,
    likelihood: Likelihood,
    shape: tuple[int, ...],
    num_latents: int,
    encoder: Network | None,
) -> tuple[LatentModel, Proposal]:
    """Return the model of a decoder, and the proposal of an encoder, or else the prior."""
    takes = Takes(has_missing=encoder is None)
    model = LatentModel(decoder, likelihood, num_latents, shape, takes)
    if encoder is None:
        return model, NoEncoder(num_latents)
    outputs = jax.eval_shape(encoder, jnp.zeros(shape)).size
    if outputs != 2 * num_latents:
        raise InputError(
            f"the encoder gives {outputs} numbers: it must give {2 * num_latents}, the means of "
            f"{num_latents} latents and the logarithms of their variances"
        )
    return model, ForeignEncoder(encoder)
