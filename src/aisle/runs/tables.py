"""Tables that the model of a run makes: samples for given conditions, and tables without gaps."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from aisle.context import Context
from aisle.data import Column, Table, read_table, spread
from aisle.data.cells import Cells, Raw, read_cells
from aisle.data.columns import codes, rule_of
from aisle.data.tables import check_name
from aisle.errors import InputError
from aisle.evaluation import impute
from aisle.models import sample
from aisle.runs.opening import Run, load_data, roles_of


class Rows(NamedTuple):
    """A table to be written: names of columns, and rows of texts."""

    header: list[str]
    rows: Iterator[list[str]]


def contexts_for(
    run: Run, number: int, given: str | None, data_dir: Path | None = None
) -> Context | None:
    """Return contexts for samples of a run, None if its model takes none.

    Args:
        run: on a table.
        number: of samples.
        given: conditions, and an exposure, as NAME=VALUE,NAME=VALUE; what is not among them is
            that of held-out rows.
        data_dir: where the data are now, if they have moved.
    """
    _, conditions, exposure = roles_of(run.stored, run.config)
    names = [column.name for column in conditions] + ([] if exposure is None else [exposure])
    wanted = _parsed(given or "", names, run.path)
    if not names:
        return None
    context = Context(condition=np.zeros((number, len(conditions))), exposure=np.ones(number))
    if len(wanted) < len(names):
        dataset = load_data(run, data_dir)
        held_out = dataset.valid or dataset.test
        context = held_out.context_of(np.resize(spread(len(held_out), number), number))
        assert isinstance(context, Context)
    for i, column in enumerate(conditions):
        if column.name in wanted:
            context.condition[:, i] = _number_of(column, wanted[column.name])
    if exposure is None:
        return Context(condition=context.condition)
    if exposure in wanted:
        value = _number_of(Column(exposure, "real"), wanted[exposure])
        if not value > 0:
            raise InputError(f"is {value:g} for {exposure}: it must be above 0", argument="given")
        context = context._replace(exposure=np.full(number, value))
    return Context(condition=context.condition if conditions else None, exposure=context.exposure)


def sampled(run: Run, number: int, context: Context | None, seed: int) -> Rows:
    """Draw rows of a table, with the conditions that they were drawn for."""
    columns, conditions, exposure = roles_of(run.stored, run.config)
    if columns is None:
        raise InputError(f"{run.path} is no run on a table: write samples of it as .npy or .png")
    drawn = np.asarray(sample(run.model, number, context, seed=seed))
    header, values = [*conditions, *columns], [drawn]
    if context is not None and context.condition is not None:
        values = [context.condition, *values]
    if context is not None and exposure is not None:
        header = [Column(exposure, "real"), *header]
        values = [np.asarray(context.exposure)[:, None], *values]
    table = np.concatenate(values, axis=1, dtype=float)
    rows = ([c.cell(v) for c, v in zip(header, row, strict=True)] for row in table)
    return Rows([column.name for column in header], rows)


def imputed(
    run: Run, source: Any, *, num_draws: int, average: bool, seed: int, show_progress: bool = True
) -> Rows:
    """Fill what is missing of a table; several draws are below each other, numbered by `draw`."""
    roles = roles_of(run.stored, run.config)
    if run.config is None or roles.columns is None:
        raise InputError(f"{run.path} is no run of aisle train on a table: use aisle.impute")
    raw = read_cells(source)
    table = read_table(raw, **roles._asdict())
    if not average and "draw" in raw.columns:
        raise InputError(f"{raw.place} has a column 'draw', as the result would: rename it")
    rows = np.flatnonzero(np.isnan(table.values).any(axis=1))
    # A number for each draw, row with gaps, and column.
    draws = np.zeros((1 if average else num_draws, 0, len(table.columns)))
    if len(rows):
        run = taking_missing(run, table)
        context = jax.tree.map(lambda a: a[rows], table.context)
        asked = {"num_draws": num_draws, "seed": seed, "show_progress": show_progress}
        both = (run.model, run.proposal, table.values[rows].astype(np.float32), context)
        draws = _means(both, table, asked) if average else impute(*both, **asked).swapaxes(0, 1)
    header = [*([] if average else ["draw"]), *raw.columns]
    return Rows(
        header, _filled(raw, table, rows, np.asarray(draws, float), is_numbered=not average)
    )


def taking_missing(run: Run, table: Table | None) -> Run:
    """Return a run whose model takes what is missing of a table, though nothing was in training.

    Its encoder has no input that says what is missing, and sees the mean of the column there.
    """
    model = run.model
    if table is None or not np.isnan(table.values).any():
        return run
    if not hasattr(model, "takes") or model.has_missing:
        return run
    takes = dataclasses.replace(model.takes, has_missing=True)
    model = dataclasses.replace(model, takes=takes)
    return dataclasses.replace(run, model=model, proposal=_Unaware(run.proposal))


class _Unaware(eqx.Module):
    """An encoder that is not told what is missing: NaN is the mean to it."""

    encoder: Any

    def given(self, context: Context) -> Any:
        return self.encoder.given(context._replace(is_observed=None))

    def __call__(self, x: jax.Array) -> Any:
        return self.encoder(x)


def _means(both: tuple[Any, ...], table: Table, asked: dict[str, Any]) -> np.ndarray:
    """Return means of numbers, and of categories the level that was drawn most often."""
    means = np.array(impute(*both, average=True, **asked))
    places = [i for i, column in enumerate(table.columns) if column.kind == "category"]
    if np.isnan(table.values[:, places]).any():
        draws = np.asarray(impute(*both, **asked | {"show_progress": False}))
        for i in places:
            levels = np.arange(np.max(draws[:, :, i]) + 1)
            means[:, i] = np.argmax(np.sum(draws[:, :, i, None] == levels, axis=1), axis=1)
    return means[None]


def _filled(
    raw: Raw, table: Table, rows: np.ndarray, draws: np.ndarray, *, is_numbered: bool
) -> Iterator[list[str]]:
    """Yield rows of texts: what was observed as it stood there, and what a model made of gaps."""
    place_of = {column.name: i for i, column in enumerate(table.columns)}
    texts = [(place_of.get(name), cells.texts) for name, cells in raw.columns.items()]
    with_gaps = {int(row): k for k, row in enumerate(rows)}
    for number, draw in enumerate(draws, 1):
        for row in range(len(table.values)):
            cells = [str(number)] if is_numbered else []
            for place, column in texts:
                text = column[row]
                if text is None and place is not None:
                    text = table.columns[place].cell(draw[with_gaps[row], place])
                cells.append(text or "")
            yield cells


def _parsed(given: str, names: list[str], path: Path) -> dict[str, str]:
    pairs = [item.partition("=") for item in given.split(",") if item.strip()]
    if pairs and not names:
        raise InputError(
            f"is {given!r}, but the model of {path} has no conditions: leave it out",
            argument="given",
        )
    for name, _, value in pairs:
        if not value.strip():
            raise InputError(
                f"is {given!r}: give NAME=VALUE, separated by commas", argument="given"
            )
        check_name(name.strip(), names, f"what {path} is given", "given")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _number_of(column: Column, text: str) -> float:
    (number,), (is_wrong,) = codes(column, Cells([text]))
    if is_wrong:
        raise InputError(f"is {text!r} for {column.name}: {rule_of(column)}", argument="given")
    return float(number)
