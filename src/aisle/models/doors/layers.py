"""PyTorch's layers in JAX: convolutions, norms, pools, and what makes pictures larger.

Arguments are in PyTorch's order; arrays are (examples, channels, space...).
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

Sizes = Sequence[int]
Number = int | float


def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    is_transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Any:
    """Convolve in any number of dimensions, or transposed."""
    if is_transposed:
        kernel = _turned(weight, groups)
        reach = [d * (k - 1) for d, k in zip(dilation, kernel.shape[2:], strict=True)]
        pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)]
        strides, spread = (1,) * len(stride), stride
    else:
        kernel, pads = weight, [(p, p) for p in padding]
        strides, spread = stride, None
    y = lax.conv_general_dilated(
        x, kernel, strides, pads, spread, dilation, feature_group_count=groups
    )
    return _with_channels(y, None, bias)


def _turned(weight: Any, groups: int) -> Any:
    """Return the kernel that slides, of one that is laid down; see `transposed_kernel`."""
    inputs, outputs, *space = weight.shape
    grouped = weight.reshape(groups, inputs // groups, outputs, *space).swapaxes(1, 2)
    kernel = grouped.reshape(groups * outputs, inputs // groups, *space)
    return jnp.flip(kernel, axis=range(2, kernel.ndim))


def batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: Number, eps: Number
) -> tuple[Any]:
    """Normalise by what was learned of each channel."""
    del momentum
    scale = lax.rsqrt(variance + eps)
    return (_with_channels(_with_channels(x, scale, -mean * scale), weight, bias),)


def instance_norm(
    x: Any, weight: Any, bias: Any, is_training: bool, momentum: Number, eps: Number
) -> tuple[Any]:
    """Normalise each channel of one example."""
    del is_training, momentum
    return (_with_channels(_normalised(x, (0, *range(2, x.ndim)), eps), weight, bias),)


def group_norm(
    x: Any, weight: Any, bias: Any, number: int, channels: int, size: int, groups: int, eps: Number
) -> tuple[Any]:
    """Normalise groups of channels of one example."""
    del channels, size
    y = _normalised(x.reshape(number, groups, -1), (2,), eps).reshape(x.shape)
    return (_with_channels(y, weight, bias),)


def layer_norm(x: Any, shape: Sizes, weight: Any, bias: Any, eps: Number) -> tuple[Any]:
    """Normalise over the last axes, which have this shape."""
    y = _normalised(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    full = (1,) * (x.ndim - len(shape)) + tuple(shape)
    y = y if weight is None else y * weight.reshape(full)
    return (y if bias is None else y + bias.reshape(full),)


def _normalised(x: Any, axes: Sizes, eps: Number) -> Any:
    centred = x - jnp.mean(x, axes, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, axes, keepdims=True) + eps)


def _with_channels(x: Any, weight: Any, bias: Any) -> Any:
    """Multiply each channel, and add to it, where there are numbers to do so."""
    full = (1, -1, *(1,) * (x.ndim - 2))
    x = x if weight is None else x * weight.reshape(full)
    return x if bias is None else x + bias.reshape(full)


def average_pool(
    x: Any,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (),
    is_ceil: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Any:
    """Average over windows."""
    if is_ceil or divisor or (any(padding) and not counts_padding):
        raise NotImplementedError
    return _windows(x, kernel, stride, padding, 0.0, lax.add) / math.prod(kernel)


def max_pool(
    x: Any,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (),
    dilation: Sizes = (),
    is_ceil: bool = False,
) -> tuple[Any]:
    """Take the largest value of each window; not where it is."""
    if is_ceil or any(d != 1 for d in dilation):
        raise NotImplementedError
    return (_windows(x, kernel, stride, padding, -jnp.inf, lax.max),)


def _windows(x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, start: Any, add: Any) -> Any:
    before = x.ndim - len(kernel)
    pads = [(0, 0)] * before + [(p, p) for p in padding or (0,) * len(kernel)]
    sizes, steps = ((1,) * before + tuple(a) for a in (kernel, stride or kernel))
    return lax.reduce_window(x, start, add, sizes, steps, pads)


def nearest(x: Any, size: Sizes | None, factors: Sequence[Number] | None) -> Any:
    """Enlarge to a size, or by factors, each pixel a copy of the nearest one."""
    for axis in range(2, x.ndim):
        before, factor = x.shape[axis], factors[axis - 2] if factors else None
        after = size[axis - 2] if size else math.floor(before * float(factor or 1))
        ratio = 1 / factor if factor else before / after
        places = [min(before - 1, math.floor(i * ratio)) for i in range(after)]
        x = jnp.take(x, jnp.array(places), axis=axis)
    return x
