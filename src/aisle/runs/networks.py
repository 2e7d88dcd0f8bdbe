"""The networks that a configuration names: the built-in ones, and those of a user's function."""

import dataclasses
import importlib
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aisle.data import Dataset, Split
from aisle.errors import InputError, check_seed
from aisle.models import (
    FAMILIES,
    Bernoulli,
    Gaussian,
    convolutional_model,
    mlp_model,
    one_layer,
    two_layer,
)
from aisle.runs.forms import FirstValues, Form, any_values, first_values, form_of
from aisle.runs.options import ModelOptions
from aisle.types import PRNGKey

Weights = tuple[Any, Any]

_STUDY_FAMILIES = {"bernoulli": Bernoulli, "gaussian": Gaussian}
_STUDY_MODELS = {"one-layer": one_layer, "two-layer": two_layer}
_ACTIVATIONS = {
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
}


def build(options: ModelOptions, dataset: Dataset, seed: int, form: Form | None = None) -> Weights:
    """Build (model, proposal) for the training data, whose form may be known."""
    check_seed(seed)
    train = dataset.train
    network = network_of(options, dataset.table is not None)
    if network == "own":
        return own_networks(options.model, jax.random.key(seed), train)
    if network == "study":
        return build_named(options, train.mean(), seed)
    form = form_of(options.likelihood, dataset) if form is None else form
    return _assembled(options, form, first_values(form, train), seed)


def rebuild(options: ModelOptions, form: Form | None, shape: Sequence[int]) -> Weights:
    """Build networks whose weights are then replaced, without the data.

    Args:
        options: of built-in networks.
        form: of the data; None for the study's networks.
        shape: of one example.
    """
    if form is None:
        return build_named(options, np.full(math.prod(shape), 0.5), seed=0)
    return _assembled(options, form, any_values(form), seed=0)


def network_of(options: ModelOptions, is_table: bool) -> str:
    """Return which networks are meant: own, study, mlp or conv; the last two have a form."""
    if options.is_own:
        return "own"
    if options.model not in _STUDY_MODELS:
        raise InputError(
            f"is {options.model!r}: choose from {', '.join(_STUDY_MODELS)}, or give "
            "MODULE:FUNCTION",
            argument="model",
        )
    if options.likelihood not in ("auto", *FAMILIES):
        raise InputError(
            f"is {options.likelihood!r}: choose from auto, {', '.join(FAMILIES)}",
            argument="likelihood",
        )
    has_own = options.hidden is not None or options.activation is not None
    if options.model == "two-layer" and (has_own or options.network not in (None, "study")):
        raise InputError(
            "is 'two-layer', which has the study's networks alone: leave --network, --hidden and "
            "--activation out",
            argument="model",
        )
    is_studied = options.likelihood in ("auto", "bernoulli") and not is_table and not has_own
    usual = "study" if options.model == "two-layer" or is_studied else "mlp"
    network = options.network or usual
    if network == "conv" and options.hidden is not None:
        raise InputError(
            f"is {options.hidden!r}, but the layers of --network conv are not chosen so: leave it "
            "out, or give --num-hidden",
            argument="hidden",
        )
    if network == "study" and has_own:
        raise InputError(
            "is 'study', whose networks have two layers of --num-hidden and tanh: leave --hidden "
            "and --activation out, or take --network mlp",
            argument="network",
        )
    if network == "study" and (is_table or options.likelihood not in ("auto", *_STUDY_FAMILIES)):
        raise InputError(
            f"is {options.likelihood!r}{' of a table' if is_table else ''}, but the study's "
            "networks are of bernoulli and gaussian arrays: take --network mlp and one layer",
            argument="likelihood",
        )
    return network


def _assembled(options: ModelOptions, form: Form, fitted: FirstValues, seed: int) -> Weights:
    """Build networks for a likelihood, in one compilation."""
    network = options.network or "mlp"
    activation = _ACTIVATIONS[options.activation or ("elu" if network == "conv" else "tanh")]

    @eqx.filter_jit
    def weights(key: PRNGKey) -> Weights:
        if network == "conv":
            return convolutional_model(
                key,
                fitted.likelihood,
                fitted.output,
                shape=form.shape,
                num_latents=options.num_latents,
                num_hidden=options.num_hidden,
                activation=activation,
                has_missing=form.has_missing,
            )
        return mlp_model(
            key,
            fitted.likelihood,
            fitted.output,
            num_latents=options.num_latents,
            hidden=_hidden(options),
            activation=activation,
            conditions=fitted.conditions,
            has_missing=form.has_missing,
            has_exposure=form.typical_exposure is not None,
            typical_exposure=form.typical_exposure or 1.0,
        )

    return weights(jax.random.key(seed))


def _hidden(options: ModelOptions) -> tuple[int, ...]:
    if options.hidden is None:
        return (options.num_hidden, options.num_hidden)
    try:
        return tuple(int(number) for number in options.hidden.split(","))
    except ValueError:
        raise InputError(
            f"is {options.hidden!r}: give whole numbers separated by commas, as in 200,200",
            argument="hidden",
        ) from None


def build_named(options: ModelOptions, mean: np.ndarray, seed: int) -> Weights:
    """Build one of the IWAE study's networks for data of a mean."""
    network_of(dataclasses.replace(options, network="study"), is_table=False)
    name = "bernoulli" if options.likelihood == "auto" else options.likelihood

    # One compilation instead of one for each array, which would take seconds.
    @eqx.filter_jit
    def weights(key: PRNGKey) -> Weights:
        return _STUDY_MODELS[options.model](
            key,
            mean,
            num_latents=options.num_latents,
            num_hidden=options.num_hidden,
            likelihood=_STUDY_FAMILIES[name],
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
    except (ImportError, ValueError) as error:
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
