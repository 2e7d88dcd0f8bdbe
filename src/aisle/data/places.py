"""Where data files are, and whether they are whole."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path

from aisle.data.sources import DataFile, Form, Source
from aisle.errors import InputError


def data_directory(data_dir: str | Path | None = None) -> Path:
    """Return `data_dir`, or else the folder that AISLE_DATA names, or else the user's cache."""
    chosen = data_dir or os.environ.get("AISLE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return pooch.os_cache("aisle")


def find_form(source: Source, folder: Path) -> Form | None:
    """Return the first form of a data set whose files are all in `folder`."""
    for form in source.forms:
        if all((folder / file.name).is_file() for file in form.files):
            return form
    return None


def checksum(content: bytes, algorithm: str) -> str:
    """Return "algorithm:digest" of some bytes."""
    # Against accidents only; and a hardened Python refuses md5 for anything else.
    return f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"


def read_verified(path: Path, file: DataFile, source: Source) -> bytes:
    """Return what is in a file, unzipped if it is a gzip file, after checking its hash."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise damaged(path, source, "it is cut short, or not a gzip file") from None
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror}): check the file and its permissions"
        ) from None
    expected = file.content or file.checksum
    if expected and (found := checksum(content, expected.partition(":")[0])) != expected:
        raise damaged(path, source, f"it should have {expected} but has {found}")
    return content


def damaged(path: Path, source: Source, reason: str) -> InputError:
    """Return the error for a file of a named data set that is not what it should be."""
    return InputError(
        f"{path} cannot be used: {reason}; delete it and run `aisle data fetch {source.name}`"
    )
