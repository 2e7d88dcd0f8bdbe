"""Omniglot as the IWAE study used it, made from the raw archives of 105x105 drawings.

The study shrank every drawing to 28x28 with MATLAB's antialiased bicubic resizing and split the
drawings by drawer. Doing the same gives its counts, 24,345 and 8,070, and its pictures to within
a few grey levels of 255.
"""

import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aisle.data.readers import DAMAGE, Arrays, checked, damaged, read_verified
from aisle.data.sources import OMNIGLOT_CACHE, DataFile, Form, Source
from aisle.files import replacing

RAW_SIZE = 105

_MEMBER = re.compile(r"images_[a-z]+/([^/]+)/character(\d+)/\d+_(\d+)\.png")

# Alphabets are sorted by the name of the script, which does not always come first in their names.
_SCRIPTS = {
    "Alphabet_of_the_Magi": "Magi",
    "Anglo-Saxon_Futhorc": "Futhorc",
    "Burmese_(Myanmar)": "Myanmar",
    "Japanese_(hiragana)": "Hiragana",
    "Japanese_(katakana)": "Katakana",
    "Malay_(Jawi_-_Arabic)": "Jawi",
    "Syriac_(Estrangelo)": "Estrangelo",
    "Syriac_(Serto)": "Serto",
}


class Drawing(NamedTuple):
    """One member of an archive; drawings compare in the order of the data set."""

    script: str
    character: int
    drawer: int
    member: str
    path: Path
    archive: zipfile.ZipFile


def part_of(script: str, drawer: int) -> str | None:
    """Return "train", "test" or None (left out), for what a drawer drew of a script.

    There are 20 drawers of each script, of which 15 are for training. The study has one fewer of
    Glagolitic: the twelfth drawer is missing, and the next one takes that place.
    """
    if script == "Glagolitic":
        if drawer == 12:
            return None
        return "train" if drawer <= 16 else "test"
    return "train" if drawer <= 15 else "test"


def resize_matrix(size: int, new_size: int) -> np.ndarray:
    """Return B of shape (new_size, size), whose product with a signal shrinks it.

    With s = new_size / size, row i holds the cubic kernel stretched by 1/s around the centre of
    the new pixel, B_ij ~ k(s (c_i - j)) with c_i = (i + 1/2) / s - 1/2, and sums to 1. What falls
    beyond the border counts for the pixel on the border.
    """
    scale = new_size / size
    centres = (np.arange(new_size) + 0.5) / scale - 0.5
    reach = int(np.ceil(2 / scale)) + 1
    taps = np.floor(centres).astype(int)[:, None] + np.arange(-reach, reach + 1)
    weights = _cubic(scale * (centres[:, None] - taps))
    matrix = np.zeros((new_size, size))
    np.add.at(matrix, (np.arange(new_size)[:, None], taps.clip(0, size - 1)), weights)
    return matrix / weights.sum(axis=1, keepdims=True)


def shrink(ink: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Resize pictures (N, height, width) of values in [0, 1] to `shape`, as uint8 of 0 to 255."""
    height, width = shape
    down = resize_matrix(ink.shape[1], height)
    across = resize_matrix(ink.shape[2], width)
    # The kernel has negative lobes, so that sharp edges overshoot.
    return np.rint(255 * np.clip(down @ ink @ across.T, 0, 1)).astype(np.uint8)


def read_archives(folder: Path, form: Form, source: Source) -> Arrays:
    """Read, resize and split the raw archives, and keep the result next to them."""
    drawings = sorted(each for file in form.files for each in _drawings(folder, file, source))
    train, test = (_pictures(drawings, part, source) for part in ("train", "test"))
    checked(train, test, folder / "images_*.zip", source)
    # A folder that cannot be written only costs the time to do this again.
    with suppress(OSError), replacing(folder / OMNIGLOT_CACHE) as part, part.open("wb") as cache:
        np.savez_compressed(cache, train=train, test=test)
    return train, test


def _drawings(folder: Path, file: DataFile, source: Source) -> Iterator[Drawing]:
    path = folder / file.name
    content = read_verified(path, file, source)
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except DAMAGE:
        raise damaged(path, source, "it is cut short, or not a zip archive") from None
    for member in archive.namelist():
        if match := _MEMBER.fullmatch(member):
            alphabet, character, drawer = match.groups()
            script = _SCRIPTS.get(alphabet, alphabet)
            yield Drawing(script, int(character), int(drawer), member, path, archive)


def _pictures(drawings: list[Drawing], part: str, source: Source) -> np.ndarray:
    members = [drawing for drawing in drawings if part_of(drawing.script, drawing.drawer) == part]
    pictures = np.empty((len(members), *source.shape), np.uint8)
    # In batches: as doubles, all drawings at their full size would take gigabytes.
    for start in range(0, len(members), 256):
        batch = members[start : start + 256]
        ink = np.stack([_ink(drawing, source) for drawing in batch])
        pictures[start : start + len(batch)] = shrink(ink, source.shape)
    return pictures


def _ink(drawing: Drawing, source: Source) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(drawing.archive.read(drawing.member))) as image:
            grey = np.asarray(image.convert("L"))
    except DAMAGE:
        raise damaged(drawing.path, source, f"{drawing.member} in it is not a picture") from None
    if grey.shape != (RAW_SIZE, RAW_SIZE):
        raise damaged(drawing.path, source, f"{drawing.member} in it has the shape {grey.shape}")
    return (grey < 128).astype(np.float64)


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys' cubic convolution kernel with a = -1/2, which is 0 beyond 2."""
    x = np.abs(x)
    inner = (1.5 * x - 2.5) * x**2 + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))
