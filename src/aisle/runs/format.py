"""The version of what a run writes, in `config.json`, checkpoints and exported weights alike."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisle.errors import InputError

# To be raised when files change so that an older aisle would misread them.
FORMAT = 2


def check_format(file: Path, stored: Mapping[str, Any]) -> None:
    """Refuse the JSON object of a file that a later version wrote.

    A file without a format is of the first edition, which is format 1.
    """
    found = stored.get("format", 1)
    if found in range(1, FORMAT + 1):
        return
    try:
        needed = f"aisle {stored['provenance']['packages']['aisle']} or newer"
    except (KeyError, TypeError):
        needed = "a newer aisle"
    raise InputError(
        f"{file} has format {found!r}, and this version of aisle reads formats up to {FORMAT}: "
        f"install {needed}"
    )
