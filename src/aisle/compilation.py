"""How functions are compiled: for objects of any kind, and by what options."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def compiler_options() -> dict[str, int] | None:
    """Return the options for programs that run chains, to be given to `jax.jit`.

    XLA's code for CPUs uses vectors of 256 bits by default even where the machine has 512, which
    slows the functions between the matrix products down; where it has not, nothing changes.
    """
    return {"xla_cpu_prefer_vector_width": 512} if jax.default_backend() == "cpu" else None


def quick_options() -> dict[str, int]:
    """Return the options for programs of small tables.

    They are compiled in half the time, which is more than all of their runs take, and are no
    slower where the networks are small.
    """
    return {"xla_backend_optimization_level": 1}


def jit(function: Callable[_Arguments, _Result], **options: Any) -> Callable[_Arguments, _Result]:
    """Compile once for all arguments of a kind, but anew for objects that may change unseen."""
    compiled = eqx.filter_jit(function, **options)

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if may_change((args, kwargs)):
            return eqx.filter_jit(lambda: function(*args, **kwargs))()
        return compiled(*args, **kwargs)

    return call


_PROGRAMS: dict[Any, Any] = {}
_MAX_PROGRAMS = 64


def remembered(key: Any, make: Callable[[], _Result]) -> _Result:
    """Return what `make` returns, made once only for keys that are equal.

    A key is any tree without arrays. One that cannot be compared, or that has objects which may
    change unseen, is made anew each time.
    """
    leaves, structure = jax.tree.flatten(key)
    whole = (structure, *leaves)
    if may_change(key) or not _is_hashable(whole):
        return make()
    if whole not in _PROGRAMS:
        if len(_PROGRAMS) >= _MAX_PROGRAMS:
            del _PROGRAMS[next(iter(_PROGRAMS))]
        _PROGRAMS[whole] = make()
    return _PROGRAMS[whole]


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def may_change(tree: Any) -> bool:
    """Say whether a tree has objects that JAX cannot look into.

    An object that is no pytree is a constant of a compiled function, known by its identity: were it
    changed, the function would compute with its old values. Functions and frozen dataclasses are
    taken to be what they were.
    """
    return any(map(_is_opaque, jax.tree.leaves(tree)))


def _is_opaque(leaf: Any) -> bool:
    is_value = eqx.is_array_like(leaf) or isinstance(leaf, str)
    # JAX's functions are objects of its own classes.
    is_function = inspect.isroutine(leaf) or type(leaf).__module__.startswith("jax")
    is_frozen = dataclasses.is_dataclass(leaf) and leaf.__dataclass_params__.frozen  # pyright: ignore
    return not (is_value or is_function or is_frozen)
