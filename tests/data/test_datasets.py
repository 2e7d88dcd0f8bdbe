import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aisle.data import Split, View, describe, fetch, load
from aisle.data.datasets import READERS
from aisle.data.sources import OMNIGLOT_CACHE, SOURCES


def test_every_form_of_every_data_set_has_a_reader():
    kinds = {form.kind for source in SOURCES.values() for form in source.forms}
    assert kinds == set(READERS)


def test_every_file_that_can_be_fetched_has_a_hash_and_more_than_one_mirror():
    forms = [form for source in SOURCES.values() for form in source.forms if form.mirrors]
    assert forms
    for form in forms:
        assert all(file.checksum for file in form.files)
        assert len(set(form.mirrors)) > 1
        assert all(mirror.startswith("https://") for mirror in form.mirrors)


def test_digits_load_without_any_file(tmp_path):
    data = load("digits", tmp_path)
    sizes = [len(part) for part in (data.train, data.valid, data.test)]
    assert (sizes, data.shape) == ([1350, 150, 297], (8, 8))
    assert data.train.take(np.array([0, 1])).shape == (2, 8, 8)
    assert data.train.observe([0, 1]).shape == (2, 64)
    assert (data.name, data.source) == ("digits", "scikit-learn")
    assert not list(tmp_path.iterdir())


def test_a_named_data_set_is_found_in_the_folder_of_the_environment(tiny, tmp_path, monkeypatch):
    folder = tiny.write(tmp_path)
    monkeypatch.setenv("AISLE_DATA", str(tmp_path))
    data = load("mnist")
    np.testing.assert_array_equal(data.train.arrays, tiny.train)
    np.testing.assert_array_equal(data.test.arrays, tiny.test)
    assert sorted([*data.train.rows, *data.valid.rows]) == list(range(6))
    assert len(data.valid) == 2
    assert data.source == f"{folder / 'train.idx.gz'}, {folder / 'test.idx.gz'}"


def test_unzipped_files_serve_as_well(tiny, tmp_path):
    tiny.write(tmp_path, tiny.raw)
    assert load("mnist", str(tmp_path)).source.endswith("test.idx")


def test_an_unknown_name_is_refused_with_the_names_and_how_to_give_a_file(refused):
    with refused("'mnits'", "digits, mnist, omniglot", ".npy or .npz"):
        load("mnits")


def test_a_reconstruction_is_called_one(tmp_path, monkeypatch):
    source = SOURCES["omniglot"]._replace(num_train=2, num_valid=1, num_test=1)
    monkeypatch.setitem(SOURCES, "omniglot", source)
    path = tmp_path / "omniglot" / OMNIGLOT_CACHE
    path.parent.mkdir()
    np.savez(path, train=np.zeros((2, 28, 28), np.uint8), test=np.zeros((1, 28, 28), np.uint8))
    expected = f"{path} (reconstructed to the IWAE 28x28 split)"
    assert load("omniglot", tmp_path).source == describe(tmp_path)[-1][1] == expected
    assert not source.forms[0].note


@pytest.mark.parametrize("name", ["mnist", "omniglot"])
def test_a_missing_data_set_is_refused_with_the_two_ways_out(tmp_path, refused, name):
    first = SOURCES[name].forms[0].files[0].name
    with refused(tmp_path / name / first, f"aisle data fetch {name}", "AISLE_DATA"):
        load(name, tmp_path)


def test_the_file_that_is_missing_from_a_pair_is_named(tmp_path, refused):
    (tmp_path / "omniglot").mkdir()
    (tmp_path / "omniglot" / "images_background.zip").write_bytes(b"")
    with refused(tmp_path / "omniglot" / "images_evaluation.zip", "is missing"):
        load("omniglot", tmp_path)


def test_the_file_of_the_study_goes_before_the_reconstructions(tmp_path, refused):
    (tmp_path / "omniglot").mkdir()
    for form in reversed(SOURCES["omniglot"].forms):
        for file in form.files:
            (tmp_path / "omniglot" / file.name).write_bytes(b"damaged")
        with refused(form.files[0].name, "aisle data fetch omniglot"):
            load("omniglot", tmp_path)


def test_the_list_says_what_is_there_and_how_to_get_the_rest(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    (_, digits), (_, mnist), (omniglot, found) = describe(tmp_path)
    assert digits == "comes with scikit-learn, nothing to fetch"
    assert mnist == f"{folder / 'train.idx.gz'}, {folder / 'test.idx.gz'}"
    assert found == "not fetched (aisle data fetch omniglot)"
    assert (omniglot.num_train, omniglot.num_test, omniglot.shape) == (24_345, 8_070, (28, 28))
    assert omniglot.licence == "MIT"


def test_pictures_of_named_sets_are_grey_and_drawn_anew_unless_asked_otherwise(tiny, tmp_path):
    tiny.write(tmp_path)
    usual = View(is_grey=True, binarize="dynamic", is_flat=True)
    assert load("mnist", tmp_path).train.view == usual
    data = load("mnist", tmp_path, view=View())
    assert data.train.view == data.valid.view == data.test.view == View()


def test_importing_starts_no_heavy_package():
    code = (
        "import sys, aisle.data; print({'sklearn', 'PIL', 'rich', 'requests'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


REAL = Path(os.environ.get("AISLE_DATA") or "no folder")


@pytest.mark.parametrize(("name", "mean"), [("mnist", 0.13066), ("omniglot", 0.08301)])
def test_the_real_data_are_what_they_should_be(name, mean):
    if not (REAL / name).is_dir():
        pytest.skip(f"set AISLE_DATA to a folder with {name}/ to check the real data")
    data = load(name, REAL)
    source = SOURCES[name]
    sizes = [len(part) for part in (data.train, data.valid, data.test)]
    expected = [source.num_train - source.num_valid, source.num_valid, source.num_test]
    assert sizes == expected
    assert Split(data.train.arrays, None, data.train.view).mean().mean() == pytest.approx(
        mean, abs=1e-5
    )
    assert data.source.startswith(", ".join(str(path) for path in fetch(name, REAL)))
