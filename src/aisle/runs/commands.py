"""The command lines that configurations stand for: what differs from the defaults."""

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisle.runs.options import EvaluateConfig, TrainConfig


def train(config: TrainConfig) -> str:
    """Return the `aisle train` command of a configuration."""
    usual = TrainConfig(config.data, config.num_epochs, config.num_updates)
    words = ["aisle train", shlex.quote(config.data)]
    words += [f"--epochs {config.num_epochs}"] if config.num_epochs else []
    words += [f"--updates {config.num_updates}"] if config.num_updates else []
    return " ".join([*words, *_flags(config, usual)])


def train_anywhere(config: TrainConfig) -> str:
    """Return the `aisle train` command without the places of folders, for others to read."""
    start, kinds = config.model.init_from, config.observations.columns
    model = dataclasses.replace(config.model, init_from=start and Path(start.name))
    if kinds is not None and kinds.endswith(".json"):
        kinds = Path(kinds).name
    seen = dataclasses.replace(config.observations, data_dir=None, columns=kinds)
    data = Path(config.data).name
    return train(dataclasses.replace(config, data=data, model=model, observations=seen))


def evaluate(path: Path, config: EvaluateConfig) -> str:
    """Return the `aisle evaluate` command of a configuration."""
    usual, words = EvaluateConfig(), ["aisle evaluate", shlex.quote(str(path))]
    return " ".join([*words, *_flags(config, usual)])


def _flags(options: Any, usual: Any) -> Iterator[str]:
    """Return the flags of what differs from the usual options, in their groups too."""
    for field in dataclasses.fields(options):
        value, flag = getattr(options, field.name), f"--{field.name.replace('_', '-')}"
        if dataclasses.is_dataclass(value):
            yield from _flags(value, getattr(usual, field.name))
        elif value != getattr(usual, field.name):
            values = value if isinstance(value, tuple) else (value,)
            words = [] if isinstance(value, bool) else map(str, values)
            yield shlex.join([flag, *words])
