"""Maximum likelihood for latent-variable models by annealed importance sampling.

The public names stand in `__init__.pyi`. They are imported on first use, so that the command line
answers `--help` without starting JAX.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
# The module that each public name is imported from; of a module, that which holds it.
_PLACES = {
    alias.asname or alias.name: f"aisle.{node.module}" if node.module else "aisle"
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

__all__ = sorted(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'aisle' has no attribute {name!r}")
    place = _PLACES[name]
    if place == "aisle":
        return importlib.import_module(f"aisle.{name}")
    module = importlib.import_module(place)
    return getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__doc__"]
