"""Cells: pieces of work that are kept, so that an interrupted command goes on where it was."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx

from aisle.cli.output import write_json
from aisle.errors import InputError
from aisle.files import disk_errors, finite, writing


class Cells:
    """The finished cells of one command, in a folder."""

    def __init__(self, folder: Path, common: Mapping[str, Any]):
        """Use `folder`; all cells depend on the settings that they have in common."""
        with disk_errors(folder, "choose another --out"):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.common = folder, dict(common)
        self._spent: dict[str, float] = {}

    def __call__(
        self, name: str, settings: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return what a cell has found: from its file, or by making it now."""
        file = self.folder / f"{name}.json"
        wanted = json.loads(json.dumps(finite({**self.common, **settings})))
        if file.exists():
            try:
                stored = json.loads(file.read_text())
                before, found = stored["settings"], stored["found"]
                self._spent[name] = stored["processor_seconds"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{file} is damaged ({error!r}): remove it") from None
            if before != wanted:
                raise InputError(f"{file} has other settings: choose another --out, or remove it")
            return found
        sys.stderr.write(f"{name}\n")
        start = _processor_seconds()
        content = {"settings": wanted, "found": make()}
        self._spent[name] = _processor_seconds() - start
        write_json(file, content | {"processor_seconds": self._spent[name]})
        return json.loads(file.read_text())["found"]

    @property
    def seconds(self) -> float:
        """Processor time of the cells that were asked for, whenever they were made."""
        return sum(self._spent.values())

    def save(self, name: str, networks: Any) -> None:
        """Keep the weights of a cell; to be called before the cell is finished."""
        # Equinox would add an ending to a path, and not to an open file.
        with writing(self.folder / f"{name}.weights") as part, part.open("wb") as file:
            eqx.tree_serialise_leaves(file, networks)

    def load(self, name: str, like: Any) -> Any:
        """Return the weights of a finished cell."""
        with (self.folder / f"{name}.weights").open("rb") as file:
            return eqx.tree_deserialise_leaves(file, like)


def _processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])
