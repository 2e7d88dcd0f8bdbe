"""The named data sets: what they are, where they come from and how to know them again."""

import os
from pathlib import Path
from typing import NamedTuple

from aisle.errors import InputError


class DataFile(NamedTuple):
    """One file of a data set.

    Attributes:
        name: its name in the folder of the data set.
        checksum: of the file as it is published, as "algorithm:digest"; None if it has none.
        content: the same for what is inside a gzip file. It decides about a file that is already
            there: zipping the same content again changes the bytes of the container.
    """

    name: str
    checksum: str | None = None
    content: str | None = None


class Form(NamedTuple):
    """One of the forms that a data set comes in: all of its files are needed.

    Attributes:
        kind: the reader that understands it: "sklearn", "idx", "mat", "npz" or "archives".
        files: none, for data that come with a package.
        note: what a reader of results has to know about the form, if anything.
        mirrors: addresses of folders to fetch the files from, in the order to try; none for a
            form that is only used if found.
    """

    kind: str
    files: tuple[DataFile, ...]
    note: str = ""
    mirrors: tuple[str, ...] = ()

    def paths(self, folder: Path) -> list[Path]:
        """Return where the files are, or would be, in the folder of the data set."""
        return [folder / file.name for file in self.files]


class Source(NamedTuple):
    """A named data set of grey pictures.

    Attributes:
        num_train: examples to train on, those for validation included.
        num_valid: of these, the examples for validation; as in the IWAE study where it had some.
        forms: looked for, and fetched, in the order given.
    """

    name: str
    description: str
    num_train: int
    num_valid: int
    num_test: int
    shape: tuple[int, ...]
    licence: str
    forms: tuple[Form, ...]

    def form_in(self, folder: Path) -> Form | None:
        """Return the first form whose files are all in `folder`."""
        for form in self.forms:
            if all(path.is_file() for path in form.paths(folder)):
                return form
        return None


_RECONSTRUCTED = "reconstructed to the IWAE 28x28 split"

_MNIST_TRAIN = "md5:6bbc9ace898e44ae57da46a324031adb"
_MNIST_TEST = "md5:2646ac647ad5339dbf082846283269ea"

# Made from the raw archives of Omniglot on first use, because that takes many seconds.
OMNIGLOT_CACHE = "omniglot28_from_archives.npz"

_DIGITS = Source(
    name="digits",
    description="handwritten digits, small and at once at hand",
    num_train=1_500,
    num_valid=150,
    num_test=297,
    shape=(8, 8),
    licence="CC BY 4.0",
    forms=(Form("sklearn", ()),),
)

# Labels are no part of it: nothing here learns from them.
_MNIST = Source(
    name="mnist",
    description="handwritten digits",
    num_train=60_000,
    num_valid=5_000,
    num_test=10_000,
    shape=(28, 28),
    licence="CC BY-SA 3.0",
    forms=(
        Form(
            "idx",
            (
                DataFile(
                    "train-images-idx3-ubyte.gz",
                    "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
                    _MNIST_TRAIN,
                ),
                DataFile(
                    "t10k-images-idx3-ubyte.gz",
                    "md5:9fb629c4189551a2d022fa330f9573f3",
                    _MNIST_TEST,
                ),
            ),
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "https://storage.googleapis.com/cvdf-datasets/mnist",
            ),
        ),
        Form(
            "idx",
            (
                DataFile("train-images-idx3-ubyte", _MNIST_TRAIN),
                DataFile("t10k-images-idx3-ubyte", _MNIST_TEST),
            ),
        ),
    ),
)

# The file of the IWAE study first; what follows are reconstructions of it from the raw drawings.
_OMNIGLOT = Source(
    name="omniglot",
    description="handwritten characters of 50 alphabets, in the 28x28 split of the IWAE study",
    num_train=24_345,
    num_valid=1_345,
    num_test=8_070,
    shape=(28, 28),
    licence="MIT",
    forms=(
        Form(
            "mat",
            (DataFile("chardata.mat", "md5:21ecaf34373511aa7691cf2e0802aa3d"),),
            mirrors=(
                "https://github.com/yburda/iwae/raw/master/datasets/OMNIGLOT",
                "https://raw.githubusercontent.com/yburda/iwae/master/datasets/OMNIGLOT",
            ),
        ),
        Form(
            "npz",
            (
                DataFile(
                    "omniglot28.npz",
                    "sha256:d84951d5feadb2d00d22d71d46587b2ac22d01ace266dacbd6bb7c3721faff82",
                ),
            ),
            _RECONSTRUCTED,
        ),
        Form("npz", (DataFile(OMNIGLOT_CACHE),), _RECONSTRUCTED),
        Form(
            "archives",
            (
                DataFile("images_background.zip", "md5:68d2efa1b9178cc56df9314c21c6e718"),
                DataFile("images_evaluation.zip", "md5:6b91aef0f799c5bb55b94e3f2daec811"),
            ),
            _RECONSTRUCTED,
            mirrors=(
                "https://github.com/brendenlake/omniglot/raw/master/python",
                "https://raw.githubusercontent.com/brendenlake/omniglot/master/python",
            ),
        ),
    ),
)

SOURCES: dict[str, Source] = {source.name: source for source in (_DIGITS, _MNIST, _OMNIGLOT)}


def named(name: str) -> Source:
    """Return the data set called `name`."""
    if name not in SOURCES:
        raise InputError(
            f"data set is {name!r}: choose from {', '.join(SOURCES)}, or give a file of your "
            "own: a table, .npy or .npz"
        )
    return SOURCES[name]


def data_directory(data_dir: str | Path | None = None) -> Path:
    """Return `data_dir`, or else the folder that AISLE_DATA names, or else the user's cache."""
    chosen = data_dir or os.environ.get("AISLE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return pooch.os_cache("aisle")
