import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.errors import InputError
from aisle.learning.observations import observe, observe_all
from measures import z_score

PIXELS = np.array([0, 1, 51, 128, 204, 255], np.uint8)


@functools.partial(jax.jit, static_argnums=3)
def observe_many(keys, stored, indices, binarize):
    return jax.vmap(lambda k, s, i: observe(k, s, i, binarize))(keys, stored, indices)


def same_pixels(number):
    return jnp.tile(PIXELS, (number, 1))


@pytest.mark.parametrize("binarize", ["dynamic", "static"])
def test_bits_have_the_right_means(binarize):
    number = 40_000
    keys, indices = jax.random.split(jax.random.key(0), number), jnp.arange(number)
    bits = np.asarray(observe_many(keys, same_pixels(number), indices, binarize))
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


def test_dynamic_bits_depend_on_the_key_only():
    grey, indices = jnp.full((3, 200), 0.5), jnp.array([4, 4, 7])
    keys = jax.random.split(jax.random.key(0), 2)[jnp.array([0, 1, 0])]
    first, other, same = observe_many(keys, grey, indices, "dynamic")
    np.testing.assert_array_equal(first, same)
    assert 60 < np.sum(first != other) < 140


def test_static_bits_depend_on_the_index_only():
    grey, indices = jnp.full((3, 200), 0.5), jnp.array([4, 4, 7])
    keys = jax.random.split(jax.random.key(0), 3)
    first, same, other = observe_many(keys, grey, indices, "static")
    np.testing.assert_array_equal(first, same)
    assert 60 < np.sum(first != other) < 140


def test_held_out_bits_are_the_same_for_any_split_and_order():
    stored = np.random.default_rng(1).integers(0, 256, (20, 30), np.uint8)
    observed = jax.jit(observe_all, static_argnums=2)
    together = observed(stored, np.arange(20), "static")
    parts = [observed(stored[p], np.arange(20)[p], "static") for p in (slice(0, 7), slice(7, None))]
    np.testing.assert_array_equal(jnp.concatenate(parts), together)
    order = np.random.default_rng(2).permutation(20)
    np.testing.assert_array_equal(observed(stored[order], order, "static"), together[order])
    keys = jax.random.split(jax.random.key(9), 20)
    alone = observe_many(keys, stored, np.arange(20), "static")
    np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(observed(stored, np.arange(20), "dynamic"), together)


def test_none_keeps_values():
    values = jnp.array([-3.5, 0.0, 1e6], jnp.float32)
    key, index = jax.random.key(0), jnp.array(0)
    np.testing.assert_array_equal(observe(key, values, index, "none"), values)
    np.testing.assert_array_equal(observe_all(values[None], index[None], "none"), values[None])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
def test_floats_are_not_scaled_but_become_single_precision(dtype):
    seen = observe(jax.random.key(0), jnp.array([0.25, 255.0], dtype), jnp.array(0), "none")
    assert seen.dtype == jnp.float32
    np.testing.assert_array_equal(seen, [0.25, 255])


def test_bytes_stand_for_their_255th():
    stored = jnp.arange(256).astype(jnp.uint8)
    seen = observe(jax.random.key(0), stored, jnp.array(0), "none")
    np.testing.assert_allclose(seen, np.arange(256) / 255, rtol=1e-6)
    assert float(seen[-1]) == 1


def test_an_unknown_name_gets_one_clear_line():
    with pytest.raises(InputError) as caught:
        observe(jax.random.key(0), jnp.zeros(3), jnp.array(0), "sometimes")
    assert str(caught.value) == "binarize is 'sometimes': choose from dynamic, static, none"
