"""Tables: what columns are taken for, and mistakes by line and column."""

import json

import numpy as np
import pandas
import pytest

from aisle import Column, InputError, read_table
from aisle.data import load
from aisle.data.tables import parse_kinds

TEXT = """age,visits,sex,region,dose,well
31.5,3,f,north,1e3,1
45,0,m,south,2e3,0
,2,f,west,?,1
28,NA,m,north,1500,1
"""


def write(folder, text, name="table.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_kinds_are_inferred_and_missing_values_are_nan(tmp_path):
    table = read_table(write(tmp_path, TEXT))
    assert table.columns == (
        Column("age", "real"),
        Column("visits", "count"),
        Column("sex", "bit", ("f", "m")),
        Column("region", "category", ("north", "south", "west")),
        Column("dose", "count"),
        Column("well", "bit"),
    )
    wanted = [
        [31.5, 3, 0, 0, 1000, 1],
        [45, 0, 1, 1, 2000, 0],
        [np.nan, 2, 0, 2, np.nan, 1],
        [28, np.nan, 1, 0, 1500, 1],
    ]
    np.testing.assert_array_equal(table.values, wanted)
    assert table.remarks == ()


def test_kinds_can_be_set_and_columns_left_out(tmp_path):
    table = read_table(write(tmp_path, TEXT), {"dose": "real", "visits": "ignore"})
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds["dose"] == "real" and "visits" not in kinds
    assert table.values.shape == (4, 5)


@pytest.mark.parametrize("name", ["table.tsv", "TABLE.TSV"])
def test_tabs_bytes_at_the_start_and_quoted_commas(tmp_path, name):
    path = tmp_path / name
    path.write_bytes('\ufeffname\tsize\n"a, b"\t1.5\nc\t2\n"a, b"\t3\n'.encode())
    table = read_table(path)
    assert table.columns[0] == Column("name", "bit", ("a, b", "c"))
    assert table.columns[1] == Column("size", "real")


class Frame(dict):
    """As much of a DataFrame as is needed."""

    @property
    def columns(self):
        return list(self)


class Series(list):
    def to_list(self):
        return list(self)


def test_frames_and_dictionaries_are_tables():
    cells = {"a": [1.5, None, 2.5, float("nan")], "b": ["x", "y", "x", "x"]}
    for source in (cells, Frame({name: Series(values) for name, values in cells.items()})):
        table = read_table(source)
        np.testing.assert_array_equal(table.values, [[1.5, 0], [np.nan, 1], [2.5, 0], [np.nan, 0]])


def test_frames_of_pandas_and_parquet_files_are_tables(tmp_path):
    frame = pandas.DataFrame(
        {
            "a": [1.5, None, 2.5],
            "b": pandas.Series([3, pandas.NA, 4], dtype="Int64"),
            "c": pandas.Categorical(["x", "y", None]),
            "d": [True, False, True],
        }
    )
    wanted = [[1.5, 3, 0, 1], [np.nan, np.nan, 1, 0], [2.5, 4, np.nan, 1]]
    frame.to_parquet(tmp_path / "table.parquet")
    for source in (frame, tmp_path / "table.parquet"):
        table = read_table(source)
        assert [column.kind for column in table.columns] == ["real", "count", "bit", "bit"]
        np.testing.assert_array_equal(table.values, wanted)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_table(tmp_path / "broken.parquet")


def test_the_columns_of_another_table_give_the_same_codes(tmp_path):
    columns = read_table(write(tmp_path, TEXT)).columns
    other = "region,dose,well,sex,visits,age\nwest,1,0,m,1,20\nwest,2,1,m,2,30\n"
    table = read_table(write(tmp_path, other, "other.csv"), columns)
    np.testing.assert_array_equal(table.values, [[20, 1, 1, 2, 1, 0], [30, 2, 1, 2, 2, 1]])
    changed = other.replace("west,1", "east,1")
    with pytest.raises(InputError, match="line 2, column 'region' has 'east': it must be one of n"):
        read_table(write(tmp_path, changed, "changed.csv"), columns)


def test_constant_columns_and_ids_are_noticed_and_left_out(tmp_path):
    rows = "\n".join(f"p{i},{i + 1},7,{i * 0.5}" for i in range(100))
    table = read_table(write(tmp_path, f"who,row,same,size\n{rows}\n"))
    assert [column.name for column in table.columns] == ["size"]
    assert [remark.split(" has ")[0].split(" counts ")[0] for remark in table.remarks] == [
        "column 'who'",
        "column 'row'",
        "column 'same'",
    ]
    # Whoever names them has them.
    assert (
        len(read_table(write(tmp_path, f"who,row,same,size\n{rows}\n"), {"row": "count"})[1]) == 2
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "line 3 has 1 fields but the header has 2"),
        ("a,b\n", "has no rows below its header"),
        ("a,a\n1,2\n", "line 1 names column 'a' twice"),
        ("1,2\n3,4\n", "line 1 has numbers only, 1, 2"),
        ("a\n" + "1\n" * 20 + "12;5\n", "line 22, column 'a' has '12;5', which is no number"),
        ("a,b\n,1\n,2\n", "has no value in column 'a'"),
        ("a,b\n1,1\n1,1\n", "has no column to learn from"),
    ],
)
def test_a_table_that_cannot_be_read_costs_one_line(tmp_path, text, message):
    with pytest.raises(InputError) as caught:
        read_table(write(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_and_kinds_that_are_wrong(tmp_path, as_users_have_it):
    path = write(tmp_path, TEXT)
    with pytest.raises(
        InputError, match=r"is 'ages', but .* has no such column; did you mean 'age'"
    ):
        read_table(path, {"ages": "real"})
    with pytest.raises(InputError, match="is 'integer' for column 'age'"):
        read_table(path, {"age": "integer"})
    with pytest.raises(InputError, match="line 2, column 'region' has 'north', which is no number"):
        read_table(path, {"region": "real"})
    with pytest.raises(InputError, match="is a float"):
        read_table(1.5)
    with pytest.raises(InputError, match="is not a file"):
        read_table(tmp_path / "none.csv")


def test_kinds_are_typed_or_read_from_a_file(tmp_path):
    assert parse_kinds("age=real, a=b=count") == {"age": "real", "a=b": "count"}
    path = tmp_path / "kinds.json"
    path.write_text(json.dumps({"age": "real"}))
    assert parse_kinds(str(path)) == {"age": "real"}
    for wrong in ("age", "age=number", "=real"):
        with pytest.raises(InputError, match="give NAME=KIND"):
            parse_kinds(wrong)


def test_a_table_is_a_data_set_with_three_parts(tmp_path):
    rows = "\n".join(f"{i * 0.5},{'f' if i % 3 else 'm'}" for i in range(100))
    dataset = load(write(tmp_path, f"size,sex\n{rows}\n"))
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 81,
        "valid": 9,
        "test": 10,
    }
    assert dataset.table is not None
    assert [column.kind for column in dataset.table.columns] == ["real", "bit"]
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    with pytest.raises(InputError, match="is no table"):
        load(tmp_path / "x.npy", columns={"a": "real"})


def test_a_table_describes_itself(tmp_path):
    summary = read_table(write(tmp_path, TEXT)).summary()
    assert summary[0] == ("age", "real", "28 to 45", "1 (25%)")
    assert summary[3] == ("region", "category", "3 levels: north, south, west", "none")
