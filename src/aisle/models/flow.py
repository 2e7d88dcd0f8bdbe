"""A proposal beyond normals: noise through coupling layers (Dinh et al., 2017), given x.

The layers are those of flowjax, the optional extra `aisle[flow]`. A coupling layer costs the same
in both directions, so draws are as fast as log q at any z, which annealing needs at each leapfrog
step. The networks in them are smooth, as its integrator wants, and see z in the units of the base.
"""

from types import ModuleType
from typing import TYPE_CHECKING, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aisle.errors import InputError
from aisle.models.distributions import DiagonalNormal, standard_log_prob
from aisle.models.networks import MLP, GaussianLayer, zeroed
from aisle.types import PRNGKey, Scalar

if TYPE_CHECKING:
    from flowjax.bijections import AbstractBijection, Coupling

# An even number: each is followed by a reversal of the latents, and no reversal may be left over.
NUM_COUPLINGS = 4
WIDTH = 96


class FlowNormal(eqx.Module):
    """z = loc + scale f(noise), with f a chain of coupling layers; draws are reparameterised."""

    base: DiagonalNormal
    conditioners: tuple[MLP, ...]

    def sample(self, key: PRNGKey) -> Float[Array, " latent"]:
        """Draw one latent, differentiable in the base and in the conditioners."""
        loc, scale = self.base.loc, self.base.scale
        noise = jax.random.normal(key, loc.shape, loc.dtype)
        return loc + scale * self._bijection().transform(noise)

    def log_prob(self, z: Float[Array, " latent"]) -> Scalar:
        """Return the log-density of one latent."""
        loc, scale = self.base.loc, self.base.scale
        noise, log_det = self._bijection().inverse_and_log_det((z - loc) / scale)
        return standard_log_prob(noise) + log_det - jnp.sum(jnp.log(scale))

    @property
    def scale(self) -> Float[Array, " latent"]:
        """The base's standard deviations, which are those of z as long as f is the identity."""
        return self.base.scale

    def _bijection(self) -> "AbstractBijection":
        # Put together on use, so that all leaves of this class are arrays.
        bijections, layers = _flowjax(), []
        for conditioner in self.conditioners:
            layers.append(_coupling(conditioner, len(self.base.loc)))
            layers.append(bijections.Flip(self.base.loc.shape))
        return bijections.Chain(layers)


class FlowLayer(eqx.Module):
    """A network whose output is a flow, which starts as the diagonal normal of the same key.

    Conditioners see one part of the noise beside the last hidden layer of the encoder.
    """

    diagonal: GaussianLayer
    conditioners: tuple[MLP, ...]

    def __init__(self, key: PRNGKey, num_inputs: int, num_hidden: int, num_outputs: int):
        """Build the network of a `GaussianLayer` and a conditioner for each coupling layer."""
        _flowjax()
        self.diagonal = GaussianLayer(key, num_inputs, num_hidden, num_outputs)
        # The network's three layers have the keys 0, 1 and 2.
        keys = jax.random.split(jax.random.fold_in(key, 3), NUM_COUPLINGS)
        # What one layer changes the next one keeps, also if the halves are not equal.
        kept = [(num_outputs + i % 2) // 2 for i in range(NUM_COUPLINGS)]
        sizes = [(n + num_hidden, WIDTH, 2 * (num_outputs - n)) for n in kept]
        self.conditioners = tuple(map(_conditioner, keys, sizes))

    def __call__(self, x: Float[Array, " inputs"]) -> FlowNormal:
        """Return the distribution given one input."""
        features = self.diagonal.network.features(x)
        conditioners = tuple(_given(features, c) for c in self.conditioners)
        return FlowNormal(self.diagonal.given(features), conditioners)


def _conditioner(key: PRNGKey, sizes: tuple[int, ...]) -> MLP:
    """Build a network whose output is zero at the start, which makes its layer the identity."""
    network = MLP(key, sizes)
    return eqx.tree_at(lambda n: n.layers[-1], network, zeroed(network.layers[-1]))


def _given(features: Float[Array, " features"], conditioner: MLP) -> MLP:
    """Move what the features add to the first layer into its bias: it is the same for every z."""
    first = conditioner.layers[0]
    num_kept = first.weight.shape[1] - len(features)
    bias = cast("Array", first.bias) + features @ first.weight[:, num_kept:].T
    return eqx.tree_at(
        lambda n: (n.layers[0].weight, n.layers[0].bias),
        conditioner,
        (first.weight[:, :num_kept], bias),
    )


def _coupling(conditioner: MLP, num_latents: int) -> "Coupling":
    """Return the affine coupling layer that keeps as many latents as its conditioner sees."""
    bijections = _flowjax()
    # Not traced: its check of the scale would call back, and such programs JAX does not keep.
    with jax.ensure_compile_time_eval(), jax.disable_jit():
        affine = bijections.Affine()
    coupling = bijections.Coupling(
        jax.random.key(0),
        transformer=affine,
        untransformed_dim=conditioner.layers[0].weight.shape[1],
        dim=num_latents,
        nn_width=1,
        nn_depth=0,
    )
    return eqx.tree_at(lambda c: c.conditioner, coupling, conditioner)


def _flowjax() -> ModuleType:
    try:
        import flowjax.bijections
    except ImportError:
        raise InputError(
            "proposal is 'flow' but flowjax is not installed: pip install 'aisle[flow]'"
        ) from None
    return flowjax.bijections
