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
Picture = Float[Array, "..."]


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
            hidden = self.activation(_halved(layer, hidden))
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
            wide = _doubled(layer, self.activation(hidden))
            # An odd size is one less than twice what it was halved to.
            hidden = wide[:height, :width]
        height, width, channels = self.shape
        picture = hidden.reshape(height, width, -1, channels).transpose(2, 0, 1, 3)
        return picture.ravel() + self.bias


# As products of matrices: on a CPU, convolutions take twice the time for gradients of weights,
# and multiply the zeros between the pixels of a picture that grows.
def _halved(layer: eqx.nn.Conv2d, picture: Picture) -> Picture:
    """Apply a layer of Equinox, with channels last."""
    kernel = layer.weight.transpose(2, 3, 1, 0).reshape(-1, layer.weight.shape[0])
    return _with_bias(layer, _patches(picture, 3, 2) @ kernel)


def _doubled(layer: eqx.nn.ConvTranspose2d, picture: Picture) -> Picture:
    """Apply a transposed layer of Equinox, with channels last.

    Rows 2 i and 2 i + 1 of the result see rows i - 1 and i, and i and i + 1 of the picture, each by
    every other row of the kernel; columns likewise.
    """
    height, width, _ = picture.shape
    new, old, *_ = layer.weight.shape
    kernel = layer.weight.reshape(new, old, 2, 2, 2, 2).transpose(2, 4, 1, 3, 5, 0)
    wide = _patches(picture, 2, 1) @ kernel.reshape(4 * old, 4 * new)
    wide = wide.reshape(height + 1, width + 1, 2, 2, new)
    rows = jnp.stack([wide[:-1, :, 0], wide[1:, :, 1]], 1)
    both = jnp.stack([rows[:, :, :-1, 0], rows[:, :, 1:, 1]], 3)
    return _with_bias(layer, both.reshape(2 * height, 2 * width, new))


def _patches(picture: Picture, size: int, stride: int) -> Float[Array, "height width features"]:
    """Return the squares of some size around each pixel, or every other one, with zeros outside."""
    padded = jnp.pad(picture, ((1, 1), (1, 1), (0, 0)))
    ends = [length + 3 - size for length in picture.shape[:2]]
    return jnp.concatenate(
        [
            padded[i : ends[0] + i : stride, j : ends[1] + j : stride]
            for i in range(size)
            for j in range(size)
        ],
        axis=-1,
    )


def _with_bias(layer: eqx.nn.Conv2d | eqx.nn.ConvTranspose2d, picture: Picture) -> Picture:
    return picture if layer.bias is None else picture + layer.bias.reshape(1, 1, -1)


def sizes_of(shape: Shape, number: int) -> list[tuple[int, int]]:
    """Return height and width before, and after each halving of them."""
    height, width, _ = shape
    return [(math.ceil(height / 2**i), math.ceil(width / 2**i)) for i in range(number + 1)]
