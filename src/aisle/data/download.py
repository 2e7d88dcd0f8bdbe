"""Fetch the files of a named data set from its mirrors, whole and verified or not at all."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aisle.data.readers import checksum, read_verified
from aisle.data.sources import DataFile, Source, data_directory, named
from aisle.errors import InputError
from aisle.files import disk_errors, locked, remove_leftovers, replacing

if TYPE_CHECKING:
    from rich.progress import Progress

# Seconds until a server that does not answer, or falls silent, is given up.
TIMEOUT = 30.0
_READ_BYTES = 1 << 16


class _NotFetchedError(Exception):
    """A file was not to be had; the message says why, or from which mirrors."""


class _Bar:
    """What pooch expects of a progress bar, drawn by rich."""

    # Set by pooch; 0 if the server does not tell the size.
    total = 0

    def __init__(self, progress: "Progress", name: str):
        self._progress = progress
        self._task = progress.add_task(name, total=None)

    def update(self, num_bytes: int) -> None:
        self._progress.update(self._task, total=self.total or None, advance=num_bytes)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop_task(self._task)

    def hide(self) -> None:
        self._progress.update(self._task, visible=False)


def fetch(
    name: str, data_dir: str | Path | None = None, *, mirrors: Sequence[str] | None = None
) -> list[Path]:
    """Fetch a named data set, unless it is there already, and return the paths of its files.

    Nothing is downloaded for a data set that comes with a package; the list is then empty.

    Args:
        name: the data set, such as mnist.
        data_dir: where to keep it, in a folder of its own name; see `data_directory`.
        mirrors: addresses of folders to fetch the files from, instead of the ones that are known.
    """
    source = named(name)
    folder = data_directory(data_dir) / source.name
    found = source.form_in(folder)
    if found and all(_is_whole(folder / file.name, file, source) for file in found.files):
        return found.paths(folder)
    with disk_errors(folder, "make room, or choose another folder with AISLE_DATA or --data-dir"):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder), _progress() as progress:
            remove_leftovers(folder)
            return _fetch_forms(source, folder, mirrors, progress)


def _fetch_forms(
    source: Source, folder: Path, mirrors: Sequence[str] | None, progress: "Progress"
) -> list[Path]:
    """Fetch the first form of a data set that the mirrors have."""
    failures = []
    for form in source.forms:
        if not form.mirrors:
            continue
        places = form.mirrors if mirrors is None else mirrors
        try:
            for file in form.files:
                if not _is_whole(folder / file.name, file, source):
                    _fetch_file(file, folder, places, progress)
            return form.paths(folder)
        except _NotFetchedError as error:
            failures.append(str(error))
    raise InputError(
        f"cannot fetch {source.name}: {'; '.join(failures)}; check the connection, or put the "
        f"files into {folder} by hand"
    )


def _fetch_file(file: DataFile, folder: Path, mirrors: Sequence[str], progress: "Progress") -> None:
    """Fetch a file from the first mirror that has it, whole and with the right hash."""
    reasons = []
    for mirror in mirrors:
        url, bar = f"{mirror.rstrip('/')}/{file.name}", _Bar(progress, file.name)
        try:
            with replacing(folder / file.name) as temporary:
                _download(url, temporary, bar)
                expected = file.checksum or ""
                found = checksum(temporary.read_bytes(), expected.partition(":")[0])
                if found != expected:
                    raise _NotFetchedError(f"it should have {expected} but has {found}")
            return
        except _NotFetchedError as error:
            bar.hide()
            reasons.append(f"{url} ({error})")
    raise _NotFetchedError(f"no {file.name} from {', '.join(reasons) or 'any mirror'}")


def _download(url: str, path: Path, bar: _Bar) -> None:
    import pooch
    import requests

    # As they are: bytes that the server zips on the way would not match the size it tells.
    headers = {"Accept-Encoding": "identity"}
    options: dict[str, Any] = {"progressbar": bar, "timeout": TIMEOUT, "headers": headers}
    try:
        pooch.HTTPDownloader(chunk_size=_READ_BYTES, **options)(url, str(path), None)
    except requests.RequestException as error:
        raise _NotFetchedError(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Say in a few words what requests and urllib3 say in several lines."""
    import requests

    if isinstance(error, requests.HTTPError):
        return str(error).partition(" for url")[0]
    # A server that falls silent half-way is not a Timeout for requests, but is one in its words.
    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return f"no answer in {TIMEOUT:g} seconds"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was cut"
    return f"no connection: {type(error).__name__}"


def _is_whole(path: Path, file: DataFile, source: Source) -> bool:
    if not path.is_file():
        return False
    try:
        read_verified(path, file, source)
    except InputError:
        return False
    return True


def _progress() -> "Progress":
    """Return a bar with size and time left, on a terminal; elsewhere it shows nothing."""
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
