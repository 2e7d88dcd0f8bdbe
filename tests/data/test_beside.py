"""Contexts and weights stay with their examples, and must be of them."""

import numpy as np
import pytest

from aisle.context import Context, InContext
from aisle.data import Split, View, as_split, check_support
from aisle.errors import InputError
from aisle.models import Beta

X = np.arange(12.0).reshape(6, 2)
CONDITION = np.arange(6.0)[:, None] * 100
ROWS = np.array([4, 1, 3])


class Knows:
    has_missing = True


def test_a_context_is_cut_by_the_rows_of_the_examples():
    split = as_split(Split(X, ROWS, context=Context(condition=CONDITION)))
    np.testing.assert_array_equal(split.context_of([0, 2]).condition, [[400], [300]])
    found = split.with_context(split.take([1]), [1])
    assert isinstance(found, InContext)
    np.testing.assert_array_equal(found.x, X[[1]])
    np.testing.assert_array_equal(found.context.condition, CONDITION[[1]])
    assert split.example_context.condition.tolist() == [400]


def test_examples_without_a_context_are_as_they_were():
    split = as_split(X)
    assert split.context_of([0]) is None and split.example_context is None
    rows = split.take([0])
    assert split.with_context(rows, [0]) is rows


def test_examples_that_are_split_off_keep_context_and_weights():
    whole = as_split(Split(X, context=Context(condition=CONDITION), weights=np.arange(6.0)))
    for part in whole.without(2):
        np.testing.assert_array_equal(
            part.context_of(np.arange(len(part))).condition, CONDITION[part.rows]
        )
        wanted = part.rows / part.rows.mean()
        np.testing.assert_allclose(part.relative_weights, wanted)


def test_a_digest_tells_other_contexts_and_weights():
    plain = Split(X)
    others = [
        plain,
        Split(X, context=CONDITION),
        Split(X, context=CONDITION + 1),
        Split(X, weights=np.ones(6)),
        Split(X, weights=np.arange(6.0)),
    ]
    assert len({split.digest() for split in others}) == 5
    assert as_split(X).digest() == plain.digest()


def test_nan_is_missing_for_models_that_know_of_it():
    x = X.copy()
    x[3, 1] = np.nan
    split = as_split(Split(x, ROWS), model=Knows())
    assert split.has_missing
    is_observed = split.context_of(np.arange(3)).is_observed
    np.testing.assert_array_equal(is_observed, [[True, True], [True, True], [True, False]])
    assert not as_split(X, model=Knows()).has_missing
    assert as_split(X, model=Knows()).context_of([0]) is None


def test_a_flat_view_has_flat_masks():
    x = np.zeros((2, 3, 2))
    x[1, 2, 0] = np.nan
    split = as_split(Split(x, view=View(is_flat=True)), model=Knows())
    found = split.context_of([1]).is_observed
    np.testing.assert_array_equal(found, [[True, True, True, True, False, True]])


def test_whatever_stands_where_nothing_was_observed_is_not_looked_at():
    x = np.array([[0.5, -999.0], [np.inf, 0.1], [0.2, np.nan]])
    is_observed = np.array([[True, False], [False, True], [True, False]])
    split = as_split(x, context=Context(is_observed))
    assert not split.has_missing
    check_support(Beta(2), split, "the data")
    with pytest.raises(InputError, match="has the value -999"):
        check_support(Beta(2), as_split(x[:1]), "the data")
    missing = as_split(np.array([[0.5, np.nan]]), model=Knows())
    check_support(Beta(2), missing, "the data")


BAD = [
    ({"context": CONDITION[:5]}, r"^context has an array of shape \(5, 1\) .* for 6 examples"),
    ({"context": {"a": np.array(["b"] * 6)}}, "^context has an array .*<U1"),
    ({"context": np.float64(1)}, r"^context has an array of shape \(\)"),
    ({"context": Context(condition=CONDITION * np.nan)}, "^context has the value nan: give fin"),
    ({"context": Context(np.ones((6, 3), bool))}, r"is_observed of shape \(6, 3\)"),
    ({"context": Context(np.ones((6, 2)))}, "is_observed of shape .* and type float64: give bool"),
    ({"context": Context(exposure=np.zeros(6))}, r"exposure of shape \(6,\), from 0 on: give"),
    ({"context": Context(exposure=np.ones((6, 1)))}, r"exposure of shape \(6, 1\)"),
    ({"weights": np.ones(5)}, r"^weights have the shape \(5,\) .* for 6 examples: give one"),
    ({"weights": np.full(6, np.inf)}, "^weights have the shape .*: give one finite number"),
    ({"weights": np.arange(6.0) - 1}, "^weights are from -1 to 4: none may be negative"),
    ({"weights": np.zeros(6)}, "^weights are from 0 to 0: none may be negative, and not all"),
]


@pytest.mark.parametrize(("beside", "words"), BAD)
def test_what_is_not_of_the_examples_is_refused(beside, words):
    with pytest.raises(InputError, match=words):
        as_split(Split(X, **beside))


def test_a_context_is_given_once():
    with pytest.raises(InputError, match=r"^context is given, but the split has one of its own"):
        as_split(Split(X, context=CONDITION), context=CONDITION)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (None, r"in row 3: every value must be .* repair such rows$"),
        (object(), r"in row 3: .*repair such rows, give an aisle\.Context.*has_missing=True\)$"),
    ],
)
def test_nan_is_refused_with_what_to_do(model, words):
    x = X.copy()
    x[3, 1] = np.nan
    with pytest.raises(InputError, match=words):
        as_split(x, model=model)
    # Infinity is nothing that could be missing.
    x[3, 1] = np.inf
    with pytest.raises(InputError, match="has the value inf in row 3"):
        as_split(x, model=Knows())
