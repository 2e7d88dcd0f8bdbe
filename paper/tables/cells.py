"""Cells of a table: a model trained and evaluated, each in a folder of its own.

Both parts can be interrupted at any time and then resume, so a table is run by the same command
until it is whole. Apart from its folder a cell has two files: what it has found, `cells/NAME.json`,
is all that is needed to count it as done, here or elsewhere; its weights, `cells/NAME.safetensors`,
are what other cells start from.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from aisle.errors import InputError
from aisle.files import writing
from aisle.provenance import provenance
from aisle.statistics import Mean, summarise
from paper.core import runs
from paper.tables.plans import (
    Evaluation,
    Training,
    evaluation_json,
    read_evaluation,
    read_training,
    training_json,
)

_Tuple = TypeVar("_Tuple")


class Cell(NamedTuple):
    """A line of a table.

    Attributes:
        name: of the cell and of its folder.
        training: how it is trained.
        evaluation: how it is evaluated, or None if it is only a start for others.
        start: name of the cell whose weights it starts from, or None.
        paper: the paper's log-likelihood, or None.
        note: what the reader of the line must know.
        short: an evaluation by chains as short as those of training, to show how tight they are.
    """

    name: str
    training: Training
    evaluation: Evaluation | None = None
    start: str | None = None
    paper: float | None = None
    note: str = ""
    short: Evaluation | None = None

    @property
    def command(self) -> str:
        """The command that trains the same."""
        return runs.command(self.training, self.start)


class CellResult(NamedTuple):
    """What a table says of a cell; costs are those of the cell, without its start's.

    Attributes:
        log_likelihood: of the whole split if it was asked for, else of the evaluated examples.
        difference: of the log-likelihood to the paper's.
        seconds: of training, as the clock went.
        elbo: evidence lower bound of the evaluated examples, or None if not asked for.
        active_units: latents that the encoder uses, likewise.
        short: mean log-weight of short chains, likewise.
    """

    cell: str
    data: str
    method: str
    num_samples: int
    num_temperatures: int | None
    num_leapfrog: int | None
    kernel: str | None
    start: str | None
    updates: int
    decoder_gradients: int
    seconds: float
    log_likelihood: Mean
    gap: Mean
    paper: float | None
    difference: float | None
    evaluation_seconds: float
    seed: int
    note: str
    command: str
    elbo: Mean | None = None
    active_units: int | None = None
    short: Mean | None = None


class FinishedCell(NamedTuple):
    """A cell's result, with log p(x) of each example for comparisons.

    Attributes:
        digests: of the data that the examples are from, or None where they were not noted.
    """

    result: CellResult
    log_p: np.ndarray
    digests: dict[str, str] | None = None


def train_cell(cell: Cell, out: Path) -> runs.TrainedRun:
    """Train a cell in its folder, or resume it; keep its weights for others."""
    start = None if cell.start is None else _weights_file(cell.start, out)
    run = runs.train(cell.training, out / cell.name, start)
    file = _weights_file(cell.name, out)
    file.parent.mkdir(exist_ok=True)
    runs.export(run, file, _settings(cell))
    return run


def run_cell(cell: Cell, out: Path) -> FinishedCell:
    """Train and evaluate a cell, as far as that is not done: others may need its weights."""
    assert cell.evaluation is not None
    run, done = train_cell(cell, out), finished(cell, out)
    if done is not None:
        return done
    found = runs.evaluate(run.path, cell.evaluation)
    result = _result(cell, run, found)
    if cell.short is not None:
        result = result._replace(short=runs.evaluate(run.path, cell.short).mean)
    done = FinishedCell(result, found.log_p, run.digests)
    content = {
        "settings": _settings(cell) | {"evaluate": evaluation_json(cell.evaluation)},
        "row": as_plain(result),
        "log_p": found.log_p.tolist(),
        "digests": done.digests,
        # The table itself may be written elsewhere.
        **provenance(),
    }
    with writing(_result_file(cell, out)) as part:
        part.write_text(json.dumps(content, indent=1) + "\n")
    return done


def finished(cell: Cell, out: Path) -> FinishedCell | None:
    """Return what a cell has found, or None if it is not done."""
    file = _result_file(cell, out)
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_text())
        stored, result = content["settings"], from_plain(CellResult, content["row"])
        log_p = np.array(content["log_p"], float)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged ({error}): remove it, or copy it again") from None
    _check_settings(stored, cell, cell.evaluation, file)
    # Options that are not named have the present defaults, which may be others than then.
    return FinishedCell(result._replace(command=cell.command), log_p, content.get("digests"))


def has_weights(cell: Cell, out: Path) -> bool:
    """Say whether a cell's weights are there for others to start from; its folder need not be."""
    file = _weights_file(cell.name, out)
    if not file.exists():
        return False
    _check_settings(runs.read_about(file), cell, None, file)
    return True


