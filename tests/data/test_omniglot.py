import io
import math
import zipfile

import numpy as np
import pytest
from PIL import Image

from aisle.data.omniglot import part_of, read_archives, resize_matrix, shrink
from aisle.data.readers import read_npz
from aisle.data.sources import OMNIGLOT_CACHE, DataFile, Form, Source

FORM = Form("archives", (DataFile("images_background.zip"), DataFile("images_evaluation.zip")))


def expecting(num_train, num_test):
    return Source("omniglot", "", num_train, 0, num_test, (28, 28), "", (FORM,))


def png(ink, mode="1"):
    image = Image.fromarray(np.where(ink, 0, 255).astype(np.uint8)).convert(mode)
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def write_archive(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def drawing(seed, size=105):
    return np.random.default_rng(seed).random((size, size)) < 0.3


def kernel(x):
    x = abs(x)
    if x <= 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def resized_pixel(ink, row, column, size):
    """One pixel by the definition: a weighted mean over all positions, also beyond the border."""
    stretch = len(ink) / size
    total = weight = 0.0
    centre = [(i + 0.5) * stretch - 0.5 for i in (row, column)]
    reach = math.ceil(2 * stretch) + 2
    for i in range(math.floor(centre[0]) - reach, math.ceil(centre[0]) + reach + 1):
        for j in range(math.floor(centre[1]) - reach, math.ceil(centre[1]) + reach + 1):
            w = kernel((i - centre[0]) / stretch) * kernel((j - centre[1]) / stretch)
            total += w * ink[min(max(i, 0), len(ink) - 1)][min(max(j, 0), len(ink) - 1)]
            weight += w
    return round(255 * min(max(total / weight, 0.0), 1.0))


def test_resizing_agrees_with_a_direct_computation():
    ink = drawing(1)
    small = shrink(ink[None].astype(float), (28, 28))[0]
    pixels = [(0, 0), (0, 27), (27, 0), (27, 27), (0, 13), (1, 1), (5, 22), (14, 14), (26, 3)]
    for row, column in pixels:
        assert small[row, column] == resized_pixel(ink.tolist(), row, column, 28)


def test_resizing_keeps_the_total_weight():
    matrix = resize_matrix(105, 28)
    assert matrix.shape == (28, 105)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-14)


# The kernel is symmetric about the centre of a new pixel if a new pixel is a whole number of old
# ones, and then keeps a ramp exactly; a stretch of 3.75 moves it by thousandths of a pixel.
@pytest.mark.parametrize(("size", "tolerance"), [(56, 1e-12), (112, 1e-12), (105, 0.005)])
def test_resizing_keeps_a_ramp_away_from_the_borders(size, tolerance):
    small = resize_matrix(size, 28) @ np.arange(float(size))
    centres = (np.arange(28) + 0.5) * size / 28 - 0.5
    np.testing.assert_allclose(small[2:-2], centres[2:-2], rtol=0, atol=tolerance)


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_a_flat_picture_stays_flat(value):
    assert (shrink(np.full((2, 105, 105), value), (28, 28)) == round(255 * value)).all()


def test_resizing_does_not_turn_pictures():
    ink = np.zeros((1, 105, 105))
    ink[0, :20, 60:] = 1
    small = shrink(ink, (28, 28))[0] > 127
    assert small[:5, 17:].all()
    assert not small[7:].any()
    assert not small[:, :15].any()


def test_the_split_has_the_counts_of_the_study():
    characters = ["Glagolitic"] * 45 + ["Other"] * (1623 - 45)
    parts = [part_of(script, drawer) for script in characters for drawer in range(1, 21)]
    assert parts.count("train") == 24_345
    assert parts.count("test") == 8_070
    assert parts.count(None) == 45


def test_glagolitic_lacks_its_twelfth_drawer():
    parts = {drawer: part_of("Glagolitic", drawer) for drawer in range(1, 21)}
    assert [drawer for drawer, part in parts.items() if part is None] == [12]
    assert [drawer for drawer, part in parts.items() if part == "test"] == [17, 18, 19, 20]


