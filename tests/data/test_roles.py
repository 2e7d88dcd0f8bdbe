"""Tables whose columns are not all modelled: conditions, exposures, weights, and .h5ad files."""

import h5py
import numpy as np
import pandas
import pytest
import scipy.sparse

from aisle import Column, InputError, read_table
from aisle.data import load

CELLS = {
    "sex": ["f", "m", "f", "m"],
    "age": [30, 41, 25, 60],
    "seconds": [10.0, 20.0, 5.0, 10.0],
    "a": [1, 0, 4, 2],
    "b": [3, 2, 0, 1],
    "often": [1, 0, 2, 1],
}
ROLES = {"condition": ["sex", "age"], "exposure": "seconds", "weights": "often"}


def changed(**columns):
    return CELLS | columns


def test_columns_with_other_roles_are_not_modelled():
    table = read_table(CELLS, **ROLES)
    assert [column.name for column in table.columns] == ["a", "b"]
    assert table.conditions == (Column("sex", "bit", ("f", "m")), Column("age", "count"))
    np.testing.assert_array_equal(table.context.condition, [[0, 30], [1, 41], [0, 25], [1, 60]])
    np.testing.assert_array_equal(table.context.exposure, CELLS["seconds"])
    np.testing.assert_array_equal(table.weights, CELLS["often"])
    assert table.summary_of_conditions()[0] == ("sex", "bit", "2 levels: f, m", "none")


def test_without_roles_there_is_nothing_beside():
    table = read_table(CELLS)
    assert (table.conditions, table.context, table.weights) == ((), None, None)
    assert len(table.columns) == 6


def test_totals_are_of_the_counts_that_are_modelled():
    table = read_table(CELLS, {"seconds": "real"}, condition=["age"], exposure="total")
    np.testing.assert_array_equal(table.context.exposure, [5, 2, 6, 4])
    # A column of that name is meant where there is one.
    named = read_table(changed(total=[7, 8, 9, 10]), exposure="total")
    np.testing.assert_array_equal(named.context.exposure, [7, 8, 9, 10])
    assert "total" not in [column.name for column in named.columns]


def test_kinds_of_conditions_can_be_set_and_are_those_of_another_table():
    first = read_table(CELLS, {"age": "category"}, condition=["age"])
    assert first.conditions == (Column("age", "category", ("25", "30", "41", "60")),)
    other = read_table(changed(age=[60, 60, 25, 41]), first.columns, condition=first.conditions)
    assert other.context.condition[:, 0].tolist() == [3, 3, 0, 2]
    with pytest.raises(InputError, match="row 1, column 'age' has '33': it must be one of 25, 30"):
        read_table(changed(age=[60, 33, 25, 41]), first.columns, condition=first.conditions)


@pytest.mark.parametrize(
    ("cells", "roles", "message"),
    [
        ({}, {"condition": ["sexx"]}, "^condition is 'sexx', but .*; did you mean 'sex'"),
        ({}, {"weights": "wheels"}, "^weights is 'wheels', but the table has no such column: it"),
        ({"sex": ["f", None, "f", "m"]}, ROLES, "row 1, column 'sex' has no value, but as cond"),
        ({"seconds": [1, 2, 0, 1]}, ROLES, "row 2, column 'seconds' has '0': exposures are above"),
        ({"often": [1, -2, 0, 1]}, ROLES, "row 1, column 'often' has '-2': weights are numbers"),
        ({"often": [1, "x", 0, 1]}, ROLES, "row 1, column 'often' has 'x': weights are numbers"),
        ({"a": [0] * 4, "b": [0, 1, 2, 3]}, {**ROLES, "exposure": "total"}, "row 0 has no counts"),
        ({"a": [1, None, 2, 3]}, {**ROLES, "exposure": "total"}, "row 1 misses some counts"),
    ],
)
def test_roles_that_do_not_fit(cells, roles, message):
    with pytest.raises(InputError, match=message):
        read_table(changed(**cells), {"seconds": "ignore"}, **roles)


def test_the_parts_of_a_table_keep_what_stands_beside_their_rows(tmp_path):
    rows = 40
    frame = pandas.DataFrame({name: np.resize(values, rows) for name, values in CELLS.items()})
    frame["age"] = np.arange(rows) + 20
    frame.to_csv(tmp_path / "t.csv", index=False)
    dataset = load(tmp_path / "t.csv", **ROLES)
    for split in dataset.splits.values():
        ages = split.context_of(np.arange(len(split))).condition[:, 1]
        np.testing.assert_array_equal(ages, 20 + split.rows)
    np.testing.assert_array_equal(dataset.train.weights, np.resize(CELLS["often"], rows))
    with pytest.raises(InputError, match="condition is given but digits is no table"):
        load("digits", condition=["sex"])


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("count", [1.5, 2.0], "row 0, column 'x' has '1.5': a count is of whole numbers from 0"),
        ("share", [0.5, 2.0], "row 1, column 'x' has '2': a share is of numbers between 0 and 1"),
        ("bit", ["a", "b", "c"], "row 2, column 'x' has 'c': a bit must be of two levels"),
        ("bit", list("abcdefghijk"), "and there are a, b, c, d, e, f, g, h and 3 more;"),
    ],
)
def test_values_that_a_kind_cannot_have(kind, values, message):
    with pytest.raises(InputError, match=message):
        read_table({"x": values}, {"x": kind})


