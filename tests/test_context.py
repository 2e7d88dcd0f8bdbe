"""Context is bound in one place, and NaN becomes part of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.context import Context, InContext, bind, given, has_nan, in_context, masked, parts_of
from aisle.errors import InputError

MODEL = aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.zeros(()))


def test_without_a_context_nothing_is_touched():
    x, proposal = np.zeros(3), aisle.PriorProposal(MODEL)
    own, encoder, observation = bind(MODEL, proposal, x)
    assert own is MODEL and encoder is proposal and observation is x
    assert in_context(x, None) is x
    assert parts_of(x)[0] is x and parts_of(x)[1] is None
    assert given(proposal, None) is proposal


def test_model_and_proposal_are_bound_to_the_same_context():
    context = Context(jnp.array([True, False, True]))
    own, encoder, x = bind(MODEL, aisle.PriorProposal(MODEL), InContext(jnp.ones(3), context))
    for found in (own, encoder.model):
        np.testing.assert_array_equal(found.is_observed, context.is_observed)
    np.testing.assert_array_equal(x, np.ones(3))


def test_a_part_that_knows_no_context_is_refused():
    model, proposal = aisle.one_layer(jax.random.key(0), np.full(3, 0.5), num_latents=1)
    example = InContext(jnp.ones(3), {"label": jnp.ones(1)})
    with pytest.raises(InputError, match=r"^a \w+ has no given\(context\), but the examples have"):
        bind(model, proposal, example)
    with pytest.raises(InputError, match=r"has no given\(context\)"):
        aisle.fit(model, proposal, np.ones((5, 3)), np.ones((5, 1)), num_updates=1)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_what_is_nan_is_not_observed(kind):
    x = {"a": kind(np.float32([[1, np.nan], [0, 2]])), "b": kind(np.int32([[3], [4]]))}
    found = masked(x, None)
    np.testing.assert_array_equal(found.is_observed["a"], [[True, False], [True, True]])
    np.testing.assert_array_equal(found.is_observed["b"], [[True], [True]])
    assert (found.condition, found.exposure) == (None, None)
    assert has_nan(x) and not has_nan({"b": x["b"]})


def test_a_mask_is_added_to_the_context_that_is_there():
    x = np.array([[1.0, np.nan, 2.0]])
    condition = np.ones((1, 2))
    found = masked(x, Context(np.array([[False, True, True]]), condition))
    np.testing.assert_array_equal(found.is_observed, [[False, False, True]])
    assert found.condition is condition
    with pytest.raises(InputError, match=r"^context is a dict and x has missing values: give an"):
        masked(x, {"label": np.zeros(1)})


class Both(eqx.Module):
    """A proposal whose location says what it was given."""

    context: object = None

    def given(self, context):
        return Both(context)

    def __call__(self, x):
        offset = jnp.zeros(()) if self.context is None else self.context
        return aisle.DiagonalNormal(jnp.sum(x)[None] + offset, jnp.ones(1))


def test_encoding_and_sampling_take_the_context_of_each_example():
    x, offsets = np.arange(6.0).reshape(2, 3), np.array([10.0, 20.0])
    np.testing.assert_allclose(aisle.encode(Both(), x), [[3], [12]])
    np.testing.assert_allclose(aisle.encode(Both(), x, offsets), [[13], [32]])
    masks = np.array([[True, False, True], [False, False, True]])
    drawn = aisle.sample(MODEL, 2, Context(masks))
    np.testing.assert_array_equal(np.isnan(drawn), ~masks)
    # What is observed is what is drawn without a mask.
    np.testing.assert_array_equal(drawn[masks], aisle.sample(MODEL, 2)[masks])
    with pytest.raises(InputError, match=r"^context has 2 rows for 3 draws: give one for each"):
        aisle.sample(MODEL, 3, Context(masks))
