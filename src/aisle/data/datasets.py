"""Load a data set by its name or from a file, and list what there is."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aisle.data.arrays import is_file_name, read_user_file
from aisle.data.omniglot import read_archives
from aisle.data.places import data_directory, find_form
from aisle.data.readers import Arrays, read_idx, read_mat, read_npz, read_sklearn
from aisle.data.sources import SOURCES, Form, Source, named
from aisle.data.split import Dataset, Split
from aisle.errors import InputError

READERS: dict[str, Callable[[Path, Form, Source], Arrays]] = {
    "sklearn": read_sklearn,
    "idx": read_idx,
    "mat": read_mat,
    "npz": read_npz,
    "archives": read_archives,
}


class Description(NamedTuple):
    """A named data set, for a list of them; `found` says where it is or how to get it."""

    name: str
    description: str
    num_train: int
    num_test: int
    shape: tuple[int, ...]
    licence: str
    found: str


def load(name_or_path: str | Path, data_dir: str | Path | None = None) -> Dataset:
    """Load a data set.

    Args:
        name_or_path: digits, mnist or omniglot; or the path of an .npy or .npz file. An .npy holds
            examples along its first axis and may be larger than memory; an .npz holds `train` and
            perhaps `test`, or one array of any name. Without `test`, one tenth is held out.
        data_dir: where the named data sets are; see `data_directory`.
    """
    text = str(name_or_path)
    if is_file_name(text):
        return read_user_file(Path(text).expanduser())
    source = named(text)
    folder = data_directory(data_dir) / source.name
    form = find_form(source, folder)
    if form is None:
        raise InputError(_missing(source, folder))
    train, test = READERS[form.kind](folder, form, source)
    return Dataset(source.name, Split(train), Split(test), source.shape, _origin(form, folder))


def describe(data_dir: str | Path | None = None) -> list[Description]:
    """List the named data sets."""
    return [_describe(source, data_directory(data_dir)) for source in SOURCES.values()]


def _describe(source: Source, data_dir: Path) -> Description:
    folder = data_dir / source.name
    form = find_form(source, folder)
    if form is None:
        found = f"not fetched (aisle data fetch {source.name})"
    elif not form.files:
        found = "comes with scikit-learn, nothing to fetch"
    else:
        found = _origin(form, folder)
    return Description(*source[:-1], found)


def _origin(form: Form, folder: Path) -> str:
    files = ", ".join(str(folder / file.name) for file in form.files) or "scikit-learn"
    return f"{files} ({form.note})" if form.note else files


def _missing(source: Source, folder: Path) -> str:
    # Part of a form may be there: then name the file that is missing from that one.
    files = [folder / file.name for form in source.forms for file in form.files]
    begun = [form for form in source.forms if any((folder / f.name).exists() for f in form.files)]
    if begun:
        files = [folder / file.name for file in begun[0].files]
    missing = next(path for path in files if not path.exists())
    return (
        f"{missing} is missing: run `aisle data fetch {source.name}`, or set AISLE_DATA to the "
        f"folder that holds {source.name}/{missing.name}"
    )