def test_lines_are_those_of_the_file(tmp_path):
    """Empty lines, and cells with a line break, count."""
    path = tmp_path / "t.csv"
    path.write_text('a,b\n\n1,"x\ny"\n2,z\n3\n')
    with pytest.raises(InputError, match="line 6 has 1 fields"):
        read_table(path)
    path.write_text("a;b\n1;2\n")
    with pytest.raises(InputError, match="line 1 has no comma, but 'a;b'"):
        read_table(path)


def test_frames_of_polars_are_tables():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "real": [1.5, None, 2.5, float("nan")],
            "count": [1, 2, None, 4],
            "text": ["x", None, "y", "z"],
            "bool": [True, False, None, True],
            "level": polars.Series(["u", "v", "u", None], dtype=polars.Categorical),
        }
    )
    table = read_table(frame)
    assert [c.kind for c in table.columns] == ["real", "count", "category", "bit", "bit"]
    nan = np.nan
    wanted = [[1.5, 1, 0, 1, 0], [nan, 2, nan, 0, 1], [2.5, nan, 1, nan, 0], [nan, 4, 2, 1, nan]]
    np.testing.assert_array_equal(table.values, wanted)


COUNTS = np.array([[0, 1, 0], [2, 0, 1], [0, 5, 0], [1, 1, 0]])


def write_h5ad(path, store):
    """Write what anndata 0.8 and later do, of four cells and three genes."""

    def element(place, name, kind, values=None, **attributes):
        made = (
            place.create_group(name) if values is None else place.create_dataset(name, data=values)
        )
        made.attrs.update({"encoding-type": kind, **attributes})
        return made

    texts = h5py.string_dtype()
    with h5py.File(path, "w") as file:
        store(file, element)
        var = element(file, "var", "dataframe", _index="gene", **{"column-order": np.zeros(0)})
        element(var, "gene", "string-array", np.array(["Gad1", "Sst", "Vip"], texts))
        columns = np.array(["type", "area", "n"], object)
        obs = element(file, "obs", "dataframe", _index="_index", **{"column-order": columns})
        element(obs, "_index", "string-array", np.array(list("abcd"), texts))
        kinds = element(obs, "type", "categorical", ordered=False)
        element(kinds, "codes", "array", np.array([1, 0, -1, 1], np.int8))
        element(kinds, "categories", "string-array", np.array(["glia", "neuron"], texts))
        element(obs, "area", "array", np.array([1.5, 2.0, 0.5, 1.0]))
        numbers = element(obs, "n", "nullable-integer")
        element(numbers, "values", "array", np.array([3, 4, 5, 6]))
        element(numbers, "mask", "array", np.array([False, True, False, False]))


def dense(file, element):
    element(file, "X", "array", COUNTS.astype(np.float32))


def sparse(file, element, kind="csr_matrix"):
    matrix = getattr(scipy.sparse, kind)(COUNTS)
    group = element(file, "X", kind, shape=matrix.shape)
    for name in ("data", "indices", "indptr"):
        group.create_dataset(name, data=getattr(matrix, name))


def by_columns(file, element):
    sparse(file, element, "csc_matrix")


@pytest.mark.parametrize("store", [dense, sparse, by_columns])
def test_cells_by_genes_with_labels_of_the_cells(tmp_path, store):
    path = tmp_path / "cells.h5ad"
    write_h5ad(path, store)
    table = read_table(path, exposure="total")
    # All are counts, though of the last gene none is above 1.
    assert table.columns == tuple(Column(name, "count") for name in ("Gad1", "Sst", "Vip"))
    np.testing.assert_array_equal(table.values, COUNTS)
    np.testing.assert_array_equal(table.context.exposure, COUNTS.sum(axis=1))
    beside = read_table(path, condition=["area"], weights="area")
    np.testing.assert_array_equal(beside.context.condition[:, 0], [1.5, 2.0, 0.5, 1.0])
    for label in ("type", "n"):
        with pytest.raises(InputError, match=f"column '{label}' has no value"):
            read_table(path, condition=[label])


def test_h5ad_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "cells.h5ad"
    path.write_bytes(b"no such file")
    with pytest.raises(InputError, match=r"cannot be read as \.h5ad"):
        read_table(path)
    write_h5ad(path, lambda file, element: None)
    with pytest.raises(InputError, match=r"cannot be read as \.h5ad"):
        read_table(path)
    write_h5ad(path, lambda file, element: element(file, "X", "array", COUNTS[:, :2]))
    with pytest.raises(InputError, match="X of shape \\(4, 2\\) for 3 genes"):
        read_table(path)
