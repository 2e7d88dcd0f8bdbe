"""Load a data set by its name or from a file, and list what there is."""

from collections.abc import Callable
from pathlib import Path

from aisle.data.arrays import Parts, is_file_name, read_user_file
from aisle.data.omniglot import read_archives
from aisle.data.places import data_directory, find_form
from aisle.data.readers import Arrays, read_idx, read_mat, read_npz, read_sklearn
from aisle.data.sources import SOURCES, Form, Source, named
from aisle.data.split import Dataset, Split
from aisle.data.view import View
from aisle.errors import InputError, check_count

READERS: dict[str, Callable[[Path, Form, Source], Arrays]] = {
    "sklearn": read_sklearn,
    "idx": read_idx,
    "mat": read_mat,
    "npz": read_npz,
    "archives": read_archives,
}


def load(
    name_or_path: str | Path,
    data_dir: str | Path | None = None,
    *,
    view: View | None = None,
    num_valid: int | None = None,
) -> Dataset:
    """Load a data set.

    Example:
        >>> dataset = aisle.data.load("digits")
        >>> len(dataset.train), len(dataset.valid), len(dataset.test)
        (1350, 150, 297)

    Args:
        name_or_path: digits, mnist or omniglot; or the path of an .npy or .npz file. An .npy holds
            examples along its first axis and may be larger than memory; an .npz holds `train` and
            perhaps `valid` and `test`, or one array of any name. Without `test`, one tenth is
            held out.
        data_dir: where the named data sets are; see `data_directory`.
        view: how stored examples become what a model sees. By default the pictures of the named
            sets are grey values from which bits are drawn anew, and files are taken as they are.
        num_valid: examples to take from `train` for validation, where the data have no such part;
            0 for none. By default 5,000 of mnist, 1,345 of omniglot and a tenth of others.
    """
    if num_valid is not None:
        check_count("num_valid", num_valid, 0)
    text = str(name_or_path)
    if is_file_name(text):
        path = Path(text).expanduser()
        parts = read_user_file(path, view or View())
        named_as, source, usual = path.stem, str(path), len(parts.train) // 10
    else:
        known = named(text)
        parts, source = _read_named(known, data_directory(data_dir) / known.name, view)
        named_as, usual = known.name, known.num_valid
    train, valid, test = parts
    if valid is None:
        number = max(1, usual) if num_valid is None else num_valid
        train, valid = train.without(number) if number else (train, None)
    elif num_valid is not None:
        raise InputError(
            f"is {num_valid} but {source} has a part called valid: leave it out",
            argument="num_valid",
        )
    return Dataset(named_as, train, valid, test, train.arrays.shape[1:], source)


def _read_named(source: Source, folder: Path, view: View | None) -> tuple[Parts, str]:
    form = find_form(source, folder)
    if form is None:
        raise InputError(_missing(source, folder))
    seen = view or View(is_grey=True, binarize="dynamic", is_flat=True)
    train, test = READERS[form.kind](folder, form, source)
    return Parts(Split(train, None, seen), None, Split(test, None, seen)), _origin(form, folder)


def describe(data_dir: str | Path | None = None) -> list[tuple[Source, str]]:
    """List the named data sets, each with where it is or how to get it."""
    return [(source, _found(source, data_directory(data_dir))) for source in SOURCES.values()]


def _found(source: Source, data_dir: Path) -> str:
    folder = data_dir / source.name
    form = find_form(source, folder)
    if form is None:
        return f"not fetched (aisle data fetch {source.name})"
    if not form.files:
        return "comes with scikit-learn, nothing to fetch"
    return _origin(form, folder)


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
