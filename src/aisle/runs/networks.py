"""The networks that a configuration names: the built-in ones, and those of a user's function."""

import dataclasses
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aisle.data import Column, Dataset, Split, spread
from aisle.errors import InputError, check_seed
from aisle.models import (
    FAMILIES,
    Bernoulli,
    Categorical,
    Columns,
    Gaussian,
    Likelihood,
    convolutional_model,
    mlp_model,
    one_layer,
    two_layer,
)
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
# The family of each kind of column.
FAMILY_OF = {
    "real": "gaussian",
    "heavy-tailed": "student-t",
    "count": "negative-binomial",
    "bit": "bernoulli",
    "category": "categorical",
    "share": "logit-normal",
}
# Training examples that first outputs are fitted to, at the most.
_NUM_FITTED = 20_000


class Form(NamedTuple):
    """What networks need to know of data beside values; kept with a run.

    Attributes:
        shape: of one example.
        families: the likelihood of each feature, by its name in `aisle.models.FAMILIES`.
        num_levels: of each feature that is a category, and 0 of others.
        has_missing: whether values are missing.
    """

    shape: tuple[int, ...]
    families: tuple[str, ...]
    num_levels: tuple[int, ...]
    has_missing: bool


def build(options: ModelOptions, dataset: Dataset, seed: int) -> Weights:
    """Build (model, proposal) for the training data."""
    check_seed(seed)
    train = dataset.train
    if ":" in options.model:
        return own_networks(options.model, jax.random.key(seed), train)
    if network_of(options, dataset.table is not None) == "study":
        return build_named(options, train.mean(), seed)
    form = form_of(options, dataset)
    assert form is not None
    if train.view.binarize != "none":
        # Grey values are probabilities, and their means all that first outputs need.
        bias = Bernoulli.initial_output(np.ravel(train.mean()))
        return _assembled(options, form, Bernoulli(len(bias)), bias, seed)
    return _assembled(options, form, *_fitted(form, _values(train)), seed)


def rebuild(options: ModelOptions, form: Form, seed: int) -> Weights:
    """Build networks whose weights are then replaced, without the data."""
    return _assembled(options, form, *_fitted(form, stand_in(form.families, form.num_levels)), seed)


def network_of(options: ModelOptions, is_table: bool) -> str:
    """Return which networks are meant: study, mlp or conv."""
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
    if network == "study" and (is_table or options.likelihood not in ("auto", *_STUDY_FAMILIES)):
        raise InputError(
            f"is {options.likelihood!r}{' of a table' if is_table else ''}, but the study's "
            "networks are of bernoulli and gaussian arrays: take --network mlp and one layer",
            argument="likelihood",
        )
    return network


def form_of(options: ModelOptions, dataset: Dataset) -> Form | None:
    """Return the form of data, or None where the study's networks or a user's own are built."""
    if ":" in options.model or network_of(options, dataset.table is not None) == "study":
        return None
    number = int(np.prod(dataset.train.example.shape))
    has_missing = any(_has_missing(split) for split in dataset.splits.values())
    if dataset.table is not None and options.likelihood == "auto":
        columns = dataset.table.columns
        families = tuple(FAMILY_OF[column.kind] for column in columns)
        levels = tuple(
            _num_levels(column, dataset.table.values[:, i]) for i, column in enumerate(columns)
        )
        return Form(dataset.shape, families, levels, has_missing)
    name = "bernoulli" if options.likelihood == "auto" else options.likelihood
    levels = (0,) * number
    if name == "categorical":
        highest = [_values(split).max(axis=0) for split in dataset.splits.values()]
        levels = tuple(int(code) + 1 for code in np.max(highest, axis=0))
    return Form(dataset.shape, (name,) * number, levels, has_missing)


def form_from(stored: Mapping[str, Any]) -> Form:
    """Return a form as it was stored."""
    lists = (tuple(stored[name]) for name in ("shape", "families", "num_levels"))
    return Form(*lists, has_missing=bool(stored["has_missing"]))


def _values(split: Split) -> np.ndarray:
    """Return examples as rows of numbers; of very many, some that are spread evenly."""
    rows = split.take(spread(len(split), _NUM_FITTED))
    return np.asarray(rows, np.float64).reshape(len(rows), -1) / split.view.unit


def _has_missing(split: Split) -> bool:
    return any(np.issubdtype(b.dtype, np.floating) and np.isnan(b).any() for b in split.chunks())


def _num_levels(column: Column, values: np.ndarray) -> int:
    if column.kind != "category":
        return 0
    return len(column.levels) or int(np.nanmax(values)) + 1


def _fitted(form: Form, x: np.ndarray) -> tuple[Likelihood, np.ndarray]:
    """Fit the likelihood of each feature to training data."""
    names = list(dict.fromkeys(form.families))

    def fit(name: str, places: list[int]) -> Any:
        if name != "categorical":
            return FAMILIES[name].fitted
        levels = [form.num_levels[i] for i in places]
        return lambda x: Categorical.fitted(x, num_levels=levels)

    places = {name: [i for i, own in enumerate(form.families) if own == name] for name in names}
    if len(names) == 1:
        return fit(names[0], places[names[0]])(x)
    return Columns.fitted(x, [(fit(name, places[name]), places[name]) for name in names])


def stand_in(families: Sequence[str], num_levels: Sequence[int]) -> np.ndarray:
    """Return rows that every family takes, from which networks of the same form are built."""
    rows = np.arange(8)
    columns = []
    for family, levels in zip(families, num_levels, strict=True):
        if family == "categorical":
            columns.append(rows % levels)
        elif family == "bernoulli":
            columns.append(rows % 2)
        elif family in ("logit-normal", "beta"):
            columns.append((rows + 1) / 9)
        else:
            columns.append(rows)
    return np.stack(columns, axis=1).astype(np.float64)


def _assembled(
    options: ModelOptions, form: Form, likelihood: Likelihood, output: np.ndarray, seed: int
) -> Weights:
    """Build networks for a likelihood, in one compilation."""
    network = options.network or "mlp"
    activation = _ACTIVATIONS[options.activation or ("elu" if network == "conv" else "tanh")]

    @eqx.filter_jit
    def weights(key: PRNGKey) -> Weights:
        if network == "conv":
            return convolutional_model(
                key,
                likelihood,
                output,
                shape=form.shape,
                num_latents=options.num_latents,
                num_hidden=options.num_hidden,
                activation=activation,
                has_missing=form.has_missing,
            )
        return mlp_model(
            key,
            likelihood,
            output,
            num_latents=options.num_latents,
            hidden=_hidden(options),
            activation=activation,
            has_missing=form.has_missing,
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
