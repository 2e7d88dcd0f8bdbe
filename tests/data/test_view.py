"""From stored examples to what a model sees: types are kept, and bits have their law."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle import Split, View
from measures import z_score

pytestmark = pytest.mark.usefixtures("quick_compilation")

PIXELS = np.array([0, 1, 51, 128, 204, 255], np.uint8)
GREY = functools.partial(View, is_grey=True)


@functools.partial(jax.jit, static_argnums=0)
def observe_many(view, keys, stored, indices):
    return jax.vmap(view.observe)(keys, stored, indices)


@pytest.mark.parametrize("binarize", ["dynamic", "static"])
def test_bits_have_the_right_means(binarize):
    number = 20_000
    keys, indices = jax.random.split(jax.random.key(0), number), jnp.arange(number)
    stored = jnp.tile(PIXELS, (number, 1))
    bits = np.asarray(observe_many(GREY(binarize=binarize), keys, stored, indices))
    assert bits.dtype == np.float32
    assert set(np.unique(bits)) == {0, 1}
    np.testing.assert_array_equal(bits[:, 0], 0)
    np.testing.assert_array_equal(bits[:, -1], 1)
    for column in range(1, 5):
        assert abs(z_score(bits[:, column], PIXELS[column] / 255)) < 4
    # Neighbours are drawn independently: the variance of the sum is the sum of variances.
    chances = PIXELS / 255
    squares = (bits.sum(axis=1) - chances.sum()) ** 2
    assert abs(z_score(squares, np.sum(chances * (1 - chances)))) < 4


def test_bits_of_two_arrays_are_drawn_apart():
    stored = {"left": jnp.full(400, 0.5), "right": jnp.full(400, 0.5)}
    bits = View(binarize="dynamic").observe(jax.random.key(0), stored, jnp.array(0))
    assert 120 < np.sum(bits["left"] != bits["right"]) < 280
    alone = View(binarize="dynamic").observe(jax.random.key(0), stored["left"], jnp.array(0))
    np.testing.assert_array_equal(alone, bits["left"])


def test_dynamic_bits_depend_on_the_key_only():
    grey, indices = jnp.full((3, 200), 0.5), jnp.array([4, 4, 7])
    keys = jax.random.split(jax.random.key(0), 2)[jnp.array([0, 1, 0])]
    first, other, same = observe_many(View(binarize="dynamic"), keys, grey, indices)
    np.testing.assert_array_equal(first, same)
    assert 60 < np.sum(first != other) < 140


def test_static_bits_depend_on_the_index_only():
    grey, indices = jnp.full((3, 200), 0.5), jnp.array([4, 4, 7])
    keys = jax.random.split(jax.random.key(0), 3)
    first, same, other = observe_many(View(binarize="static"), keys, grey, indices)
    np.testing.assert_array_equal(first, same)
    assert 60 < np.sum(first != other) < 140


@pytest.mark.parametrize("binarize", ["dynamic", "static"])
def test_held_out_bits_are_those_of_an_example_in_any_selection(binarize):
    stored = np.random.default_rng(1).integers(0, 256, (20, 30), np.uint8)
    whole = Split(stored, None, GREY(binarize=binarize))
    together = np.asarray(whole.observe(np.arange(20)))
    assert set(np.unique(together)) == {0, 1}
    # Six of them each time, so that one program is compiled.
    chosen = np.array([17, 3, 8, 0, 1, 19])
    np.testing.assert_array_equal(whole.observe(chosen), together[chosen])
    rest, taken = whole.without(6)
    for part, places in ((rest, chosen % 14), (taken, np.arange(6)[::-1])):
        np.testing.assert_array_equal(part.observe(places), together[part.rows[places]])


def test_static_bits_are_the_same_in_training_and_held_out():
    stored = np.random.default_rng(1).integers(0, 256, (5, 30), np.uint8)
    view, keys = GREY(binarize="static"), jax.random.split(jax.random.key(9), 5)
    trained = observe_many(view, keys, jnp.asarray(stored), jnp.arange(5))
    np.testing.assert_array_equal(trained, Split(stored, None, view).observe(np.arange(5)))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.int32, np.float16, np.float32])
def test_types_and_values_are_untouched(dtype):
    stored = np.array([[0, 1], [7, 100]], dtype)
    split = Split(stored)
    seen = split.observe([1, 0])
    assert seen.dtype == split.example.dtype == dtype
    np.testing.assert_array_equal(seen, stored[[1, 0]])
    trained = View().observe(jax.random.key(0), jnp.asarray(stored[1]), jnp.array(1))
    assert trained.dtype == dtype
    np.testing.assert_array_equal(trained, stored[1])


def test_grey_values_stand_for_their_255th_where_they_are_called_so():
    split = Split(np.arange(256, dtype=np.uint8).reshape(1, 16, 16), None, GREY(is_flat=True))
    (seen,) = split.observe([0])
    np.testing.assert_allclose(seen, np.arange(256) / 255, rtol=1e-6)
    assert float(seen[-1]) == 1
    assert split.example.shape == (256,)


@pytest.mark.usefixtures("as_users_have_it")
def test_an_unknown_name_gets_one_clear_line(refused):
    with refused("binarize is 'sometimes': choose from dynamic, static, none"):
        View(binarize="sometimes")
