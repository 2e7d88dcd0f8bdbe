"""The configuration of a run as plain values, and back; of the first edition too."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisle.data.arrays import is_file_name
from aisle.errors import InputError, first_line
from aisle.runs.options import GROUPS, TrainConfig

_PATHS = ("init_from", "data_dir")

# What values that are no configuration lead to.
NOT_A_CONFIG = (AttributeError, KeyError, TypeError, ValueError)


def to_json(config: TrainConfig) -> dict[str, Any]:
    """Return a configuration as plain values."""

    def plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: str(a) if isinstance(a, Path) else a for name, a in items}

    return dataclasses.asdict(config, dict_factory=plain)


def from_json(stored: Mapping[str, Any], path: Path) -> TrainConfig:
    """Read the configuration of a run's folder back."""
    if "fit" in stored:
        raise InputError(
            f"{path} is a run of aisle.fit, with a model that only your program has: open it by "
            "aisle.open_run(path, model, proposal) or, in commands that take it, name the function "
            "that builds both by --model MODULE:FUNCTION"
        )
    try:
        return config_of(stored["train"], stored["format"])
    except NOT_A_CONFIG as error:
        raise InputError(
            f"{path / 'config.json'} is not that of a training run of this version "
            f"({first_line(error)}): give the folder of one"
        ) from None


def config_of(values: Mapping[str, Any], file_format: int) -> TrainConfig:
    """Return the configuration of plain values, or raise one of `NOT_A_CONFIG`.

    What is not there has its default.
    """
    if file_format == 1:
        values = _of_first_edition(values)
    if "network" not in values["model"]:
        # Versions before had the study's networks alone.
        values = {**values, "model": {**values["model"], "network": "study"}}
    groups = {}
    for name, kind in GROUPS.items():
        _check_types(kind, values[name])
        groups[name] = kind(**{k: _restored(k, v) for k, v in values[name].items()})
    return TrainConfig(**{**values, **groups})


def _restored(name: str, value: Any) -> Any:
    if name in _PATHS and value:
        return Path(value)
    return tuple(value) if isinstance(value, list) else value


def _of_first_edition(values: Mapping[str, Any]) -> dict[str, Any]:
    """Translate: no validation data, the last weights, and options that are gone."""
    method, model = dict(values["method"]), dict(values["model"])
    if method.pop("jitter", 0):
        raise ValueError("jitter is no longer an option")
    if model.pop("proposal", "diagonal") != "diagonal":
        raise ValueError("encoders other than diagonal ones are no longer there")
    if method["method"] not in ("ais", "mh-hmc"):
        kept = ("method", "num_samples")
        method = {name: method[name] for name in kept if name in method}
    return {
        **values,
        "method": method,
        "model": model,
        "observations": {**values["observations"], "num_valid": 0},
        "optimizer": {"optimizer": "adam", "lr_schedule": "iwae-study", **values["optimizer"]},
        "run": {**values["run"], "keep": "last"},
    }


def _check_types(group: type, values: Mapping[str, Any]) -> None:
    """Complain about a value of another type than the default's: the file was edited by hand."""
    for option in dataclasses.fields(group):
        value = values.get(option.name)
        if value is None or option.default is None:
            continue
        kinds = {float: (int, float), tuple: (list, tuple)}
        kind = type(option.default)
        if not isinstance(value, kinds.get(kind, kind)):
            raise TypeError(f"{option.name} is {value!r}")


def absolute(config: TrainConfig) -> TrainConfig:
    """Make paths absolute: a run may be resumed from another folder than it was started from."""
    model, seen = config.model, config.observations
    if is_file_name(config.data):
        config = dataclasses.replace(config, data=str(Path(config.data).expanduser().absolute()))
        # The folder of the named sets: a file is not in it.
        seen = dataclasses.replace(seen, data_dir=None)
    kinds = seen.columns
    if kinds is not None and kinds.lower().endswith(".json"):
        kinds = str(_absolute(Path(kinds)))
    return dataclasses.replace(
        config,
        model=dataclasses.replace(model, init_from=_absolute(model.init_from)),
        observations=dataclasses.replace(seen, data_dir=_absolute(seen.data_dir), columns=kinds),
    )


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser().absolute()
