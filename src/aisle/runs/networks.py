"""The networks that a configuration names: the built-in ones, and those of a user's function."""

import importlib
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from aisle.data import Split
from aisle.errors import InputError, check_seed
from aisle.models import Bernoulli, Gaussian, one_layer, two_layer
from aisle.runs.options import ModelOptions
from aisle.types import PRNGKey

Weights = tuple[Any, Any]

_LIKELIHOODS = {"bernoulli": Bernoulli, "gaussian": Gaussian}
_MODELS = {"one-layer": one_layer, "two-layer": two_layer}


def build(options: ModelOptions, train: Split, seed: int) -> Weights:
    """Build (model, proposal) for the training data."""
    check_seed(seed)
    if ":" in options.model:
        return own_networks(options.model, jax.random.key(seed), train)
    return build_named(options, train.mean(), seed)


def build_named(options: ModelOptions, mean: np.ndarray, seed: int) -> Weights:
    """Build one of the built-in networks for data of a mean."""
    if options.model not in _MODELS:
        raise InputError(
            f"is {options.model!r}: choose from {', '.join(_MODELS)}, or give MODULE:FUNCTION",
            argument="model",
        )
    if options.likelihood not in _LIKELIHOODS:
        raise InputError(
            f"is {options.likelihood!r}: choose from {', '.join(_LIKELIHOODS)}",
            argument="likelihood",
        )

    # One compilation instead of one for each array, which would take seconds.
    @eqx.filter_jit
    def weights(key: PRNGKey) -> Weights:
        return _MODELS[options.model](
            key,
            mean,
            num_latents=options.num_latents,
            num_hidden=options.num_hidden,
            likelihood=_LIKELIHOODS[options.likelihood],
        )

    return weights(jax.random.key(seed))


def own_networks(name: str, key: PRNGKey, train: Split) -> Weights:
    """Call a user's function, MODULE:FUNCTION, with a key and the training examples."""
    module_name, _, function_name = name.partition(":")
    # As for `python -m`: a module beside the user is found.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(
            f"is {name!r} but {module_name} cannot be imported ({error}): run the command from the "
            "folder that has it, or install it",
            argument="model",
        ) from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(
            f"is {name!r} but {module_name} has no function {function_name!r}: name one that "
            "takes a key and the training examples, and returns (model, proposal)",
            argument="model",
        )
    built = function(key, train)
    if not isinstance(built, tuple) or len(built) != 2:
        raise InputError(
            f"is {name!r} but the function returns a {type(built).__name__}: return "
            "(model, proposal)",
            argument="model",
        )
    return built
