"""Checkpoints of a run: the whole training state under `<run>/checkpoints/<update>/`.

Orbax writes each one into a temporary folder and renames it when it is complete. In it are the
bytes of all leaves as one array, and a manifest with the names, shapes and types of the leaves and
one SHA-256 of it all: an array file that is lost reads as zeros in Orbax, so only a checksum can
tell a whole checkpoint from a damaged one.

One array, since Orbax handles several at the same time: when the disk fails one of them, the others
go on behind its back and fill the terminal with the tracebacks of their threads.
"""

import hashlib
import json
import logging
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle.errors import InputError

# What a killed process leaves: a checkpoint that Orbax had not finished, or one half removed.
_LEFTOVER = re.compile(r"\d+\.(orbax-checkpoint-tmp.*|removed)")

# How tensorstore tells the number of a system error, in the text of a ValueError.
_OS_ERROR = re.compile(r"os_error_code='(\d+)'|OS error (\d+)")


class _Contents(NamedTuple):
    """The leaves of a state: what they are, and their bytes one after the other."""

    leaves: list[dict[str, Any]]
    content: np.ndarray


class _DamagedError(Exception):
    """A checkpoint that cannot be read whole, and why."""


def check_place(folder: Path) -> None:
    """Refuse a run's folder in which Orbax would not find what it has just written."""
    if re.search(r"[*?[]", str(folder.resolve())):
        raise InputError(
            f"{folder} has one of * ? [ in its name, which Orbax takes for a pattern: choose "
            "another --out"
        )


def save(folder: Path, update: int, state: PyTree, *, keep: int = 3) -> None:
    """Write the state after `update` updates into the run `folder`, and return when it is on disk.

    A whole checkpoint of the same update is left as it is. Of this update and the earlier ones
    the last `keep` stay; later ones, which only damage can have left behind, are not counted.
    """
    if update < 0 or keep < 1:
        raise InputError(f"update is {update} and keep {keep}: they must be at least 0 and 1")
    contents = _contents(state)
    home = _home(folder)
    path = home / str(update)
    with _disk_errors(folder, path):
        home.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(home)
        if path.exists() and not _is_whole(path):
            _remove(path)
        if not path.exists():
            _write(path, contents)
        for old in [old for old in _listed(home) if old <= update][:-keep]:
            _remove(home / str(old))


def restore(
    folder: Path, like: PyTree, *, report: Callable[[str], None], part: str | None = None
) -> tuple[int, PyTree] | None:
    """Return the newest whole checkpoint of the run `folder` as (update, state); None without any.

    `like` gives the structure, and where each array goes if it has a sharding. Checkpoints that
    are damaged are passed over, with one line to `report` for each. `part` names a field of the
    state, such as "params", of which alone `like` is then the structure.
    """
    home = _home(folder)
    damaged: dict[int, str] = {}
    for update in reversed(updates(folder)):
        try:
            contents = _read(home / str(update))
        except _DamagedError as error:
            damaged[update] = str(error)
            continue
        for other, reason in damaged.items():
            report(f"{home / str(other)} is damaged ({reason}): using {home / str(update)} instead")
        if part is not None:
            contents = _selected(contents, f"{part}/")
        _check_matches(home / str(update), contents, like)
        return update, _placed(contents, like)
    if damaged:
        reasons = "; ".join(f"{update}: {reason}" for update, reason in damaged.items())
        raise InputError(
            f"no checkpoint in {home} can be read ({reasons}): restore the folder from a backup, "
            "or start the run again with another --out"
        )
    return None


def latest(folder: Path) -> int | None:
    """Return the newest update that the run `folder` has a checkpoint of, damaged or not."""
    return max(updates(folder), default=None)


def updates(folder: Path) -> list[int]:
    """Return the updates that the run `folder` has checkpoints of, in order."""
    try:
        return _listed(_home(folder))
    except OSError as error:
        raise InputError(
            f"cannot read {_home(folder)} ({error.strerror}): check the folder and its permissions"
        ) from None


def _home(folder: Path) -> Path:
    # Orbax takes absolute paths only.
    return folder.absolute() / "checkpoints"


def _listed(home: Path) -> list[int]:
    try:
        names = [path.name for path in home.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if re.fullmatch(r"0|[1-9][0-9]*", name))


def _contents(state: PyTree) -> _Contents:
    # On the host a state belongs to no device, so that it can be restored on any number of them.
    arrays = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(state)]
    # Orbax refuses arrays without elements, so a byte follows the last leaf.
    parts = [array.reshape(-1).view(np.uint8) for array in arrays]
    return _Contents(_described(state), np.concatenate([*parts, np.zeros(1, np.uint8)]))


