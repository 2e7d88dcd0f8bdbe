"""What is refused before anything is learned from it, and what is remarked on."""

import numpy as np
import pytest

from aisle import Bernoulli, Gaussian, Split, View
from aisle.data import as_split, check_support, load, remarks

BITS = View(binarize="dynamic")
GREY = View(is_grey=True, binarize="dynamic")


@pytest.mark.parametrize("binarize", ["dynamic", "static", "none"])
@pytest.mark.parametrize("array", [np.eye(3), np.eye(3, dtype=bool), np.eye(3, dtype=np.uint8)])
def test_probabilities_are_accepted_everywhere(binarize, array):
    as_split(Split(array, None, View(binarize=binarize)), "good.npy")


def test_real_values_are_accepted_without_binarising():
    array = np.array([[-3.0, 7.0]])
    assert as_split(array, "real.npy").arrays is array


@pytest.mark.parametrize("binarize", ["dynamic", "static"])
def test_real_values_are_refused_for_binarising(refused, binarize):
    split = Split(np.array([[-3.0, 0.5], [7.0, 0.5]]), None, View(binarize=binarize))
    with refused("real.npy", "from -3 to 7", "[0, 1]", "rescale", "binarize='none'", "gaussian"):
        as_split(split, "real.npy")


def test_grey_values_are_refused_for_binarising_unless_they_are_called_grey(refused):
    array = np.uint8([[0, 200], [17, 3]])
    with refused("pictures.npy", "from 0 to 200", "--grey", "View(is_grey=True)"):
        as_split(Split(array, None, BITS), "pictures.npy")
    as_split(Split(array, None, GREY), "pictures.npy")
    with refused("pictures.npy", "from 0 to 300", "[0, 1]"):
        as_split(Split(np.array([[0, 300]]), None, GREY), "pictures.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("view", [BITS, View()])
def test_values_that_are_not_finite_are_refused_with_their_row(refused, value, view):
    array = np.zeros((9, 4), np.float32)
    array[6, 2] = value
    with refused("bad.npy", str(np.float32(value)), "in row 6", "finite"):
        as_split(Split(array, None, view), "bad.npy")


def test_the_row_is_that_of_the_file_and_chunks_do_not_shift_it(refused, monkeypatch):
    array = np.zeros((50, 4))
    array[41, 0] = np.nan
    small = Split.chunks
    monkeypatch.setattr(Split, "chunks", lambda self: small(self, num_bytes=64))
    with refused("in row 41:"):
        as_split(Split(array, np.arange(1, 50, 2)), "bad.npy")
    as_split(Split(array, np.arange(0, 50, 2)), "bad.npy")


def test_what_was_checked_is_not_read_again(monkeypatch):
    split = as_split(np.ones((3, 2)))
    monkeypatch.setattr(Split, "chunks", lambda *_: pytest.fail("read again"))
    assert as_split(split) is split
    with pytest.raises(pytest.fail.Exception, match="read again"):
        as_split(Split(np.ones((3, 2))))


def test_a_pytree_is_checked_in_each_of_its_arrays(refused):
    table = {"age": np.zeros((9, 1)), "name": np.zeros(9, np.int8)}
    as_split(table, "table")
    table["age"][4] = np.nan
    with refused("table", "nan", "in row 4"):
        as_split(table, "table")


def test_values_too_large_for_single_precision_are_refused(refused):
    array = np.zeros((9, 4))
    array[6, 2] = -1e39
    with refused("bad.npy", "-1e+39", "in row 6", "float32"):
        as_split(array, "bad.npy")
    array[6, 2] = -1e38
    as_split(array, "good.npy")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2**31, np.int64), (-(2**31) - 1, np.int64), (-(2**63), np.int64), (2**32, np.uint64)],
)
def test_whole_numbers_that_would_wrap_are_refused(refused, value, dtype):
    array = np.zeros((9, 4), dtype)
    array[6, 2] = value
    with refused("ids.npy", value, "in row 6", "int32"):
        as_split(array, "ids.npy")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2**31 - 1, np.int64), (-(2**31), np.int64), (2**32 - 1, np.uint64), (2**32 - 1, np.uint32)],
)
def test_whole_numbers_that_fit_are_accepted(value, dtype):
    as_split(np.full((3, 2), value, dtype), "ids.npy")


class Sparse:
    """What SciPy's sparse matrices have in common."""

    shape = (4, 4)

    def toarray(self):
        return np.eye(4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array([[1, "a"], [None, 2]], object), ["type object", "1", "numbers"]),
        (np.array([["a", "b"]]), ["type <U1", "'a'", "numbers"]),
        ([[1.0, 2.0], [3.0, 4.0]], ["a list of numbers", "np.asarray"]),
        ("mnist", ["a str", "np.asarray"]),
        (["a", "b"], ["a list", "np.asarray"]),
        (3.0, ["a float", "np.asarray"]),
        (None, ["no arrays"]),
        ([np.zeros((3, 2)), np.zeros((4, 2))], ["(3, 2)", "(4, 2)", "as many in each"]),
        ({"a": np.zeros((3, 2)), "b": np.float32(1)}, ["()", "as many in each"]),
        (Sparse(), ["a Sparse", "toarray()"]),
        (np.zeros(5), ["(5,)", "first axis"]),
        (np.zeros((0, 5)), ["no examples", "at least 1"]),
        (np.zeros((5, 0)), ["(5, 0)", "at least one value"]),
        (np.zeros((5, 2), complex), ["complex128", "numbers"]),
    ],
)
def test_what_is_no_array_of_numbers_is_refused_with_what_to_give(refused, given, words):
    with refused("x ", *words):
        as_split(given, "x")


