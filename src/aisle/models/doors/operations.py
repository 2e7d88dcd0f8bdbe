"""PyTorch's core operations in JAX, by the names that `torch.export` gives them.

An operation takes the same arguments in the same order. An overload that differs from the others of
its name has a line of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from aisle.models.doors import layers

Sizes = Sequence[int]
Number = int | float


def _aligned(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let arrays of different ranks meet, which JAX may be set to refuse."""

    def aligned(*values: Any) -> Any:
        rank = max(jnp.ndim(value) for value in values)

        def raised(value: Any) -> Any:
            before = (1,) * (rank - jnp.ndim(value))
            return value.reshape(before + value.shape) if jnp.ndim(value) else value

        return function(*map(raised, values))

    return aligned


def _add(x: Any, y: Any, *, alpha: Number = 1) -> Any:
    return _aligned(jnp.add)(x, y if alpha == 1 else alpha * y)


def _subtract(x: Any, y: Any, *, alpha: Number = 1) -> Any:
    return _aligned(jnp.subtract)(x, y if alpha == 1 else alpha * y)


def _divide(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    quotient = _aligned(jnp.true_divide)(x, y)
    return {None: lambda a: a, "floor": jnp.floor, "trunc": jnp.trunc}[rounding_mode](quotient)


def _power(x: Any, y: Any) -> Any:
    # A whole exponent stays one: negative numbers have no other powers.
    return x ** int(y) if isinstance(y, float) and y.is_integer() else _aligned(jnp.power)(x, y)


def _addmm(bias: Any, x: Any, y: Any, *, beta: Number = 1, alpha: Number = 1) -> Any:
    return _add(alpha * (x @ y) if alpha != 1 else x @ y, bias, alpha=beta)


def _elu(x: Any, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Any:
    # Cut off first: where exp overflows, its gradient would be a NaN that `where` lets through.
    low = jnp.expm1(input_scale * jnp.minimum(x, 0))
    return scale * jnp.where(x > 0, x, alpha * low)


def _softplus(x: Any, beta: Number = 1, threshold: Number = 20) -> Any:
    return jnp.where(beta * x > threshold, x, jax.nn.softplus(beta * x) / beta)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        # No axes are all axes.
        return function(x, axis=None if dim == () else dim, keepdims=keepdim)

    return reduced


def _norm(x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    return jnp.linalg.vector_norm(x, axis=None if dim == () else dim, keepdims=keepdim, ord=order)


def _variance(x: Any, dim: Any = None, *, correction: Number = 1, keepdim: bool = False) -> Any:
    return jnp.var(x, dim, ddof=int(correction), keepdims=keepdim)


def _expand(x: Any, shape: Sizes) -> Any:
    known = (1,) * (len(shape) - x.ndim) + x.shape
    full = [own if new == -1 else new for own, new in zip(known, shape, strict=True)]
    return jnp.broadcast_to(x.reshape(known), full)


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _split(x: Any, sizes: Sizes, dim: int = 0) -> Any:
    return jnp.split(x, [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)], axis=dim)


def _index(x: Any, indices: Sequence[Any]) -> Any:
    return x[tuple(slice(None) if index is None else index for index in indices)]


def _pad(x: Any, pads: Sizes, value: Number = 0) -> Any:
    # Pairs begin at the last axis; a negative one cuts off.
    pairs = list(zip(pads[::2], pads[1::2], strict=True))[::-1]
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    return lax.pad(x, jnp.asarray(value, x.dtype), [(*pair, 0) for pair in widths])


def _same(x: Any, *_: Any, dtype: str | None = None) -> Any:
    return x if dtype is None else x.astype(dtype)


def _full(shape: Sizes, value: Number, *, dtype: str | None = None) -> Any:
    return jnp.full(shape, value, dtype)


def _arange(*limits: Number, dtype: str | None = None) -> Any:
    return jnp.arange(*limits, dtype=dtype)


_ALIKE = {
    **{name: name for name in ("abs", "ceil", "cos", "exp", "expm1", "flip", "floor", "log")},
    **{name: name for name in ("log1p", "logical_not", "reciprocal", "round", "sign", "sin")},
    **{name: name for name in ("sqrt", "square", "tanh")},
    "bmm": "matmul",
    "mm": "matmul",
    "neg": "negative",
    "permute": "transpose",
    "repeat": "tile",
    "unsqueeze": "expand_dims",
    "view": "reshape",
}
_BINARY = {
    **{name: name for name in ("logical_and", "logical_or", "maximum", "minimum", "where")},
    "clamp_max": "minimum",
    "clamp_min": "maximum",
    "mul": "multiply",
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "lt": "less",
    "ge": "greater_equal",
    "le": "less_equal",
}

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(jnp, own) for name, own in _ALIKE.items()},
    **{name: _aligned(getattr(jnp, own)) for name, own in _BINARY.items()},
    **dict.fromkeys(("alias", "clone", "detach", "lift_fresh_copy", "_to_copy"), _same),
    "_log_softmax": lambda x, dim, _: jax.nn.log_softmax(x, dim),
    "_native_batch_norm_legit.no_stats": layers.instance_norm,
    "_native_batch_norm_legit_no_training": layers.batch_norm,
    "_softmax": lambda x, dim, _: jax.nn.softmax(x, dim),
    "_unsafe_index": _index,
    "add": _add,
    "addmm": _addmm,
    "amax": _reduced(jnp.max),
    "amin": _reduced(jnp.min),
    "any": _reduced(jnp.any),
    "arange": _arange,
    "avg_pool2d": layers.average_pool,
    "cat": lambda values, dim=0: jnp.concatenate(values, dim),
    "clamp": lambda x, low=None, high=None: jnp.clip(x, low, high),
    "constant_pad_nd": _pad,
    "convolution": layers.convolution,
    "div": _divide,
    "elu": _elu,
    "embedding": lambda weight, indices, *_: weight[indices],
    "erf": lax.erf,
    "expand": _expand,
    "full": _full,
    "full_like": lambda x, value, **_: jnp.full_like(x, value),
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "getitem": lambda values, index: values[index],
    "hardtanh": lambda x, low=-1.0, high=1.0: jnp.clip(x, low, high),
    "index": _index,
    "leaky_relu": lambda x, slope=0.01: jnp.where(x > 0, x, slope * x),
    "linalg_vector_norm": _norm,
    "log_sigmoid_forward": lambda x: (jax.nn.log_sigmoid(x),),
    "max_pool2d_with_indices": layers.max_pool,
    "mean": _reduced(jnp.mean),
    "mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
    "native_group_norm": layers.group_norm,
    "native_layer_norm": layers.layer_norm,
    "pow": _power,
    "relu": jax.nn.relu,
    "rsqrt": lax.rsqrt,
    "scalar_tensor": lambda value, dtype=None: jnp.asarray(value, dtype),
    "select": lambda x, dim, index: jnp.take(x, index, axis=dim),
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "slice": _slice,
    "softplus": _softplus,
    "split_with_sizes": _split,
    "squeeze": jnp.squeeze,
    "sub": _subtract,
    "sum": _reduced(jnp.sum),
    "upsample_nearest1d": layers.nearest,
    "upsample_nearest2d": layers.nearest,
    "var": _variance,
}
