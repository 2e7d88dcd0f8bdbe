"""The form of data: what networks need to know beside values, so that they are built again."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from aisle.data import Column, Dataset, Split, spread
from aisle.errors import InputError
from aisle.models import FAMILIES, Bernoulli, Columns, Likelihood
from aisle.models.likelihoods import Counts

# The family of each kind of column.
FAMILY_OF = {
    "real": "gaussian",
    "heavy-tailed": "student-t",
    "count": "negative-binomial",
    "bit": "bernoulli",
    "category": "categorical",
    "share": "logit-normal",
}
# The family whose `standardise` makes inputs of a column that a model is given.
_INPUT_OF = {"bit": "bernoulli", "category": "categorical"}
# Training examples that first outputs are fitted to, at the most.
_NUM_FITTED = 20_000


class Form(NamedTuple):
    """What networks need to know of data beside values; kept with a run.

    Attributes:
        shape: of one example.
        families: the likelihood of each feature, by its name in `aisle.models.FAMILIES`.
        num_levels: of each feature that is a category, and 0 of others.
        has_missing: whether values are missing.
        conditions: the form of what the model is given, or None.
        typical_exposure: the geometric mean over the training examples, or None without exposures.
    """

    shape: tuple[int, ...]
    families: tuple[str, ...]
    num_levels: tuple[int, ...]
    has_missing: bool
    conditions: "Form | None" = None
    typical_exposure: float | None = None


class FirstValues(NamedTuple):
    """What is fitted to training data before networks are built.

    Attributes:
        likelihood: of the features.
        output: that a decoder starts from.
        conditions: what standardises the conditions, or None.
    """

    likelihood: Likelihood
    output: np.ndarray
    conditions: Likelihood | None


def form_of(likelihood: str, dataset: Dataset) -> Form:
    """Return the form of data for a likelihood by its name, or auto."""
    table, train = dataset.table, dataset.train
    if table is not None and likelihood == "auto":
        form = _of_columns(table.columns, table.values, FAMILY_OF)
    else:
        name = "bernoulli" if likelihood == "auto" else likelihood
        number = int(np.prod(train.example.shape))
        levels = (0,) * number
        if name == "categorical":
            # What can be observed is said by all data, held-out ones included.
            highest = [np.nanmax(_values(s), axis=0) for s in dataset.splits.values()]
            levels = tuple(int(code) + 1 for code in np.max(highest, axis=0))
        form = Form(dataset.shape, (name,) * number, levels, has_missing=False)
    form = form._replace(has_missing=any(s.has_missing for s in dataset.splits.values()))
    context = None if table is None else table.context
    if table is None or context is None:
        return form
    if context.condition is not None:
        families = dict.fromkeys(FAMILY_OF, "gaussian") | _INPUT_OF
        form = form._replace(conditions=_of_columns(table.conditions, context.condition, families))
    if context.exposure is None:
        return form
    if not any(_is_counts(name) for name in form.families):
        raise InputError(
            f"is given but {dataset.source} has no counts: leave it out, or set the kind of a "
            "column by --columns NAME=count",
            argument="exposure",
        )
    own = context.exposure[train.numbers(np.arange(len(train)))]
    return form._replace(typical_exposure=float(np.exp(np.mean(np.log(own)))))


def as_json(form: Form) -> dict[str, Any]:
    """Return a form as plain values."""
    conditions = None if form.conditions is None else as_json(form.conditions)
    return form._asdict() | {"conditions": conditions}


def form_from(stored: Mapping[str, Any] | None) -> Form | None:
    """Return a form as it was stored, or None where there is none."""
    if stored is None:
        return None
    lists = (tuple(stored[name]) for name in ("shape", "families", "num_levels"))
    return Form(
        *lists,
        has_missing=bool(stored["has_missing"]),
        conditions=form_from(stored.get("conditions")),
        typical_exposure=stored.get("typical_exposure"),
    )


def first_values(form: Form, train: Split) -> FirstValues:
    """Fit likelihood and conditions to training data."""
    if train.view.binarize != "none":
        # Grey values are probabilities, and their means all that first outputs need.
        output = Bernoulli.initial_output(np.ravel(train.mean()))
        return FirstValues(Bernoulli(len(output)), output, None)
    context: Any = train.context_of(spread(len(train), _NUM_FITTED))
    given, conditions, options = form.conditions, None, {}
    if given is not None:
        conditions, _ = fit_families(given.families, given.num_levels, context.condition)
    if form.typical_exposure is not None:
        options = {n: {"exposure": context.exposure} for n in form.families if _is_counts(n)}
    fitted = fit_families(form.families, form.num_levels, _values(train), options)
    return FirstValues(*fitted, conditions)


def any_values(form: Form) -> FirstValues:
    """Return the same with other values, from which networks of the same form are built."""
    conditions = None if form.conditions is None else any_values(form.conditions).likelihood
    rows = stand_in(form.families, form.num_levels)
    return FirstValues(*fit_families(form.families, form.num_levels, rows), conditions)


def _of_columns(columns: Sequence[Column], values: np.ndarray, families: Mapping[str, str]) -> Form:
    levels = [_num_levels(column, values[:, i]) for i, column in enumerate(columns)]
    names = tuple(families[column.kind] for column in columns)
    return Form((len(columns),), names, tuple(levels), has_missing=False)


def _num_levels(column: Column, values: np.ndarray) -> int:
    if column.kind != "category":
        return 0
    return len(column.levels) or int(np.nanmax(values)) + 1


def _values(split: Split) -> np.ndarray:
    """Return examples as rows of numbers; of very many, some that are spread evenly."""
    rows = split.take(spread(len(split), _NUM_FITTED))
    return np.asarray(rows, np.float64).reshape(len(rows), -1) / split.view.unit


def _is_counts(name: str) -> bool:
    return issubclass(FAMILIES[name], Counts)


def fit_families(
    families: Sequence[str],
    num_levels: Sequence[int],
    x: np.ndarray,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Likelihood, np.ndarray]:
    """Fit the likelihood of each feature; `options` are those of the families' `fitted`."""
    places = {n: [i for i, own in enumerate(families) if own == n] for n in dict.fromkeys(families)}

    def fit(name: str) -> Any:
        levels = [num_levels[i] for i in places[name]]
        own = {"num_levels": levels} if name == "categorical" else {}
        return partial(FAMILIES[name].fitted, **own, **(options or {}).get(name, {}))

    if len(places) == 1:
        return fit(families[0])(x)
    return Columns.fitted(x, [(fit(name), own) for name, own in places.items()])


def stand_in(families: Sequence[str], num_levels: Sequence[int]) -> np.ndarray:
    """Return rows that every family takes."""
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
