"""What training says of itself: its result, whether that is one, and lines on standard error."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from aisle.errors import TrainingError
from aisle.learning.updates import TrainState

Records = list[dict[str, Any]]


@dataclass(frozen=True, repr=False)
class Fitted:
    """What training returns. Prints itself in one line.

    Attributes:
        model: with its trained weights: those of the best held-out bound where that is kept, or
            averaged ones if the recipe asked for them.
        proposal: likewise.
        state: everything that training changed.
        history: the records of metrics.jsonl, as far as they were made by this call.
        is_interrupted: whether Ctrl-C ended training before its time.
    """

    model: Any
    proposal: Any
    state: TrainState
    history: Records
    is_interrupted: bool

    def __repr__(self) -> str:
        words = [f"{int(self.state.update):,} updates"]
        bounds = [record for record in self.history if "held_out_bound" in record]
        if bounds:
            last = bounds[-1]
            words.append(
                f"last held-out bound {last['held_out_bound']:.2f} +- "
                f"{last['held_out_standard_error']:.2f} nats"
            )
        elif self.history:
            words.append(f"bound {mean_of(numbers(self.history[-10:], 'bound')):.2f} nats")
        return ", ".join([*words, *(["interrupted"] if self.is_interrupted else [])])


def numbers(records: Records, name: str) -> list[Any]:
    """Return a number of all records that have it: updates and validations have different ones."""
    return [record[name] for record in records if name in record]


def mean_of(values: list[Any]) -> float:
    """Return the mean, which is not a number where there are none."""
    return float(np.mean(values)) if values else float("nan")


def check_converged(history: Records) -> None:
    """Refuse to call a run trained that has no finite bound in the end."""
    bounds, held_out = numbers(history, "bound"), numbers(history, "held_out_bound")
    if bounds and not np.isfinite(bounds).any():
        raise TrainingError(
            f"training diverged: the bound was not finite in any of {len(bounds)} updates; check "
            "the data, that the model can have made them, and the scale of both"
        )
    if (held_out and np.isnan(held_out[-1])) or (bounds and np.isnan(bounds[-1])):
        last = held_out[-1] if held_out else bounds[-1]
        raise TrainingError(
            f"training diverged: the last bound is {last}; lower the learning rate, or check the "
            "data"
        )


def report(line: str) -> None:
    """Report something that is not an error."""
    sys.stderr.write(f"aisle: {line}\n")