def test_a_sparse_matrix_of_scipy_is_refused(refused):
    from scipy.sparse import csr_array

    with refused("x ", "toarray()"):
        as_split(csr_array(np.eye(3)), "x")


def test_a_mask_is_not_lost(refused):
    array = np.ma.masked_greater(np.arange(6.0).reshape(3, 2), 3)
    with refused("2 masked values", "pass the mask as part of the data"):
        as_split(array, "x")
    as_split({"x": array.data, "is_missing": array.mask}, "x")
    as_split(np.ma.masked_greater(array.data, 9), "x")


@pytest.mark.parametrize("array", [np.eye(3), np.eye(3, dtype=bool), np.eye(3, dtype=np.int64)])
def test_bits_are_bits_in_any_type(array):
    check_support(Bernoulli(3), Split(array), "good.npy")


@pytest.mark.parametrize("array", [np.array([[0, 0.5]]), np.array([[1.0, -3]]), np.uint8([[51]])])
def test_what_is_no_bit_is_refused(refused, array):
    with refused("grey.npy", f"the value {array[0, -1]:g},", "Bernoulli", "dynamic"):
        check_support(Bernoulli(2), Split(array), "grey.npy")
    check_support(Gaussian(2), Split(array), "grey.npy")
    check_support(object(), Split(array), "grey.npy")


def test_support_is_that_of_what_the_model_sees(refused):
    grey = np.uint8([[0, 255], [51, 0]])
    check_support(Bernoulli(2), Split(grey[:1], None, View(is_grey=True)), "grey.npy")
    check_support(Bernoulli(2), Split(grey, None, GREY), "grey.npy")
    with refused("the value 0.2,"):
        check_support(Bernoulli(2), Split(grey, None, View(is_grey=True)), "grey.npy")


def table(*columns):
    """Return 40 rows of random values, each column with its own range."""
    values = np.random.default_rng(0).random((40, len(columns)))
    values = (values - values.min(0)) / np.ptp(values, axis=0)
    return Split(values * np.array(columns))


def test_columns_of_very_different_ranges_are_remarked_on_by_their_extremes():
    # As of wine: ranges from 0.13 to 1680 around a median of 3.
    (said,) = remarks(Gaussian(6), table(3.8, 4.0, 0.53, 3.0, 0.13, 1402.0))
    assert "column 4 range over 0.13" in said and "column 5 over 1.4e+03" in said
    assert "standardise" in said
    assert "column 1 over 1.68e+03" in remarks(Gaussian(3), table(3.0, 1680.0, 2.0))[0]
    assert "column 2 range over 0.01 " in remarks(Gaussian(3), table(3.0, 6.0, 0.01))[0]


def test_a_likelihood_that_standardises_by_itself_needs_no_advice():
    split = table(3.0, 1680.0, 2.0)
    assert remarks(Gaussian.fitted(split.arrays)[0], split) == []
    # Columns of one value are remarked on all the same.
    constant = Split(np.ones((40, 3)))
    assert "one value alone" in remarks(Gaussian.fitted(constant.arrays)[0], constant)[0]


def test_standardised_columns_are_nothing_to_remark_on():
    assert remarks(Gaussian(3), table(3.0, 6.0, 0.9)) == []
    grey = np.random.default_rng(0).integers(0, 256, (40, 5), np.uint8)
    assert remarks(Gaussian(5), Split(grey, None, View(is_grey=True))) == []
    assert remarks(Gaussian(5), Split(grey)) != []


def test_a_column_of_one_value_is_remarked_on():
    split = table(3.0, 0.0, 6.0, 0.0)
    (said,) = remarks(Gaussian(4), split)
    assert "2 of 4 features have one value alone" in said and "column 1" in said
    assert remarks(Bernoulli(4), split) == []


def bits(*shape):
    return np.random.default_rng(1).integers(0, 2, shape)


def one_hot(number, num_rows=60):
    return np.eye(number, dtype=int)[np.random.default_rng(2).integers(0, number, num_rows)]


def test_one_hot_columns_are_remarked_on():
    (said,) = remarks(Bernoulli(4), Split(one_hot(4)))
    assert "columns 0 to 3" in said and "1 group of" in said and "categories" in said
    among = np.concatenate([bits(60, 3), one_hot(5), bits(60, 2), one_hot(3)], axis=1)
    (said,) = remarks(Bernoulli(13), Split(among.astype(np.float32)))
    assert "columns 3 to 7" in said and "2 groups of" in said


def test_pictures_and_plain_bits_are_nothing_to_remark_on():
    assert remarks(Bernoulli(12), Split(bits(60, 12))) == []
    assert remarks(Bernoulli(12), Split(bits(60, 12).astype(bool))) == []
    digits = load("digits").train
    assert remarks(Bernoulli(64), digits) == []
    drawn = digits.observe(np.arange(200))
    assert remarks(Bernoulli(64), Split(np.asarray(drawn))) == []
    # So few rows are one-hot by chance.
    assert remarks(Bernoulli(4), Split(one_hot(4, 5))) == []


def test_own_likelihoods_and_own_forms_of_data_are_left_to_their_owners():
    assert remarks(object(), table(0.0, 1e6)) == []
    assert remarks(Gaussian(2), Split({"a": np.zeros((9, 2)), "b": np.zeros((9, 2))})) == []
