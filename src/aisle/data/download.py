"""Fetch the files of a named data set from its mirrors, whole and verified or not at all."""

import sys
from collections.abc import Sequence
from pathlib import Path

from aisle.data.places import checksum, data_directory, find_form, read_verified
from aisle.data.sources import DataFile, Form, Source, named
from aisle.errors import InputError
from aisle.files import disk_errors, locked, remove_leftovers, replacing

# Seconds until a server that does not answer, or falls silent, is given up.
TIMEOUT = 30.0
_READ_BYTES = 1 << 16


class _MirrorError(Exception):
    """A mirror, or all of them, did not give a file; the message says why."""


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
    found = find_form(source, folder)
    if found and all(_is_whole(folder / file.name, file, source) for file in found.files):
        return _paths(found, folder)
    with disk_errors(folder, "make room, or choose another folder with AISLE_DATA or --data-dir"):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            remove_leftovers(folder)
            return _fetch_forms(source, folder, mirrors)


def _fetch_forms(source: Source, folder: Path, mirrors: Sequence[str] | None) -> list[Path]:
    """Fetch the first form of a data set that the mirrors have."""
    failures = []
    for form in source.forms:
        if not all(file.urls for file in form.files):
            continue
        try:
            for file in form.files:
                if not _is_whole(folder / file.name, file, source):
                    _fetch_file(file, folder, _addresses(file, mirrors))
            return _paths(form, folder)
        except _MirrorError as error:
            failures.append(str(error))
    raise InputError(
        f"cannot fetch {source.name}: {'; '.join(failures)}; check the connection, or put the "
        f"files into {folder} by hand"
    )


def _addresses(file: DataFile, mirrors: Sequence[str] | None) -> Sequence[str]:
    if mirrors is None:
        return file.urls
    return [f"{mirror.rstrip('/')}/{file.name}" for mirror in mirrors]


def _fetch_file(file: DataFile, folder: Path, urls: Sequence[str]) -> None:
    reasons = []
    for url in urls:
        try:
            with replacing(folder / file.name) as temporary:
                _download(url, temporary, file.name)
                _check_hash(temporary, file)
            return
        except _MirrorError as error:
            reasons.append(f"{url} ({error})")
    raise _MirrorError(f"no {file.name} from {', '.join(reasons) or 'any mirror'}")


def _download(url: str, path: Path, name: str) -> None:
    import requests

    from aisle.progress import Progress

    # As they are: bytes that the server zips on the way would not match the size it reports.
    headers = {"Accept-Encoding": "identity"}
    try:
        with requests.get(url, stream=True, timeout=TIMEOUT, headers=headers) as answer:
            answer.raise_for_status()
            # A server that does not report the size is as good as one of an empty file.
            size, done = int(answer.headers.get("Content-Length", 0)), 0
            is_shown = sys.stderr.isatty()
            with path.open("wb") as file, Progress(size, name, "bytes", is_shown=is_shown) as bar:
                for block in answer.iter_content(_READ_BYTES):
                    done += file.write(block)
                    bar.advance(done, name, f"{done:,}/{size:,} bytes")
    except requests.RequestException as error:
        raise _MirrorError(_reason(error)) from None


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


def _check_hash(path: Path, file: DataFile) -> None:
    expected = file.checksum or ""
    found = checksum(path.read_bytes(), expected.partition(":")[0])
    if found != expected:
        raise _MirrorError(f"it should have {expected} but has {found}")


def _is_whole(path: Path, file: DataFile, source: Source) -> bool:
    if not path.is_file():
        return False
    try:
        read_verified(path, file, source)
    except InputError:
        return False
    return True


def _paths(form: Form, folder: Path) -> list[Path]:
    return [folder / file.name for file in form.files]
