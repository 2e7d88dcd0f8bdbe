"""What the folder of a run holds, as plain values: its settings, its history, its evaluations."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aisle.errors import InputError
from aisle.evaluation import LogLikelihood, Round
from aisle.evaluation.parts import load_arrays
from aisle.evaluation.results import Bidirectional, Importance
from aisle.learning.run_directory import read_config, read_metrics
from aisle.statistics import Mean

# Share of the updates, the last ones, that chains are described by: step sizes have settled then.
_SETTLED = 0.1


class Track(NamedTuple):
    """A figure along training, with what had been spent by then."""

    updates: np.ndarray
    decoder_gradients: np.ndarray
    seconds: np.ndarray
    values: np.ndarray


class Chains(NamedTuple):
    """Means over the last updates, by transition: t = 1, ..., T."""

    acceptance: np.ndarray
    step_sizes: np.ndarray


class History(NamedTuple):
    """What the updates of a run have logged.

    Attributes:
        decoder_gradients: spent in all.
        seconds: likewise.
        bound: that of the method itself, of each update.
        held_out: importance-weighted bound of held-out examples, as often as it was measured.
        last_held_out: the last of these with its standard error, or None if there is none.
        effective_sample_size: of the K weights of an example, of each update.
        chains: or None for a method without them.
    """

    decoder_gradients: int
    seconds: float
    bound: Track
    held_out: Track
    last_held_out: Mean | None
    effective_sample_size: Track
    chains: Chains | None


class Evaluation(NamedTuple):
    """A finished evaluation, and when its result was written."""

    path: Path
    written: float
    found: LogLikelihood


class Folder(NamedTuple):
    """The folder of a run.

    Attributes:
        config: what config.json says.
        history: or None if nothing was logged.
        evaluations: finished ones, the newest first.
        unfinished: folders of those that were begun and have no result.
    """

    path: Path
    config: dict[str, Any]
    history: History | None
    evaluations: list[Evaluation]
    unfinished: list[Path]


def read_folder(path: Path, update: int) -> Folder:
    """Read a run as it was at an update, that of the weights that are looked at."""
    folders = [p for p in sorted((path / "evaluations").glob("*")) if p.is_dir()]
    done = [p for p in folders if (p / "result.json").is_file()]
    evaluations = [read_evaluation(p) for p in done]
    evaluations.sort(key=lambda e: (e.written, e.path.name), reverse=True)
    unfinished = [p for p in folders if p not in done]
    return Folder(path, read_config(path), _history(path, update), evaluations, unfinished)


def read_evaluation(path: Path) -> Evaluation:
    """Read what `aisle.evaluation.results.save` wrote."""
    file = path / "result.json"
    arrays = load_arrays(path / "examples.npz")
    try:
        content = json.loads(file.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("result.json is not a JSON object")
        if arrays is None:
            raise ValueError("examples.npz is missing or damaged")
        return Evaluation(path, file.stat().st_mtime, _found(content, arrays))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not an evaluation of this version ({error}): evaluate again, or remove it"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {file} ({error.strerror}): check its permissions") from None


def _history(path: Path, update: int) -> History | None:
    if not (path / "metrics.jsonl").exists():
        return None
    records = [record for record in read_metrics(path) if record.get("update", 0) <= update]
    updates = [record for record in records if "bound" in record]
    if not updates:
        return None
    held_out = [record for record in records if "held_out_bound" in record]
    return History(
        updates[-1]["decoder_gradients"],
        updates[-1]["seconds"],
        _track(updates, "bound"),
        _track(held_out, "held_out_bound"),
        _last_bound(held_out),
        _track(updates, "effective_sample_size"),
        _chains(updates),
    )


def _track(records: Sequence[Mapping[str, Any]], name: str) -> Track:
    columns = ("update", "decoder_gradients", "seconds", name)
    # A figure that was not finite is null in the file, and becomes NaN here.
    return Track(*(np.array([record[column] for record in records], float) for column in columns))


def _last_bound(records: Sequence[Mapping[str, Any]]) -> Mean | None:
    if not records:
        return None
    names = ("held_out_bound", "held_out_standard_error", "held_out_examples")
    mean, error, number = (records[-1][name] for name in names)
    return Mean(_number(mean), _number(error), number)


def _chains(records: Sequence[Mapping[str, Any]]) -> Chains | None:
    """Average over the last updates; a warm-up has none, and may have come before."""
    moved = [record for record in records if record["acceptance"]]
    if not moved:
        return None
    last = moved[-max(1, round(_SETTLED * len(moved))) :]
    columns = (np.array([r[name] for r in last], float) for name in ("acceptance", "step_size"))
    return Chains(*(column.mean(axis=0) for column in columns))


def _found(content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> LogLikelihood:
    return LogLikelihood(
        indices=arrays["index"],
        log_p=arrays["log_p"],
        effective_sample_size=arrays["effective_sample_size"],
        num_nonfinite=arrays["num_nonfinite"],
        acceptance=np.array(content["acceptance"], float),
        betas=np.array(content["betas"], float),
        step_sizes=np.array(content["step_sizes"], float),
        num_chains=content["num_chains"],
        num_leapfrog=content["num_leapfrog"],
        rounds=[_round(one) for one in content["rounds"]],
        importance=_importance(content["importance"]),
        is_tolerance_reached=content["is_tolerance_reached"],
        is_complete=content["is_complete"],
        settings=content["settings"],
        whole_split=None if content["whole_split"] is None else _mean(content["whole_split"]),
    )


def _round(content: Mapping[str, Any]) -> Round:
    estimate, bdmc = _mean(content["estimate"]), _bidirectional(content["bdmc"])
    return Round(**{**content, "estimate": estimate, "bdmc": bdmc})


def _bidirectional(content: Mapping[str, Any] | None) -> Bidirectional | None:
    if content is None:
        return None
    lower, upper, gap = (
        Mean(
            _number(content[name]),
            _number(content[f"{name}_standard_error"]),
            content["num_examples"],
        )
        for name in ("lower", "upper", "gap")
    )
    return Bidirectional(lower, upper, gap, _number(content["gap_worst"]))


def _importance(content: Mapping[str, Any] | None) -> Importance | None:
    if content is None:
        return None
    means = {name: _mean(content[name]) for name in ("bound", "elbo", "ais_difference")}
    return Importance(**{**content, **means})


def _mean(content: Mapping[str, Any]) -> Mean:
    error = _number(content["standard_error"])
    return Mean(_number(content["mean"]), error, content["num_examples"])


def _number(value: float | None) -> float:
    """Return what a null in a result stands for: a number that was not finite."""
    return float("nan") if value is None else value
