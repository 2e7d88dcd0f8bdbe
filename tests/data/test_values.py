import numpy as np
import pytest

from aisle.data import Split, check_bits, check_values, feature_ranges


@pytest.mark.parametrize("binarize", ["dynamic", "static", "none"])
@pytest.mark.parametrize("array", [np.eye(3), np.eye(3, dtype=bool), np.uint8([[0, 255]])])
def test_probabilities_are_accepted_everywhere(binarize, array):
    check_values(Split(array), binarize, "good.npy")


def test_real_values_are_accepted_without_binarising():
    check_values(Split(np.array([[-3.0, 7.0]])), "none", "real.npy")


@pytest.mark.parametrize("binarize", ["dynamic", "static"])
def test_real_values_are_refused_for_binarising(refused, binarize):
    with refused("real.npy", "from -3 to 7", "[0, 1]", "rescale", "--binarize none"):
        check_values(Split(np.array([[-3.0, 0.5], [7.0, 0.5]])), binarize, "real.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("binarize", ["dynamic", "none"])
def test_values_that_are_not_finite_are_refused_with_their_row(refused, value, binarize):
    array = np.zeros((9, 4), np.float32)
    array[6, 2] = value
    with refused("bad.npy", str(np.float32(value)), "in row 6", "finite"):
        check_values(Split(array), binarize, "bad.npy")


def test_the_row_is_that_of_the_file_and_chunks_do_not_shift_it(refused, monkeypatch):
    array = np.zeros((50, 4))
    array[41, 0] = np.nan
    small = Split.chunks
    monkeypatch.setattr(Split, "chunks", lambda self: small(self, num_bytes=64))
    with refused("in row 41:"):
        check_values(Split(array, np.arange(1, 50, 2)), "none", "bad.npy")
    check_values(Split(array, np.arange(0, 50, 2)), "none", "bad.npy")


def test_values_too_large_for_single_precision_are_refused(refused):
    array = np.zeros((9, 4))
    array[6, 2] = -1e39
    with refused("bad.npy", "-1e+39", "in row 6", "single precision"):
        check_values(Split(array), "none", "bad.npy")
    array[6, 2] = -1e38
    check_values(Split(array), "none", "good.npy")


@pytest.mark.parametrize("array", [np.eye(3), np.eye(3, dtype=bool), np.uint8([[0, 255]])])
def test_bits_are_bits_in_any_type(array):
    check_bits(Split(array), "good.npy")


@pytest.mark.parametrize("array", [np.array([[0, 0.5]]), np.array([[1.0, -3]]), np.uint8([[51]])])
def test_what_is_no_bit_is_refused(refused, array):
    value = {0.5: "0.5", -3: "-3", 51: "0.2"}[array[0, -1]]
    with refused("grey.npy", f"the value {value},", "Bernoulli", "dynamic", "gaussian"):
        check_bits(Split(array), "grey.npy")


def test_zeros_and_ones_as_uint8_are_refused(refused):
    with refused("binary.npy", "0 and 1", "value / 255", "x.astype(bool)"):
        check_values(Split(np.eye(3, dtype=np.uint8)), "dynamic", "binary.npy")


def test_counts_are_pointed_to_a_model_of_counts(refused):
    counts = np.array([[0.0, 3.0], [7.0, 1.0]])
    with refused("counts.npy", "from 0 to 7", "model of counts", "docs/own-model.md"):
        check_values(Split(counts), "dynamic", "counts.npy")
    for array in (counts + 0.5, counts - 1):
        with refused("x.npy", "--likelihood gaussian"):
            check_values(Split(array), "dynamic", "x.npy")


def test_ranges_of_features():
    array = np.array([[0.0, 3.0, -1.0], [5.0, 3.0, 1.0], [1.0, 3.0, 0.0]])
    np.testing.assert_array_equal(feature_ranges(Split(array)), [5, 0, 2])
    np.testing.assert_array_equal(feature_ranges(Split(np.uint8([[0, 255], [51, 255]]))), [0.2, 0])


def test_an_unknown_protocol_is_refused_with_the_choices(refused):
    with refused("'sometimes'", "dynamic, static, none"):
        check_values(Split(np.eye(3)), "sometimes", "x.npy")
