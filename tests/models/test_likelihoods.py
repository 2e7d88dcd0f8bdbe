import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from aisle.errors import InputError
from aisle.models.likelihoods import Bernoulli, Gaussian
from measures import z_score

LOGITS = np.array([-100.0, -100.0, -8.0, -0.3, 0.0, 0.7, 9.0, 100.0, 100.0], np.float32)
BITS = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.4, 1.0, 0.0, 1.0], np.float32)


def test_bernoulli_equals_numpyro_in_value_and_gradients():
    """Logits beyond the range of exp are among the points.

    NumPyro knows no fractions of a bit, and at a logit of 0, a kink of its formula, its gradient
    is not the derivative.
    """
    points = jnp.asarray(np.round(BITS[LOGITS != 0])), jnp.asarray(LOGITS[LOGITS != 0])

    def reference(x, logits):
        return dist.BernoulliLogits(logits).to_event(1).log_prob(x)

    ours, theirs = (
        jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(*points)
        for f in (Bernoulli(8).log_prob, reference)
    )
    for got, wanted in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.all(np.isfinite(got))
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_fraction_of_a_bit_mixes_the_two():
    def value(x):
        return Bernoulli(1).log_prob(jnp.array([x]), jnp.array([0.7]))

    np.testing.assert_allclose(value(0.4), 0.4 * value(1.0) + 0.6 * value(0.0), rtol=1e-6)


def test_bernoulli_is_exact_at_logits_beyond_the_range_of_exp():
    for x, logit, wanted in ((0, -100, 0), (1, -100, -100), (0, 100, -100), (1, 100, 0)):
        value = Bernoulli(1).log_prob(jnp.array([float(x)]), jnp.array([float(logit)]))
        np.testing.assert_allclose(value, wanted, atol=1e-6)


def test_derivatives_of_bernoulli_are_its_closed_forms():
    log_prob = Bernoulli(9).log_prob
    by_x, by_logits = jax.jit(jax.grad(log_prob, argnums=(0, 1)))(BITS, LOGITS)
    exact = 1 / (1 + np.exp(-LOGITS.astype(np.float64)))
    np.testing.assert_allclose(by_x, LOGITS)
    np.testing.assert_allclose(by_logits, BITS - exact, rtol=1e-5, atol=1e-7)
    curvature = jax.jit(jax.hessian(log_prob, argnums=1))(BITS, LOGITS)
    np.testing.assert_allclose(curvature, np.diag(-exact * (1 - exact)), rtol=1e-3, atol=1e-7)


def test_forward_and_reverse_derivatives_of_bernoulli_agree():
    log_prob = Bernoulli(9).log_prob
    direction = jnp.linspace(-1, 1, 9), jnp.linspace(2, -1, 9)
    _, forward = jax.jit(lambda d: jax.jvp(log_prob, (BITS, LOGITS), d))(direction)
    backward = jax.jit(jax.grad(log_prob, argnums=(0, 1)))(BITS, LOGITS)
    product = sum(np.vdot(a, b) for a, b in zip(direction, backward, strict=True))
    np.testing.assert_allclose(forward, product, rtol=1e-5)


def test_gaussian_equals_scipy():
    likelihood = Gaussian(3)
    assert likelihood.log_scale.shape == (3,)
    x, output = jnp.array([0.3, -2.0, 40.0]), jnp.array([0.0, 1.5, -2.0])
    for log_scale in ([0.0, 0.0, 0.0], [-2.0, 0.5, 3.0]):
        scaled = jax.tree.map(lambda _, s=log_scale: jnp.array(s), likelihood)
        wanted = scipy.stats.norm.logpdf(x, output, np.exp(log_scale)).sum()
        np.testing.assert_allclose(scaled.log_prob(x, output), wanted, rtol=1e-6)


def test_gaussian_learns_its_scales():
    """The gradient in log s of each feature is ((x - output) / s)^2 - 1."""
    x, output = jnp.array([0.3, -2.0, 0.4]), jnp.array([0.0, 1.5, -2.0])
    gradient = jax.jit(jax.grad(lambda m: m.log_prob(x, output)))(Gaussian(3))
    np.testing.assert_allclose(gradient.log_scale, (x - output) ** 2 - 1, rtol=1e-5)


def test_bernoulli_draws_have_its_mean():
    likelihood, output = Bernoulli(4), jnp.array([-3.0, -0.5, 0.0, 2.0])
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: likelihood.sample(k, output)))(keys))
    assert draws.shape == (20_000, 4)
    assert set(np.unique(draws)) == {0.0, 1.0}
    for samples, mean in zip(draws.T, likelihood.mean(output), strict=True):
        assert abs(z_score(samples, float(mean))) < 4
    for i, j in ((0, 1), (1, 2), (2, 3)):
        centred = (draws - np.asarray(likelihood.mean(output))[None])[:, (i, j)]
        assert abs(z_score(centred.prod(axis=1), 0)) < 4


def test_gaussian_draws_have_its_moments():
    output, scale = jnp.array([-3.0, 0.0, 2.0]), np.array([0.1, 1.0, 5.0])
    likelihood = jax.tree.map(lambda _: jnp.log(jnp.asarray(scale)), Gaussian(3))
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: likelihood.sample(k, output)))(keys), float)
    np.testing.assert_array_equal(likelihood.mean(output), output)
    for samples, mean, deviation in zip(draws.T, np.asarray(output), scale, strict=True):
        assert abs(z_score(samples, mean)) < 4
        assert abs(z_score((samples - mean) ** 2, deviation**2)) < 4


@pytest.mark.parametrize("kind", [Bernoulli, Gaussian])
def test_the_mean_of_the_initial_output_is_the_training_mean(kind):
    likelihood, mean = kind(3), np.array([0.002, 0.5, 0.9])
    output = jnp.asarray(likelihood.initial_output(mean), jnp.float32)
    np.testing.assert_allclose(likelihood.mean(output), mean, rtol=1e-5)


def test_the_initial_logits_are_those_of_the_clipped_mean():
    logits = Bernoulli.initial_output(np.array([0.0, 0.0001, 0.25, 0.9995, 1.0]))
    wanted = np.log(np.array([0.001, 0.001, 0.25, 0.999, 0.999]))
    wanted -= np.log1p(-np.array([0.001, 0.001, 0.25, 0.999, 0.999]))
    np.testing.assert_allclose(logits, wanted, rtol=1e-12)


def test_bits_of_any_type_have_the_same_density():
    bits, logits = np.array([0, 1, 1]), jnp.array([0.3, -1.0, 2.0])
    values = [Bernoulli(3).log_prob(jnp.asarray(bits, t), logits) for t in (bool, "uint8", float)]
    assert values[0] == values[1] == values[2]


def test_likelihoods_know_what_they_can_have_made():
    values = np.array([0, 1, 0.5, 2, np.nan, np.inf])
    assert Bernoulli.is_supported(values).tolist() == [True, True] + 4 * [False]
    assert Gaussian.is_supported(values).tolist() == 4 * [True] + [False, False]


@pytest.mark.parametrize("wrong", [-0.1, 1.5, 128.0])
def test_a_mean_that_no_bits_have(wrong):
    with pytest.raises(InputError) as caught:
        Bernoulli.initial_output(np.array([0.5, wrong]))
    assert str(caught.value) == (
        f"mean has the value {wrong:g}: the mean of bits is from 0 to 1; take "
        "likelihood=aisle.Gaussian for real values"
    )