def difference(first: FinishedCell, second: FinishedCell) -> Mean | None:
    """Return by how much the first is better on the same examples, with its standard error.

    None if the examples are known to be others, as of another form of the same data set.
    """
    if first.digests and second.digests and first.digests != second.digests:
        return None
    return summarise(first.log_p - second.log_p)


def as_plain(record: Any) -> dict[str, Any]:
    """Return a named tuple, such as a result, as plain values."""
    return {k: v._asdict() if isinstance(v, Mean) else v for k, v in record._asdict().items()}


def from_plain(kind: Callable[..., _Tuple], values: Mapping[str, Any]) -> _Tuple:
    """Return the named tuple that `as_plain` was given, also after it was in a file."""
    means = {k: Mean(**_numbers(v)) for k, v in values.items() if isinstance(v, dict)}
    return kind(**{**values, **means})


def _numbers(mean: Mapping[str, Any]) -> dict[str, Any]:
    # JSON has null for what is not finite.
    return {name: math.nan if value is None else value for name, value in mean.items()}


def _result(cell: Cell, run: runs.TrainedRun, found: runs.Evaluated) -> CellResult:
    assert found.gap is not None
    plan = runs.resolved(cell.training)
    method = plan.method
    return CellResult(
        cell.name,
        plan.data,
        method.method,
        method.num_samples,
        method.num_temperatures if method.has_chains else None,
        method.num_leapfrog if method.has_chains else None,
        method.kernel if method.has_chains else None,
        cell.start,
        run.updates,
        run.decoder_gradients,
        run.seconds,
        found.log_likelihood,
        found.gap,
        cell.paper,
        None if cell.paper is None else found.log_likelihood.mean - cell.paper,
        found.seconds,
        plan.seed,
        cell.note,
        cell.command,
        found.elbo,
        found.active_units,
    )


def _result_file(cell: Cell, out: Path) -> Path:
    return out / "cells" / f"{cell.name}.json"


def _weights_file(name: str, out: Path) -> Path:
    return out / "cells" / f"{name}{runs.WEIGHTS_SUFFIX}"


def _settings(cell: Cell) -> dict[str, Any]:
    """Return how a cell is trained, as its files have it."""
    return {"train": training_json(runs.resolved(cell.training)), "start": cell.start}


def _check_settings(
    stored: Mapping[str, Any], cell: Cell, evaluation: Evaluation | None, file: Path
) -> None:
    """Refuse a file of another plan than the cell's."""
    try:
        plan = read_training(stored["train"]), stored["start"]
        how = None if evaluation is None else read_evaluation(stored["evaluate"])
    except runs.NOT_A_PLAN as error:
        raise InputError(
            f"{file} is not of a cell of this version ({error!r}): choose another --out, or remove "
            "it"
        ) from None
    if plan != (runs.resolved(cell.training), cell.start) or how != evaluation:
        raise InputError(f"{file} has other settings: choose another --out, or remove it")
