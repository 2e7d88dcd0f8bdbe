"""Decoders and encoders of Flax, of its older form (Linen) and of its newer one (NNX)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from aisle.errors import InputError, check_count, first_line
from aisle.models.doors.assembly import (
    NUM_COMPARED,
    assembled,
    check_equal,
    check_logits,
    likelihood_of,
    needed,
    shape_of,
)
from aisle.models.latent import LatentModel
from aisle.models.likelihoods import Likelihood
from aisle.types import Proposal


@dataclass(frozen=True)
class _Linen:
    """A module of Linen as a function of its variables."""

    module: Any

    def __call__(self, weights: PyTree, constants: PyTree, x: Array) -> Any:
        return self.module.apply({**constants, "params": weights}, x)


@dataclass(frozen=True)
class _NNX:
    """A module of NNX as a function of its state."""

    merge: Any
    graph: Any

    def __call__(self, weights: PyTree, constants: PyTree, x: Array) -> Any:
        return self.merge(self.graph, weights, constants)(x)


class FlaxNetwork(eqx.Module):
    """A network of Flax for one example, from any shape to a vector of all its outputs.

    Attributes:
        weights: what is trained: the collection "params" of Linen, or a state of NNX.
        constants: what is not, such as the running means of a batch norm.
        function: of weights, constants and a batch.
        shape: of the input, without a batch axis.
    """

    weights: PyTree
    constants: PyTree
    function: _Linen | _NNX = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, " outputs"]:
        """Apply the network to one example."""
        outputs = self.batch(x.astype(jnp.result_type(float)).reshape(1, *self.shape))
        return jnp.concatenate([output.ravel() for output in outputs])

    def batch(self, x: Float[Array, "..."]) -> list[Array]:
        """Apply it to a batch, as Flax would."""
        constants = jax.tree.map(_fixed, self.constants)
        return jax.tree.leaves(self.function(self.weights, constants, x))


def from_flax(
    decoder: Any,
    likelihood: str | Likelihood = "bernoulli",
    encoder: Any = None,
    *,
    num_latents: int,
) -> tuple[LatentModel, Proposal]:
    """Return the model of a Flax decoder, and the proposal of an encoder.

    The prior is N(0, I). `aisle.fit` trains the parameters, and leaves other variables as they are;
    `model.decoder.weights` are what goes back to Flax: the collection "params" of Linen, or a state
    for `nnx.update`.

    Example:
        >>> from flax import nnx
        >>> model, proposal = aisle.from_flax(nnx.Linear(2, 6, rngs=nnx.Rngs(0)), num_latents=2)
        >>> aisle.sample(model, 5).shape
        (5, 6)

    Args:
        decoder: a module of NNX, or one of Linen that is bound to its variables,
            `module.bind(variables)`, from z, (examples, latents), to what the likelihood takes: one
            array, or several whose numbers follow one another.
        likelihood: a name, such as "bernoulli", which takes logits, or an object.
        encoder: such a module from x, in the shape of the decoder's output or flat, to the means
            and the logarithms of the variances, in one array or two; None starts chains at the
            prior.
        num_latents: dimensions of z.
    """
    check_count("num_latents", num_latents)
    network, outputs = _network("decoder", decoder, [(num_latents,)])
    shapes = [a.shape[1:] for a in outputs]
    chosen = likelihood_of(likelihood, shapes)
    check_logits(chosen, np.concatenate([a.ravel() for a in outputs]))
    shape = shape_of(chosen, shapes)
    back = None
    if encoder is not None:
        back, _ = _network("encoder", encoder, [shape, (chosen.num_features,)])
    return assembled(network, chosen, shape, num_latents, back)


def _fixed(leaf: Any) -> Any:
    return jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf


def _network(
    name: str, module: Any, shapes: Sequence[tuple[int, ...]]
) -> tuple[FlaxNetwork, list[np.ndarray]]:
    """Return a module as a network of one example, of the first shape that it takes."""
    function, weights, constants = _parts(name, module)
    reasons = []
    for shape in shapes:
        network = FlaxNetwork(weights, constants, function, shape)
        x = jax.random.normal(jax.random.key(0), (NUM_COMPARED, *shape))
        try:
            together = [np.asarray(a) for a in network.batch(x)]
        except Exception as error:  # whatever a module of somebody else may raise
            reasons.append(f"{x.shape}: {first_line(error)}")
            continue
        alone = np.asarray(jax.vmap(network)(x))
        whole = np.concatenate([a.reshape(NUM_COMPARED, -1) for a in together], axis=1)
        why = "between an example alone and in a batch: set the module to evaluation"
        check_equal(name, "outputs", alone, whole, why)
        return network, together
    raise InputError(f"the {name} does not take a batch of the shape {'; nor '.join(reasons)}")


def _parts(name: str, module: Any) -> tuple[_Linen | _NNX, PyTree, PyTree]:
    """Return what a module computes, what of it is trained and what is not."""
    nnx = needed("flax.nnx", "from_flax", "flax")
    linen = needed("flax.linen", "from_flax", "flax")
    if isinstance(module, nnx.Module):
        graph, *states = nnx.split(module, nnx.Param, ...)
        # Copies: a state holds the variables of the module itself, which may be changed later.
        weights, constants = jax.tree.map(lambda leaf: leaf, states)
        return _NNX(nnx.merge, graph), weights, constants
    if not isinstance(module, linen.Module) or module.scope is None:
        raise InputError(
            f"is a {type(module).__name__} without its variables: give a module of NNX, or "
            "module.bind(variables) of Linen",
            argument=name,
        )
    free, variables = module.unbind()
    rest = {key: value for key, value in variables.items() if key != "params"}
    return _Linen(free), variables.get("params", {}), rest
