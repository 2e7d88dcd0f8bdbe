"""Values reach a model in their own type: categories are no grey values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from aisle import ImportanceSampler, Split, View, log_likelihood, sample_posterior
from aisle.models import DiagonalNormal
from evaluating import chosen, kernel

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")

# The types that a model was given, of every trace.
SEEN = set()


class Categories(eqx.Module):
    """Three features of four categories each; the latent prefers the later ones."""

    table: Array
    dtype: str = eqx.field(static=True)

    def log_prior(self, z):
        return -jnp.sum(z**2) / 2 - jnp.log(2 * jnp.pi) / 2

    def log_likelihood(self, x, z):
        SEEN.add(str(x.dtype))
        log_p = jax.nn.log_softmax(self.logits(z))
        return jnp.sum(jnp.take_along_axis(log_p, x.astype(jnp.int32)[:, None], axis=1))

    def sample_prior(self, key):
        return jax.random.normal(key, (1,))

    def sample_observation(self, key, z):
        return jax.random.categorical(key, self.logits(z)).astype(self.dtype)

    def logits(self, z):
        return self.table + z[0] * jnp.broadcast_to(jnp.arange(4.0), self.table.shape)


TABLE = np.random.default_rng(0).normal(size=(3, 4))
X = np.random.default_rng(1).integers(0, 4, (6, 3))


def model_of(dtype):
    return Categories(jnp.asarray(TABLE, jnp.float32), str(jnp.dtype(dtype)))


def encoder(x):
    assert x.dtype != jnp.float32
    return DiagonalNormal(jnp.zeros(1), jnp.ones(1))


def exact(x):
    z = np.linspace(-8, 8, 4001)
    logits = TABLE + z[:, None, None] * np.arange(4.0)
    log_p = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
    log_joint = log_p[:, np.arange(3)[:, None], x.T].sum(1) - (z[:, None] ** 2) / 2
    return np.log(np.exp(log_joint).sum(0) * (z[1] - z[0]) / np.sqrt(2 * np.pi))


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize(
    "dtype", [np.uint8, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (np.int64, bool))]
)
def test_categories_reach_the_model_as_they_are(dtype):
    """As numbers of 0 to 255 over 255 they would all be of the first category."""
    x, own = X.astype(dtype), jnp.asarray(X.astype(dtype)).dtype
    SEEN.clear()
    options = chosen(num_chains=64, num_temperatures=8, kernel=kernel(2))
    result = log_likelihood(model_of(own), encoder, x, **options)
    np.testing.assert_allclose(result.log_p, exact(x.astype(int)), atol=0.15)
    assert {str(own)} == SEEN


@pytest.mark.slow
def test_categories_reach_the_model_of_draws_as_they_are():
    SEEN.clear()
    x, sampler = X.astype(np.uint8), ImportanceSampler(20)
    z = sample_posterior(model_of(x.dtype), encoder, x, sampler=sampler, num_draws=50)
    assert {"uint8"} == SEEN
    # The latent of an example of high categories is higher than that of one of low ones.
    means = np.asarray(z.mean((1, 2)))
    assert np.corrcoef(means, X.sum(1))[0, 1] > 0.7


@pytest.mark.slow
@pytest.mark.usefixtures("untuned")
def test_grey_values_are_divided_where_a_view_says_so():
    class Grey(Categories):
        def log_likelihood(self, x, z):
            SEEN.add(str(x.dtype))
            return -jnp.sum((x - z) ** 2)

        def sample_observation(self, key, z):
            return z + jax.random.normal(key, (3,))

    SEEN.clear()
    grey = Grey(jnp.asarray(TABLE), "float32")
    options = chosen(num_temperatures=2)
    split = Split(np.uint8([[255, 0, 51]]), None, View(is_grey=True))
    found, same = (
        log_likelihood(grey, None, x, **options).log_p for x in (split, np.float32([[1, 0, 0.2]]))
    )
    np.testing.assert_allclose(found, same, rtol=1e-6)
    assert {"float32"} == SEEN