def _described(tree: PyTree) -> list[dict[str, Any]]:
    return [
        {
            "name": jax.tree_util.keystr(path, simple=True, separator="/"),
            "shape": list(leaf.shape),
            "dtype": np.dtype(leaf.dtype).name,
        }
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _digest(contents: _Contents) -> str:
    digest = hashlib.sha256(json.dumps(contents.leaves, sort_keys=True).encode())
    digest.update(contents.content.data)
    return digest.hexdigest()


def _write(path: Path, contents: _Contents) -> None:
    import orbax.checkpoint as ocp

    items = ocp.args.Composite(
        manifest=ocp.args.JsonSave({"leaves": contents.leaves, "sha256": _digest(contents)}),
        state=ocp.args.PyTreeSave({"content": contents.content}),
    )
    with _quiet(), _checkpointer() as checkpointer:
        checkpointer.save(path, args=items)


def _checkpointer() -> Any:
    """Return a checkpointer of this process alone, which waits for no other."""
    import orbax.checkpoint as ocp

    own = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"aisle{own}"
    )
    handler = ocp.CompositeCheckpointHandler(
        composite_options=ocp.CompositeOptions(multiprocessing_options=alone)
    )
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _read(path: Path) -> _Contents:
    try:
        contents, expected = _read_unchecked(path)
        found = _digest(contents)
    except MemoryError:
        raise
    except Exception as error:
        # Depending on what is missing, Orbax raises anything from KeyError to XlaRuntimeError.
        lines = str(error).strip().splitlines() or [""]
        raise _DamagedError(f"{type(error).__name__}: {lines[0][:120]}") from error
    if found != expected:
        raise _DamagedError("its content does not have the checksum it was saved with")
    return contents


def _read_unchecked(path: Path) -> tuple[_Contents, str]:
    import orbax.checkpoint as ocp

    on_host = {"content": ocp.RestoreArgs(restore_type=np.ndarray)}
    items = ocp.args.Composite(
        manifest=ocp.args.JsonRestore(), state=ocp.args.PyTreeRestore(restore_args=on_host)
    )
    with _quiet(), _checkpointer() as checkpointer:
        found = checkpointer.restore(path, args=items)
    content = np.ascontiguousarray(found["state"]["content"])
    return _Contents(found["manifest"]["leaves"], content), found["manifest"]["sha256"]


def _is_whole(path: Path) -> bool:
    with suppress(_DamagedError):
        return bool(_read(path))
    return False


def _check_matches(path: Path, contents: _Contents, like: PyTree) -> None:
    # In order, as the leaves are found by their position.
    for stored, wanted in zip_longest(contents.leaves, _described(like)):
        if stored != wanted:
            raise InputError(
                f"{path} is of another model or optimiser: it has {_shown(stored)} where this one "
                f"has {_shown(wanted)}; resume with the settings of the run, or start a new one "
                "with another --out"
            )


def _shown(leaf: dict[str, Any] | None) -> str:
    if leaf is None:
        return "nothing more"
    return f"{leaf['name']} {leaf['dtype']}[{','.join(map(str, leaf['shape']))}]"


def _placed(contents: _Contents, like: PyTree) -> PyTree:
    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, map(_place, _leaf_contents(contents), leaves))


def _leaf_contents(contents: _Contents) -> list[np.ndarray]:
    sizes = [
        math.prod(leaf["shape"]) * np.dtype(leaf["dtype"]).itemsize for leaf in contents.leaves
    ]
    # What follows the leaves is one byte, see `_contents`.
    return np.split(contents.content, np.cumsum(sizes, dtype=np.int64))[:-1]


def _selected(contents: _Contents, prefix: str) -> _Contents:
    """Return the leaves whose names begin with `prefix`, without it."""
    chosen = [
        ({**leaf, "name": leaf["name"].removeprefix(prefix)}, content)
        for leaf, content in zip(contents.leaves, _leaf_contents(contents), strict=True)
        if leaf["name"].startswith(prefix)
    ]
    content = np.concatenate([*(part for _, part in chosen), np.zeros(1, np.uint8)])
    return _Contents([leaf for leaf, _ in chosen], content)


def _place(content: np.ndarray, leaf: Any) -> jax.Array:
    # A copy, as JAX may otherwise share NumPy's memory, which it cannot donate to a computation.
    value = jnp.array(content.view(leaf.dtype).reshape(leaf.shape))
    sharding = getattr(leaf, "sharding", None)
    # An array that is free to move must stay free, or it could not meet a sharded one.
    if sharding is None or not getattr(leaf, "committed", True):
        return value
    return jax.device_put(value, sharding)


def _remove(path: Path) -> None:
    # Renamed first: half a folder must never be taken for a checkpoint.
    shutil.rmtree(path.rename(path.with_name(f"{path.name}.removed")))


def _remove_leftovers(home: Path) -> None:
    for path in home.iterdir():
        if _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path)


@contextmanager
def _disk_errors(folder: Path, path: Path) -> Iterator[None]:
    """Turn a failure of the disk into an InputError; others, from Orbax too, pass as they are."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        if (reason := _disk_reason(error)) is None:
            raise
        with suppress(OSError):
            _remove_leftovers(path.parent)
        raise InputError(
            f"cannot write {path} ({reason}): {_last_good(path.parent)}; free some space or check "
            f"the permissions, then continue with --resume {folder}"
        ) from error


def _disk_reason(error: Exception) -> str | None:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    found = _OS_ERROR.search(str(error))
    return os.strerror(int(found[1] or found[2])) if found else None


def _last_good(home: Path) -> str:
    with suppress(OSError):
        for update in reversed(_listed(home)):
            if _is_whole(home / str(update)):
                return f"the last good checkpoint, {home / str(update)}, is intact"
    return "there is no earlier checkpoint"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Orbax from logging: what it would log as an error it also raises."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
