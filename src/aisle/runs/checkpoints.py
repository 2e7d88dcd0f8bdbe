"""Checkpoints of a run: one file `<run>/checkpoints/<update>.safetensors` for each.

A damaged one is passed over for the one before it. Those of the first edition are folders.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import PyTree

from aisle.errors import InputError, first_line
from aisle.files import remove_leftovers
from aisle.runs import legacy, tensors

_NAME = re.compile(rf"(0|[1-9][0-9]*)({re.escape(tensors.SUFFIX)})?")


def save(folder: Path, update: int, tree: PyTree, *, keep: int = 3) -> None:
    """Write the arrays of `tree` after `update` updates, and return when they are on disk.

    A checkpoint of the same update is replaced. Of this update and the earlier ones the last
    `keep` stay; later ones, which only damage can have left behind, are not counted.
    """
    before = latest(folder)
    home = _home(folder)
    path = home / f"{update}{tensors.SUFFIX}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        remove_leftovers(home)
        tensors.write(path, tree, {"update": update})
        own = [old for at, old in _found(folder).items() if at <= update and old.is_file()]
        for old in own[:-keep]:
            old.unlink(missing_ok=True)
    except OSError as error:
        kept = "there is none yet" if before is None else f"the one of update {before} is untouched"
        raise InputError(
            f"cannot write the checkpoint {path} ({error.strerror or error}): {kept}; free some "
            f"space or check the permissions, then resume {folder}"
        ) from None


def restore(
    folder: Path,
    like: Callable[[int], PyTree],
    *,
    parts: Sequence[str] = (),
    only: int | None = None,
    report: Callable[[str], None],
) -> tuple[int, PyTree] | None:
    """Return the newest whole checkpoint of the run `folder` as (update, tree); None without any.

    Args:
        folder: of the run.
        like: gives the structure of what is wanted by its update, and where each array goes if it
            has a sharding.
        parts: paths in the stored tree, such as "state/params": of the first one that is there,
            instead of the whole tree.
        only: the update of the checkpoint to take, instead of the newest one.
        report: is given one line for each damaged checkpoint that is passed over.
    """
    damaged: dict[Path, str] = {}
    found = _found(folder)
    if only is not None:
        found = {only: found[only]} if only in found else {}
    for update, path in reversed(found.items()):
        if path.is_dir() and not parts:
            raise InputError(
                f"{path} was written by aisle 0.1: this version reads its weights but cannot "
                "resume it; start a new run from them in another folder"
            )
        try:
            stored = _read(path, update)
        except tensors.UnreadableError as error:
            damaged[path] = str(error)
            continue
        for other, reason in damaged.items():
            report(f"{other} is damaged ({reason}): using {path} instead")
        stored, wanted = _part(stored, parts) if parts else stored, like(update)
        if problem := tensors.difference(stored, wanted):
            raise InputError(
                f"{path} is of another model or optimiser: {problem}; use the settings of the run, "
                "or choose another folder for a new one"
            )
        return update, tensors.placed(stored, wanted)
    if damaged:
        reasons = "; ".join(f"{path.name}: {reason}" for path, reason in damaged.items())
        raise InputError(
            f"no checkpoint in {_home(folder)} can be read ({reasons}): restore the folder from a "
            "backup, or start the run again in another folder"
        )
    return None


def latest(folder: Path) -> int | None:
    """Return the newest update that the run `folder` has a checkpoint of, damaged or not."""
    return max(updates(folder), default=None)


def updates(folder: Path) -> list[int]:
    """Return the updates that the run `folder` has checkpoints of, in order."""
    return list(_found(folder))


def _home(folder: Path) -> Path:
    return folder / "checkpoints"


def _found(folder: Path) -> dict[int, Path]:
    """Return the checkpoints by update, in order."""
    try:
        paths = sorted(_home(folder).iterdir())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(
            f"cannot read {_home(folder)} ({error.strerror}): check the folder and its permissions"
        ) from None
    matches = [(_NAME.fullmatch(path.name), path) for path in paths]
    # A file has the suffix, and a folder has none.
    found = [(int(m[1]), path) for m, path in matches if m and path.is_file() == bool(m[2])]
    return dict(sorted(found))


def _read(path: Path, update: int) -> dict[str, np.ndarray]:
    try:
        if path.is_dir():
            return legacy.read(path)
        stored, about = tensors.read(path)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        # Depending on what is missing, tensorstore and the system raise all kinds.
        raise tensors.UnreadableError(first_line(error)) from error
    if about.get("update") != update:
        raise tensors.UnreadableError("it was not saved under this name")
    return stored


def _part(stored: dict[str, np.ndarray], parts: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the tensors of the first part that is there, with their names in it."""
    for part in parts:
        inside = [name for name in stored if f"{name}/".startswith(f"{part}/")]
        if inside:
            return {name[len(part) + 1 :]: stored[name] for name in inside}
    return {}
