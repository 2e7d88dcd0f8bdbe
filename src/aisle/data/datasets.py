"""Load a data set by its name or from a file, and list what there is."""

from collections.abc import Callable, Sequence
from pathlib import Path

from aisle.data.arrays import is_file_name, is_table_name, read_user_file
from aisle.data.columns import Column
from aisle.data.omniglot import read_archives
from aisle.data.readers import Arrays, read_idx, read_mat, read_npz, read_sklearn
from aisle.data.sources import SOURCES, Form, Source, data_directory, named
from aisle.data.split import Dataset, Split
from aisle.data.tables import Kinds
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
    columns: Kinds = None,
    condition: Sequence[str | Column] = (),
    exposure: str | None = None,
    weights: str | None = None,
) -> Dataset:
    """Load a data set.

    Example:
        >>> dataset = aisle.data.load("digits")
        >>> len(dataset.train), len(dataset.valid), len(dataset.test)
        (1350, 150, 297)

    Args:
        name_or_path: digits, mnist or omniglot; or the path of a table (.csv, .tsv, .parquet,
            .h5ad), an .npy or an .npz file. An .npy holds examples along its first axis and may be
            larger than memory; an .npz holds `train` and perhaps `valid` and `test`, or one array
            of any name. Without `test`, one tenth is held out.
        data_dir: where the named data sets are; see `data_directory`.
        view: how stored examples become what a model sees. By default the pictures of the named
            sets are grey values from which bits are drawn anew, and files are taken as they are.
        num_valid: examples to take from `train` for validation, where the data have no such part;
            0 for none. By default 5,000 of mnist, 1,345 of omniglot and a tenth of others.
        columns: of a table, kinds of columns that are not what they look like; see `read_table`.
        condition: of a table, the columns that a model is given; see `read_table`.
        exposure: of a table, the column that counts are in proportion to, or "total".
        weights: of a table, the column that says how much rows count in training.
    """
    roles = {"columns": columns, "condition": condition, "exposure": exposure, "weights": weights}
    if num_valid is not None:
        check_count("num_valid", num_valid, 0)
    text = str(name_or_path)
    given = [role for role, value in roles.items() if value]
    if given and not is_table_name(text):
        raise InputError(f"is given but {text} is no table: leave it out", argument=given[0])
    if is_file_name(text):
        dataset = read_user_file(Path(text).expanduser(), view or View(), **roles)
        usual = len(dataset.train) // 10
    else:
        known = named(text)
        dataset, usual = _read_named(known, data_directory(data_dir), view), known.num_valid
    if dataset.valid is None:
        # One row is left to train on, even of two: those who score a file need no more.
        most = len(dataset.train) - 1
        number = min(max(1, usual), most) if num_valid is None else num_valid
        train, valid = dataset.train.without(number) if number else (dataset.train, None)
        dataset = dataset._replace(train=train, valid=valid)
    elif num_valid is not None:
        raise InputError(
            f"is {num_valid} but {dataset.source} has a part called valid: leave it out",
            argument="num_valid",
        )
    return dataset


def _read_named(source: Source, data_dir: Path, view: View | None) -> Dataset:
    folder = data_dir / source.name
    form = source.form_in(folder)
    if form is None:
        raise InputError(_missing(source, folder))
    seen = view or View(is_grey=True, binarize="dynamic", is_flat=True)
    train, test = (Split(part, None, seen) for part in READERS[form.kind](folder, form, source))
    return Dataset(source.name, train, None, test, source.shape, _origin(form, folder))


def describe(data_dir: str | Path | None = None) -> list[tuple[Source, str]]:
    """List the named data sets, each with where it is or how to get it."""
    found = []
    for source in SOURCES.values():
        folder = data_directory(data_dir) / source.name
        form = source.form_in(folder)
        if form is None:
            place = f"not fetched (aisle data fetch {source.name})"
        elif not form.files:
            place = "comes with scikit-learn, nothing to fetch"
        else:
            place = _origin(form, folder)
        found.append((source, place))
    return found


def _origin(form: Form, folder: Path) -> str:
    files = ", ".join(map(str, form.paths(folder))) or "scikit-learn"
    return f"{files} ({form.note})" if form.note else files


def _missing(source: Source, folder: Path) -> str:
    # Part of a form may be there: then name the file that is missing from that one.
    begun = [form for form in source.forms if any(p.exists() for p in form.paths(folder))]
    form = begun[0] if begun else source.forms[0]
    missing = next(path for path in form.paths(folder) if not path.exists())
    return (
        f"{missing} is missing: run `aisle data fetch {source.name}`, or set AISLE_DATA to the "
        f"folder that holds {source.name}/{missing.name}"
    )
