"""Networks of convolutions for pictures of any size.

They take and make flat vectors, as all networks here: features of a (height, width, channels)
picture in the order of NumPy, and where each has several numbers, the first of all features first.
"""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.models.networks import MLP, Activation
from aisle.types import PRNGKey

Shape = tuple[int, int, int]


class ConvolutionalEncoder(eqx.Module):
    """Convolutions, each of which halves height and width, then linear layers."""

    layers: tuple[eqx.nn.Conv2d, ...]
    head: MLP
    shape: Shape = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKey,
        shape: Shape,
        num_inputs: int,
        channels: tuple[int, ...],
        num_hidden: int,
        num_outputs: int,
        activation: Activation,
    ):
        """Build the network; `channels` has those after each convolution."""
        self.shape, self.activation = shape, activation
        first, *keys = jax.random.split(key, len(channels) + 1)
        height, width = sizes_of(shape, len(channels))[-1]
        widths = itertools.pairwise((num_inputs // (shape[0] * shape[1]), *channels))
        self.layers = tuple(
            eqx.nn.Conv2d(*pair, kernel_size=3, stride=2, padding=1, key=k)
            for k, pair in zip(keys, widths, strict=True)
        )
        sizes = (channels[-1] * height * width, num_hidden, num_outputs)
        self.head = MLP(first, sizes, activation)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Apply the network to one example."""
        height, width, channels = self.shape
        picture = x.reshape(-1, height, width, channels).transpose(1, 2, 0, 3)
        hidden = picture.reshape(height, width, -1)
        for layer in self.layers:
            hidden = self.activation(_convolved(layer, hidden, strides=(2, 2), padding=1))
        return self.head(hidden.transpose(2, 0, 1).ravel())


class ConvolutionalDecoder(eqx.Module):
    """Linear layers, then transposed convolutions, each of which doubles height and width."""

    head: MLP
    layers: tuple[eqx.nn.ConvTranspose2d, ...]
    bias: Float[Array, " outputs"]
    shape: Shape = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKey,
        num_latents: int,
        num_hidden: int,
        channels: tuple[int, ...],
        shape: Shape,
        bias: np.ndarray,
        activation: Activation,
    ):
        """Build the network; `channels` has those before each convolution, in reverse.

        `bias` is what the output starts from: one number for each, which no convolution has.
        """
        self.shape, self.activation = shape, activation
        first, *keys = jax.random.split(key, len(channels) + 1)
        height, width = sizes_of(shape, len(channels))[-1]
        self.head = MLP(first, (num_latents, num_hidden, channels[-1] * height * width), activation)
        widths = itertools.pairwise((*channels[::-1], len(bias) // (shape[0] * shape[1])))
        # The last one has no bias of its own beside that of the output.
        self.layers = tuple(
            eqx.nn.ConvTranspose2d(
                *pair, kernel_size=4, stride=2, padding=1, use_bias=i + 1 < len(channels), key=k
            )
            for i, (k, pair) in enumerate(zip(keys, widths, strict=True))
        )
        self.bias = jnp.asarray(bias, float)

    def __call__(self, z: Float[Array, " latent"]) -> Float[Array, " outputs"]:
        """Apply the network to one latent."""
        *sizes, (height, width) = sizes_of(self.shape, len(self.layers))
        hidden = self.head(z).reshape(-1, height, width).transpose(1, 2, 0)
        for layer, (height, width) in zip(self.layers, reversed(sizes), strict=True):
            wide = _convolved(layer, self.activation(hidden), dilation=(2, 2), padding=2)
            # An odd size is one less than twice what it was halved to.
            hidden = wide[:height, :width]
        height, width, channels = self.shape
        picture = hidden.reshape(height, width, -1, channels).transpose(2, 0, 1, 3)
        return picture.ravel() + self.bias


def _convolved(
    layer: eqx.nn.Conv2d | eqx.nn.ConvTranspose2d,
    picture: Float[Array, "height width channels"],
    *,
    padding: int,
    strides: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
) -> Float[Array, "newheight newwidth newchannels"]:
    """Apply a layer of Equinox with channels last: its own order is 1.5 times as slow on a CPU."""
    result = jax.lax.conv_general_dilated(
        picture[None],
        layer.weight.transpose(2, 3, 1, 0),
        window_strides=strides,
        padding=[(padding, padding)] * 2,
        lhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )[0]
    return result if layer.bias is None else result + layer.bias.reshape(1, 1, -1)


def sizes_of(shape: Shape, number: int) -> list[tuple[int, int]]:
    """Return height and width before, and after each halving of them."""
    height, width, _ = shape
    return [(math.ceil(height / 2**i), math.ceil(width / 2**i)) for i in range(number + 1)]