@pytest.fixture
def archives(tmp_path):
    """Two alphabets: one character each by drawers 14 to 17; and things that are no drawings."""
    inks = {
        (alphabet, drawer): drawing(1000 * index + drawer)
        for index, alphabet in enumerate(("Latin", "Anglo-Saxon_Futhorc"))
        for drawer in (14, 15, 16, 17)
    }
    for name, alphabet in (("background", "Latin"), ("evaluation", "Anglo-Saxon_Futhorc")):
        top = f"images_{name}"
        members = {
            f"{top}/{alphabet}/character03/0709_{drawer:02}.png": png(inks[alphabet, drawer])
            for drawer in (17, 15, 14, 16)
        }
        extra = {f"{top}/": b"", f"__MACOSX/{top}/{alphabet}/character03/._0709_01.png": b"x"}
        write_archive(tmp_path / f"{top}.zip", members | extra)
    return tmp_path, inks


def test_archives_are_read_resized_split_and_sorted_by_script(archives):
    folder, inks = archives
    train, test = read_archives(folder, FORM, expecting(4, 4))
    for found, drawers in ((train, (14, 15)), (test, (16, 17))):
        order = [(alphabet, d) for alphabet in ("Anglo-Saxon_Futhorc", "Latin") for d in drawers]
        ink = np.stack([inks[key] for key in order]).astype(float)
        np.testing.assert_array_equal(found, shrink(ink, (28, 28)))


def test_the_result_is_kept_next_to_the_archives(archives):
    folder, _ = archives
    train, test = read_archives(folder, FORM, expecting(4, 4))
    kept = read_npz(folder, Form("npz", (DataFile(OMNIGLOT_CACHE),)), expecting(4, 4))
    np.testing.assert_array_equal(kept[0], train)
    np.testing.assert_array_equal(kept[1], test)
    assert len(list(folder.iterdir())) == 3


def test_a_folder_that_cannot_be_written_is_no_obstacle(archives, monkeypatch):
    def fail(*_args, **_arrays):
        raise OSError(30, "Read-only file system")

    folder, _ = archives
    monkeypatch.setattr(np, "savez_compressed", fail)
    train, _ = read_archives(folder, FORM, expecting(4, 4))
    assert len(train) == 4
    assert len(list(folder.iterdir())) == 2


def test_drawings_in_grey_are_read_like_those_in_black_and_white(archives):
    folder, inks = archives
    before, _ = read_archives(folder, FORM, expecting(4, 4))
    members = {
        f"images_background/Latin/character03/0709_{drawer:02}.png": png(inks["Latin", drawer], "L")
        for drawer in (14, 15, 16, 17)
    }
    write_archive(folder / "images_background.zip", members)
    after, _ = read_archives(folder, FORM, expecting(4, 4))
    np.testing.assert_array_equal(before, after)


def test_archives_that_lack_drawings_are_refused_and_nothing_is_kept(archives, refused):
    folder, _ = archives
    with refused("images_*.zip", "(5, 28, 28)", "(4, 28, 28)", "aisle data fetch omniglot"):
        read_archives(folder, FORM, expecting(5, 4))
    assert not (folder / OMNIGLOT_CACHE).exists()


@pytest.mark.parametrize("cut", [100, 5000])
def test_a_truncated_archive_is_refused(archives, refused, cut):
    folder, _ = archives
    path = folder / "images_evaluation.zip"
    path.write_bytes(path.read_bytes()[:-cut])
    with refused(path, "cut short", "delete it and run `aisle data fetch omniglot`"):
        read_archives(folder, FORM, expecting(4, 4))


@pytest.mark.parametrize(
    ("content", "words"), [(b"not a png", "not a picture"), (png(drawing(0, 28)), "(28, 28)")]
)
def test_a_member_that_is_no_drawing_is_refused(archives, refused, content, words):
    folder, _ = archives
    member = "images_background/Latin/character03/0709_14.png"
    write_archive(folder / "images_background.zip", {member: content})
    with refused(folder / "images_background.zip", member, words, "delete it"):
        read_archives(folder, FORM, expecting(3, 2))
