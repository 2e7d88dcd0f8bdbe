"""Cells of a table: a model trained and evaluated, each in a folder of its own.

Both parts can be interrupted at any time and go on where they were, so a table is run by the same
command again and again until it is whole. Apart from its folder a cell has two files: what it has
found, `cells/NAME.json`, is all that is needed to count it as done, here or elsewhere; its weights,
`cells/NAME.safetensors`, are what other cells start from.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from aisle.errors import InputError, Interrupted
from aisle.evaluation import LogLikelihood
from aisle.experiments import commands, training
from aisle.experiments.evaluating import evaluate
from aisle.experiments.options import EvaluateConfig, TrainConfig
from aisle.files import writing
from aisle.learning import checkpoints, weights_file
from aisle.learning.estimators import METHODS
from aisle.learning.run_directory import last_metrics, read_config
from aisle.provenance import provenance
from aisle.statistics import Mean, summarise

_Record = TypeVar("_Record")


class Cell(NamedTuple):
    """One figure of a table.

    Attributes:
        name: of the cell and of its folder.
        config: how it is trained; `init_from` follows from `start`.
        evaluation: how it is evaluated, or None if it is only a start for others.
        start: name of the cell whose weights it starts from, or None.
        paper: the figure to compare with, or None.
        note: what the reader of the figure must know.
        short: an evaluation by chains as short as those of training, to show how tight they are.
    """

    name: str
    config: TrainConfig
    evaluation: EvaluateConfig | None = None
    start: str | None = None
    paper: float | None = None
    note: str = ""
    short: EvaluateConfig | None = None


class Row(NamedTuple):
    """What a table says of a cell; costs are those of the cell, without its start's.

    Attributes:
        log_likelihood: of the whole split if it was asked for, else of the evaluated examples.
        difference: of the log-likelihood to the paper's figure.
        seconds: of training, as the clock went.
        command: that trains the same.
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


class Finished(NamedTuple):
    """A cell's row, with log p(x) of each example for comparisons.

    Attributes:
        digests: of the data that the examples are from, or None where they were not noted.
    """

    row: Row
    log_p: np.ndarray
    digests: dict[str, str] | None = None


def train_cell(cell: Cell, out: Path) -> training.Run:
    """Train a cell in its folder, or go on with what is there; keep its weights for others."""
    run = _trained(cell, out)
    file = _weights(cell.name, out)
    file.parent.mkdir(exist_ok=True)
    training.export_run(run, file, _how_trained(cell, out))
    return run


def _trained(cell: Cell, out: Path) -> training.Run:
    folder, wanted = out / cell.name, planned(cell, out)
    if (folder / "config.json").exists():
        if _essence(training.open_config(folder)) != _essence(wanted):
            raise InputError(f"{folder} has other settings: choose another --out, or remove it")
        if _is_trained(folder, wanted):
            return training.open_run(folder)
        fitted = training.resume(folder)
    else:
        fitted = training.train(wanted, folder)
    if fitted.signal_number is not None:
        raise Interrupted(fitted.signal_number, f"in {cell.name}; the same command goes on")
    return training.open_run(folder)


def run_cell(cell: Cell, out: Path) -> Finished:
    """Train and evaluate a cell, as far as that is not done: others may need its weights."""
    assert cell.evaluation is not None
    run, done = train_cell(cell, out), finished(cell, out)
    if done is not None:
        return done
    found = evaluate(run.path, cell.evaluation)[0]
    row = _row(cell, run, found)
    if cell.short is not None:
        row = row._replace(short=evaluate(run.path, cell.short)[0].estimate)
    done = Finished(row, found.log_p, read_config(run.path)["data"]["digests"])
    content = {
        "settings": _settings(cell, out),
        "row": as_plain(done.row),
        "log_p": found.log_p.tolist(),
        "digests": done.digests,
        # The table itself may be written elsewhere.
        **provenance(),
    }
    with writing(_found(cell, out)) as part:
        part.write_text(json.dumps(content, indent=1) + "\n")
    return done


def finished(cell: Cell, out: Path) -> Finished | None:
    """Return what a cell has found, or None if it is not done."""
    file = _found(cell, out)
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_text())
        stored, row = content["settings"], from_plain(Row, content["row"])
        log_p = np.array(content["log_p"], float)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged ({error}): remove it, or copy it again") from None
    _check_settings(stored, _settings(cell, out), file)
    # Options that are not named have the present defaults, which may be others than then.
    row = row._replace(command=commands.train(cell.config, cell.start))
    return Finished(row, log_p, content.get("digests"))


