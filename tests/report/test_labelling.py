"""The data that a model is shown with: held-out rows, their labels, the table that they are of."""

import gzip

import numpy as np
import pytest
from sklearn.datasets import load_digits

from aisle.data import load
from aisle.data.labels import known_labels
from aisle.errors import InputError
from aisle.report.labelling import with_data
from pages import weights

HEADER = "height,sex,site,remark,dose\n"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Forty rows, whose column `remark` is left out of the model."""
    path = tmp_path_factory.mktemp("tables") / "people.csv"
    rows = [f"{i + 0.5},{'fm'[i % 2]},{'abc'[i % 3]},{'xyz'[i // 14]},{i % 5}\n" for i in range(40)]
    path.write_text(HEADER + "".join(rows))
    return load(path, columns={"remark": "ignore"})


def labelled(dataset, label=None):
    return with_data(weights((4,))._replace(examples=None), dataset, label)


def test_examples_are_the_rows_that_were_not_trained_on(dataset):
    found = labelled(dataset)
    held_out = np.sort(np.concatenate([dataset.valid.rows, dataset.test.rows]))
    assert len(held_out) == 7
    np.testing.assert_array_equal(found.examples, dataset.table.values[held_out].astype(np.float32))
    assert found.table is dataset.table and found.context is None
    # The first category, for the same rows.
    assert found.labels.name == "site"
    np.testing.assert_array_equal(found.labels.codes, held_out % 3)


def test_a_label_may_be_any_column_of_the_file(dataset):
    held_out = np.sort(np.concatenate([dataset.valid.rows, dataset.test.rows]))
    sex, remark = labelled(dataset, "sex").labels, labelled(dataset, "remark").labels
    assert (sex.levels, remark.levels) == (("f", "m"), ("x", "y", "z"))
    np.testing.assert_array_equal(sex.codes, held_out % 2)
    np.testing.assert_array_equal(remark.codes, held_out // 14)
    assert len(labelled(dataset, "height").labels.levels) == 3


def test_conditions_label_before_columns(dataset):
    given = load(dataset.source, columns={"remark": "ignore"}, condition=["dose", "sex"])
    found = labelled(given)
    assert found.labels.name == "sex" and found.table.columns[1].name == "site"
    rows = np.sort(np.concatenate([given.valid.rows, given.test.rows]))
    np.testing.assert_array_equal(found.labels.codes, rows % 2)
    np.testing.assert_array_equal(found.context.condition, np.stack([rows % 5, rows % 2], axis=1))
    assert labelled(given, "dose").labels.codes[0] in (0, 1, 2)
    only = load(
        dataset.source,
        columns=dict.fromkeys(("site", "sex", "remark"), "ignore"),
        condition=["dose"],
    )
    assert labelled(only).labels.name == "dose"


def test_a_label_that_is_not_there(dataset):
    with pytest.raises(
        InputError, match=r"label is 'sexe', but .* no such column; did you mean 'sex'"
    ):
        labelled(dataset, "sexe")
    with pytest.raises(InputError, match=r"label is 'x', but .* is no table: leave it out"):
        with_data(weights(), load("digits"), "x")


def test_digits_have_their_labels(tmp_path):
    """Each test picture is found again among scikit-learn's, with the same digit."""
    digits, labels = load("digits"), known_labels("digits")
    pictures, wanted = load_digits(return_X_y=True)
    places = {
        np.rint(x * (255 / 16)).astype(np.uint8).tobytes(): y
        for x, y in zip(pictures, wanted, strict=True)
    }
    assert [places[x.tobytes()] for x in digits.test.arrays] == labels.tolist()
    found = with_data(weights((8, 8)), digits).labels
    assert found.levels[found.codes[0]] == str(labels[0]) and len(found.codes) == 297
    # A file of that name is another matter.
    path = tmp_path / "digits.npy"
    np.save(path, np.zeros((3000, 8, 8), np.float32))
    assert with_data(weights((8, 8)), load(path)).labels is None


def test_labels_of_mnist_are_used_where_they_lie_beside_it(tmp_path):
    assert known_labels("mnist", tmp_path) is None and known_labels("omniglot", tmp_path) is None
    digits = np.arange(10_000) % 10
    content = bytes([0, 0, 8, 1, 0, 0, 0x27, 0x10]) + digits.astype(np.uint8).tobytes()
    (tmp_path / "mnist").mkdir()
    plain, zipped = (tmp_path / "mnist" / f"t10k-labels-idx1-ubyte{end}" for end in ("", ".gz"))
    plain.write_bytes(content)
    np.testing.assert_array_equal(known_labels("mnist", tmp_path), digits)
    zipped.write_bytes(gzip.compress(content))
    np.testing.assert_array_equal(known_labels("mnist", tmp_path), digits)
    for damaged in (b"nonsense", gzip.compress(content)[:-20], gzip.compress(content[:-1])):
        zipped.write_bytes(damaged)
        assert known_labels("mnist", tmp_path) is None
