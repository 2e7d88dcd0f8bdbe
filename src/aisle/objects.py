"""What the objects that users choose from have in common: a repr that can be typed back."""

import dataclasses
import inspect
from typing import Any

import numpy as np


class Chosen:
    """Base of frozen dataclasses whose repr is Python, given `import aisle`."""

    def take_numbers(self) -> None:
        """Turn NumPy's numbers into Python's own, which are constants of compiled programs."""
        for option in dataclasses.fields(self):  # pyright: ignore
            value = getattr(self, option.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, option.name, value.item())

    def __repr__(self) -> str:
        fields = [f for f in dataclasses.fields(self) if f.repr]  # pyright: ignore
        inside = ", ".join(f"{f.name}={typed(getattr(self, f.name))}" for f in fields)
        place = _PUBLIC.get(type(self).__module__, "aisle.")
        return f"{place}{type(self).__name__}({inside})"


# Modules that are public under another name.
_PUBLIC = {"aisle.annealing.schedules": "aisle.schedules.", "aisle.learning.rates": "aisle.rates."}


def typed(value: Any) -> str:
    """Return what to type for a value: functions by their names, numbers as they are."""
    if inspect.isroutine(value):
        return f"{_PUBLIC.get(value.__module__, '')}{value.__qualname__}"
    # NumPy's numbers print with their type.
    return repr(value.item() if isinstance(value, np.generic) else value)