def has_weights(cell: Cell, out: Path) -> bool:
    """Say whether a cell's weights are there for others to start from; its folder need not be."""
    file = _weights(cell.name, out)
    if not file.exists():
        return False
    stored, wanted = weights_file.read_metadata(file), _how_trained(cell, out)
    _check_settings({name: stored.get(name) for name in wanted}, wanted, file)
    return True


def _found(cell: Cell, out: Path) -> Path:
    return out / "cells" / f"{cell.name}.json"


def _weights(name: str, out: Path) -> Path:
    return out / "cells" / f"{name}{weights_file.SUFFIX}"


def as_plain(record: Any) -> dict[str, Any]:
    """Return a named tuple, such as a row, as plain values."""
    return {k: v._asdict() if isinstance(v, Mean) else v for k, v in record._asdict().items()}


def from_plain(kind: Callable[..., _Record], values: Mapping[str, Any]) -> _Record:
    """Return the named tuple that `as_plain` was given, also after it was in a file."""
    means = {k: Mean(**_numbers(v)) for k, v in values.items() if isinstance(v, dict)}
    return kind(**{**values, **means})


def _numbers(mean: Mapping[str, Any]) -> dict[str, Any]:
    # JSON has null for what is not finite.
    return {name: math.nan if value is None else value for name, value in mean.items()}


def planned(cell: Cell, out: Path) -> TrainConfig:
    """Return the whole configuration of a cell whose table is in the folder `out`."""
    start = None if cell.start is None else _weights(cell.start, out)
    model = dataclasses.replace(cell.config.model, init_from=start)
    return training.complete(dataclasses.replace(cell.config, model=model))


def _row(cell: Cell, run: training.Run, found: LogLikelihood) -> Row:
    """Put together what the table shows of a cell."""
    assert found.bdmc is not None
    last, method = last_metrics(run.path), run.config.method
    estimate, importance = found.whole_split or found.estimate, found.importance
    has_chains = METHODS[method.method].has_chains
    return Row(
        cell.name,
        run.config.data,
        method.method,
        method.num_samples,
        method.num_temperatures if has_chains else None,
        method.num_leapfrog if has_chains else None,
        method.kernel if has_chains else None,
        cell.start,
        run.update,
        last["decoder_gradients"],
        last["seconds"],
        estimate,
        found.bdmc.gap,
        cell.paper,
        None if cell.paper is None else estimate.mean - cell.paper,
        found.seconds,
        run.config.run.seed,
        cell.note,
        commands.train(cell.config, cell.start),
        importance and importance.elbo,
        importance and importance.active_units,
    )


def difference(first: Finished, second: Finished) -> Mean | None:
    """Return by how much the first is better on the same examples, with its standard error.

    None if the examples are known to be others, as of another form of the same data set.
    """
    if first.digests and second.digests and first.digests != second.digests:
        return None
    return summarise(first.log_p - second.log_p)


def _how_trained(cell: Cell, out: Path) -> dict[str, Any]:
    return {"train": _essence(planned(cell, out)), "start": cell.start}


def _settings(cell: Cell, out: Path) -> dict[str, Any]:
    assert cell.evaluation is not None
    return {
        **_how_trained(cell, out),
        "evaluate": dataclasses.asdict(dataclasses.replace(cell.evaluation, data_dir=None)),
    }


def _check_settings(stored: dict[str, Any], wanted: dict[str, Any], file: Path) -> None:
    # What is stored may lack options that came later; these had their defaults.
    try:
        whole = {**stored, "train": _essence(training.config_of(dict(stored["train"])))}
    except training.NOT_A_CONFIG as error:
        raise InputError(
            f"{file} is not of a cell of this version ({error}): choose another --out, or remove it"
        ) from None
    if "evaluate" in stored:
        usual = dataclasses.asdict(EvaluateConfig())
        sampler = usual["sampler"] | stored["evaluate"].get("sampler", {})
        whole["evaluate"] = usual | stored["evaluate"] | {"sampler": sampler}
    if whole != wanted:
        raise InputError(f"{file} has other settings: choose another --out, or remove it")


def _essence(config: TrainConfig) -> dict[str, Any]:
    """Return what training depends on: a table may be moved, and not all options are used."""
    return training.to_json(commands.used(commands.without_places(config)))


def _is_trained(folder: Path, wanted: TrainConfig) -> bool:
    if checkpoints.latest(folder) is None:
        return False
    last = last_metrics(folder)
    if last.get("epoch", 0) < wanted.num_epochs:
        return False
    return training.open_run(folder).update == last["update"]
