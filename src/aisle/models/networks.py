"""Networks of linear layers, and what makes a distribution of their outputs."""

import itertools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from aisle.errors import InputError
from aisle.models.distributions import DiagonalNormal
from aisle.types import PRNGKey

Activation = Callable[[Array], Array]
Tree = TypeVar("Tree")


class MLP(eqx.Module):
    """Linear layers with an activation between them, none after the last.

    Weights start from Glorot's uniform law and biases from zero, as in the IWAE study.
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Activation = eqx.field(static=True)

    def __init__(self, key: PRNGKey, sizes: tuple[int, ...], activation: Activation = jnp.tanh):
        """Build layers of the given `sizes`, input first."""
        self.activation = activation
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = itertools.pairwise(sizes)
        self.layers = tuple(_linear(k, *shape) for k, shape in zip(keys, shapes, strict=True))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Apply the network to one example."""
        for layer in self.layers[:-1]:
            x = self.activation(_apply(layer, x))
        return _apply(self.layers[-1], x)


class Skip(eqx.Module):
    """A linear layer beside a network: their sum."""

    linear: eqx.nn.Linear
    network: MLP

    def __init__(self, key: PRNGKey, sizes: tuple[int, ...], activation: Activation = jnp.tanh):
        """Build a network of the given `sizes`, and a linear layer from the first to the last."""
        key_linear, key_network = jax.random.split(key)
        self.linear = _linear(key_linear, sizes[0], sizes[-1])
        self.network = MLP(key_network, sizes, activation)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Apply both to one example."""
        return _apply(self.linear, x) + self.network(x)


class GaussianLayer(eqx.Module):
    """A network whose output is a diagonal normal: an encoder, or an upper stochastic layer."""

    network: MLP

    def __init__(self, key: PRNGKey, num_inputs: int, num_hidden: int, num_outputs: int):
        """Build a network with two hidden layers."""
        self.network = MLP(key, (num_inputs, num_hidden, num_hidden, 2 * num_outputs))

    def __call__(self, x: Shaped[Array, " inputs"]) -> DiagonalNormal:
        """Return the distribution given one input; whole numbers are taken as real ones."""
        loc, log_scale = jnp.split(self.network(x.astype(jnp.result_type(float))), 2)
        return DiagonalNormal(loc, jnp.exp(log_scale))


def _apply(layer: eqx.nn.Linear, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
    # Under vmap Equinox's own `weight @ x` puts the batch last, and each pass back would transpose.
    is_rounded = layer.weight.dtype == jnp.bfloat16
    product = _rounded_product(x, layer.weight) if is_rounded else x @ layer.weight.T
    return product + cast("Array", layer.bias)


def rounded(model: Tree) -> Tree:
    """Return a model whose MLPs multiply in bfloat16 and add in single precision.

    The weights are rounded to eight bits here, and their inputs at each product. The density is a
    function of z as before, near the exact one. It is faster on processors with units for bfloat16.
    """
    found = []

    def one(part: Any) -> Any:
        if not isinstance(part, MLP):
            return part
        found.append(part)
        return jax.tree.map(lambda a: a.astype(jnp.bfloat16) if _is_matrix(a) else a, part)

    result = jax.tree.map(one, model, is_leaf=lambda part: isinstance(part, MLP))
    if not found:
        raise InputError(
            f"is 'bfloat16' but the model, a {type(model).__name__}, has no linear layers of "
            "aisle: leave it out, or take a model such as aisle.mlp_model's",
            argument="precision",
        )
    return result


def _is_matrix(leaf: Any) -> bool:
    return eqx.is_array(leaf) and leaf.ndim == 2


# By hand: XLA ignores the precision of a product on a CPU, and automatic differentiation would
# multiply the gradient by the weights in single precision.
@jax.custom_vjp
def _rounded_product(
    x: Float[Array, " inputs"], weight: Float[Array, "outputs inputs"]
) -> Float[Array, " outputs"]:
    return _product(x, weight.T)


def _rounded_product_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return _product(x, weight.T), (x, weight)


def _rounded_product_backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = kept
    # Chains do not ask for that of the weights, and the compiler drops it there.
    return _product(gradient, weight), jnp.outer(gradient, x).astype(weight.dtype)


_rounded_product.defvjp(_rounded_product_forward, _rounded_product_backward)


def _product(x: Array, weight: Array) -> Array:
    found = jnp.dot(x.astype(weight.dtype), weight, preferred_element_type=jnp.float32)
    return found.astype(x.dtype)


def _linear(key: PRNGKey, num_inputs: int, num_outputs: int) -> eqx.nn.Linear:
    layer = eqx.nn.Linear(num_inputs, num_outputs, key=key)
    weight = jax.nn.initializers.glorot_uniform()(key, layer.weight.shape)
    return eqx.tree_at(lambda m: (m.weight, m.bias), layer, (weight, jnp.zeros(num_outputs)))


def transposed_kernel(weight: ArrayLike) -> Float[Array, "outputs inputs *space"]:
    """Return the kernel of a transposed convolution of PyTorch in Equinox's form.

    `torch.nn.ConvTranspose2d` stores (inputs, outputs, height, width) and lays the kernel down at
    each input; `equinox.nn.ConvTranspose2d` stores (outputs, inputs, height, width) and slides it.
    So axes are swapped and space is flipped: with the same number of inputs and outputs the weights
    would otherwise have the right shape and give a wrong answer. For one group.

    Example:
        >>> aisle.transposed_kernel(np.arange(4.0).reshape(1, 1, 2, 2)).tolist()
        [[[[3.0, 2.0], [1.0, 0.0]]]]
    """
    kernel = jnp.swapaxes(jnp.asarray(weight), 0, 1)
    return jnp.flip(kernel, axis=range(2, kernel.ndim))
