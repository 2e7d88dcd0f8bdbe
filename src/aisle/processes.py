"""Several processes that work as one: who writes, and how they agree.

With one process, which is the usual case, nothing here communicates.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from aisle.errors import InputError

Value = TypeVar("Value")


def is_first() -> bool:
    """Say whether this is the process that writes and prints."""
    return jax.process_index() == 0


def from_first(value: Value) -> Value:
    """Return the first process's value in all of them; a pytree of arrays or numbers."""
    if jax.process_count() == 1:
        return value
    return jax.tree.map(np.asarray, multihost_utils.broadcast_one_to_all(value))


def largest(number: int) -> int:
    """Return the largest of the processes' numbers."""
    if jax.process_count() == 1:
        return number
    return int(np.max(multihost_utils.process_allgather(np.int32(number))))


def first_does(action: Callable[[], object]) -> None:
    """Let the first process do something that may fail; if it fails, fail in all of them."""
    error = None
    if is_first():
        try:
            action()
        except Exception as raised:
            error = raised
    is_done = from_first(np.int32(error is None))
    if error is not None:
        raise error
    if not is_done:
        raise InputError("the first process failed: see its message")


def gather(tree: Any) -> Any:
    """Return arrays that are spread over the devices as a whole, in every process."""
    if jax.process_count() == 1:
        return jax.tree.map(np.asarray, tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def own_copy(tree: Any) -> Any:
    """Return arrays that are the same on all devices as ones that this process can use alone.

    They are bound to no device, and so go together with arrays that are on other ones.
    """
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a)), tree)


def place(tree: Any, sharding: jax.sharding.NamedSharding) -> Any:
    """Put arrays that every process has on the devices of all of them."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda a: _place(a, sharding), tree)


def _place(array: Any, sharding: jax.sharding.NamedSharding) -> jax.Array:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_place(jax.random.key_data(array), sharding))
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return jax.device_put(array, sharding)
    values = np.asarray(array)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])
