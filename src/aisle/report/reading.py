"""Read the folder of a run: its settings, its history and its evaluations, as plain values.

The rest of the report knows the files of a run through this module alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from aisle.data import Table
from aisle.errors import InputError
from aisle.evaluation.folders import load_arrays
from aisle.files import parsed
from aisle.report.columns import Labels
from aisle.runs.folder import read_config, read_metrics
from aisle.statistics import Mean
from aisle.types import Model, Proposal

_COSTS = ("update", "seconds", "decoder_gradients")


class Evaluation(NamedTuple):
    """A finished evaluation.

    Attributes:
        written: when, in seconds.
        examples: what identifies the evaluated examples.
        means: by name: log_p; lower, upper and gap if there is a certificate; bound (the
            importance-weighted one) and elbo if they were asked for.
        chains: their number, temperatures and leapfrog steps.
        settings: as they are in result.json.
        split: "test" or "train", or None if the evaluation does not say.
        update: of the weights, or None likewise.
        other_data: what was evaluated if not the run's own data.
        num_doubtful: examples whose chains disagree.
    """

    written: float
    examples: tuple[object, bytes]
    log_p: np.ndarray
    means: dict[str, Mean]
    chains: tuple[int, int, int]
    is_complete: bool
    settings: dict[str, Any]
    split: str | None
    update: int | None
    other_data: str | None
    num_doubtful: int = 0


class Weights(NamedTuple):
    """A trained model, and test examples as it sees them.

    Attributes:
        shape: of one example.
        examples: as the model sees them, or None if the data are not available.
        problem: why they are not, as a sentence.
        context: of the examples, if they have one.
        labels: of the examples, if any are known.
        table: all rows, where the data are a table.
    """

    model: Model
    proposal: Proposal
    shape: tuple[int, ...]
    examples: Array | None
    problem: str = ""
    context: Any = None
    labels: Labels | None = None
    table: Table | None = None


class Run(NamedTuple):
    """A run to be shown.

    Attributes:
        update: number of updates made.
        history: the bound of each update with its costs, and NaN for what was not finite.
        held_out: likewise, the held-out bound where it was measured.
        evaluations: the newest first.
        weights: None for a model that only the program that trained it can build.
        commands: that make the run and its evaluations again.
    """

    path: Path
    config: dict[str, Any]
    update: int
    history: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]
    evaluations: list[Evaluation]
    weights: Weights | None = None
    commands: tuple[str, ...] = ()

    @property
    def data_name(self) -> str:
        """Return the name of its data."""
        return str(self.config.get("data", {}).get("name", "unnamed data"))

    @property
    def data_key(self) -> str:
        """Return what identifies its data: the digest of the training data, or else the name."""
        data = self.config.get("data", {})
        return str(data.get("digests", {}).get("train") or data.get("digest") or self.data_name)

    @property
    def last_held_out(self) -> Mean | None:
        """Return the last held-out bound that training has measured."""
        names = ("held_out_bound", "held_out_standard_error", "held_out_examples")
        last = [float(self.held_out[name][-1]) for name in names if len(self.held_out[name])]
        return Mean(last[0], last[1], int(last[2])) if last else None

    @property
    def settings(self) -> dict[str, str]:
        """Return what config.json says, by dotted names."""
        own = self.config.get("train") or self.config.get("fit") or {}
        facts = {name: self.config.get(name, {}) for name in ("data", "provenance")}
        return _flat({**own, **facts})


def read_run(path: Path) -> Run:
    """Read what the folder of a run holds, but for its weights."""
    config = read_config(path)
    records = read_metrics(path) if (path / "metrics.jsonl").exists() else []
    update = max((record["update"] for record in records), default=0)
    files = (path / "evaluations").glob("*/result.json")
    evaluations = [_read_evaluation(file, config.get("train", {}).get("data")) for file in files]
    evaluations.sort(key=lambda e: e.written, reverse=True)
    history = _columns(records, "bound")
    held_out = _columns(records, "held_out_bound", "held_out_standard_error", "held_out_examples")
    return Run(path, config, update, history, held_out, evaluations)


def _columns(records: list[dict[str, Any]], needed: str, *others: str) -> dict[str, np.ndarray]:
    """Return the metrics of the records that have the needed one."""
    own = [record for record in records if needed in record]
    names = (*_COSTS, needed, *others)
    return {name: np.array([_value(record.get(name)) for record in own]) for name in names}


def _value(value: Any) -> float:
    """Return a number; null, or one that is missing, was not finite."""
    return float("nan") if value is None else float(value)


def _read_evaluation(file: Path, own_data: str | None) -> Evaluation:
    arrays = load_arrays(file.with_name("examples.npz"))
    try:
        if arrays is None:
            raise ValueError("examples.npz is missing or damaged")
        content = parsed(file.read_bytes())
        settings = content["settings"]
        about = settings.get("about") or {}
        return Evaluation(
            written=file.stat().st_mtime,
            examples=(settings.get("examples"), arrays["index"].tobytes()),
            log_p=arrays["log_p"],
            means=_means(content),
            chains=(content["num_chains"], content["num_temperatures"], content["num_leapfrog"]),
            is_complete=content["is_complete"],
            settings=settings,
            split=about.get("split"),
            update=about.get("update"),
            other_data=None if about.get("data") == own_data else about.get("data"),
            num_doubtful=int(np.sum(arrays.get("is_doubtful", 0))),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{file.parent} is not an evaluation of this version ({error}): evaluate again, or "
            "remove it"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {file} ({error.strerror}): check its permissions") from None


def _means(content: dict[str, Any]) -> dict[str, Mean]:
    given = {"log_p": content["log_likelihood"], **(content["importance"] or {})}
    for name in ("lower", "upper", "gap") if content["bdmc"] else ():
        given[name] = {
            "mean": content["bdmc"][name],
            "standard_error": content["bdmc"][f"{name}_standard_error"],
            "num_examples": content["bdmc"]["num_examples"],
        }
    return {
        name: Mean(_value(one["mean"]), _value(one["standard_error"]), one["num_examples"])
        for name, one in given.items()
        if isinstance(one, Mapping)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested values as text, by dotted names."""
    pairs = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs |= _flat(value, f"{prefix}{name}.")
        else:
            pairs[f"{prefix}{name}"] = "not set" if value is None else str(value)
    return pairs
