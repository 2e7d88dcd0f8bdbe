"""Breaks of data."""

from scripts.breaks.item import Break

BREAKS = [
    Break(
        "bytes are grey values whoever they are",
        "data/view.py",
        "        if self.is_grey:\n",
        "        if self.is_grey or stored.dtype == jnp.uint8:\n",
        "data/test_view.py",
    ),
    Break(
        "whole numbers wrap",
        "data/values.py",
        "return (limits.min <= leaf) & (leaf <= limits.max)",
        "return np.ones(leaf.shape, bool) if is_whole else np.abs(leaf) <= limits.max",
        "data/test_values.py",
    ),
    Break(
        "held-out bits are of a place in the selection",
        "data/split.py",
        "self.numbers(indices).astype(np.int32)",
        "np.arange(len(indices), dtype=np.int32)",
        "data/test_view.py",
    ),
    Break(
        "bits of all arrays of an example are drawn with one key",
        "data/view.py",
        "(jax.random.fold_in(key, i) for i in range(1, len(leaves)))",
        "(key for _ in leaves[1:])",
        "data/test_view.py",
    ),
    Break(
        "a part called valid is not used",
        "data/arrays.py",
        'for n in ("train", "valid", "test") if n in names',
        'for n in ("train", "test") if n in names',
        "data/test_arrays.py",
    ),
    Break(
        "validation examples are training examples too",
        "data/split.py",
        "np.sort(order[number:]), np.sort(order[:number])",
        "np.sort(order), np.sort(order[:number])",
        "data/test_arrays.py",
    ),
    Break(
        "ranges of columns are judged by their median",
        "data/values.py",
        "if ranges[smallest] < _USUAL_RANGES[0] or ranges[largest] > _USUAL_RANGES[1]:",
        "if not _USUAL_RANGES[0] <= np.median(ranges) <= _USUAL_RANGES[1]:",
        "data/test_values.py",
    ),
    Break(
        "a mask is lost",
        "data/values.py",
        "np.ma.count_masked(leaf) if isinstance(leaf, np.ma.MaskedArray) else 0",
        "0",
        "data/test_values.py",
    ),
    Break(
        "a line of a table is counted without empty ones",
        "data/cells.py",
        "numbered = [(reader.line_num, row) for row in reader if row]",
        "numbered = list(enumerate((row for row in reader if row), 1))",
        "data/test_roles.py::test_lines_are_those_of_the_file",
    ),
    Break(
        "arrays of an archive are believed before they are read",
        "data/readers.py",
        "if promised != held:",
        "if False:",
        "test_hostile.py::TestArchives::test_a_header_that_promises_more_than_follows",
    ),
]
