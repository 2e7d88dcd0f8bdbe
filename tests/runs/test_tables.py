"""Tables that are filled: each gap by the draw of its own row and column."""

import numpy as np

from aisle.data import read_table
from aisle.data.cells import read_cells
from aisle.runs.tables import _filled

CELLS = {"size": ["1.5", "", "2.5", ""], "who": ["a", "b", "c", "d"], "visits": ["3", "4", "", ""]}


def test_gaps_have_the_draws_of_their_rows(tmp_path):
    path = tmp_path / "t.csv"
    lines = [CELLS, *zip(*CELLS.values(), strict=True)]
    path.write_text("\n".join(",".join(line) for line in lines))
    raw = read_cells(path)
    table = read_table(raw, {"who": "ignore", "size": "real", "visits": "count"})
    rows = np.array([1, 2, 3])
    draws = 10.0 * np.arange(1, 13).reshape(2, 3, 2)
    found = list(_filled(raw, table, rows, draws, is_numbered=True))
    assert found == [
        ["1", "1.5", "a", "3"],
        ["1", "10.0", "b", "4"],
        ["1", "2.5", "c", "40"],
        ["1", "50.0", "d", "60"],
        ["2", "1.5", "a", "3"],
        ["2", "70.0", "b", "4"],
        ["2", "2.5", "c", "100"],
        ["2", "110.0", "d", "120"],
    ]
