import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from aisle.errors import InputError
from aisle.models.likelihoods import (
    Bernoulli,
    Categorical,
    Columns,
    Gaussian,
    NegativeBinomial,
    Poisson,
    StudentT,
    ZeroInflatedNegativeBinomial,
)
from aisle.models.likelihoods.special import digamma, log_rise
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
    assert Gaussian(6).is_supported(values).tolist() == 4 * [True] + [False, False]


@pytest.mark.parametrize("wrong", [-0.1, 1.5, 128.0])
def test_a_mean_that_no_bits_have(wrong):
    with pytest.raises(InputError) as caught:
        Bernoulli.initial_output(np.array([0.5, wrong]))
    assert str(caught.value) == (
        f"mean has the value {wrong:g}: the mean of bits is from 0 to 1; take "
        "likelihood=aisle.Gaussian for real values"
    )


COUNTED = [Poisson, NegativeBinomial, ZeroInflatedNegativeBinomial]
over_counts = pytest.mark.parametrize("kind", COUNTED)
over_few_counts = pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k is not Poisson)) for k in COUNTED]
)


@over_few_counts
def test_an_exposure_multiplies_the_mean(kind):
    likelihood = kind(3)
    x = jnp.array([0.0, 2.0, 30.0])
    output = jnp.linspace(-1, 2, likelihood.num_outputs)
    shifted = output.at[:3].add(jnp.log(2.5))
    for method in ("log_probs", "log_prob"):
        found = getattr(likelihood, method)(x, output, exposure=2.5)
        np.testing.assert_allclose(found, getattr(likelihood, method)(x, shifted), rtol=1e-5)
    mean = likelihood.mean(output, exposure=2.5)
    np.testing.assert_allclose(mean, 2.5 * likelihood.mean(output), rtol=1e-5)
    keys = jax.random.split(jax.random.key(0), 10_000)
    draws = jax.jit(jax.vmap(lambda k: likelihood.sample(k, output, exposure=2.5)))(keys)
    for draw, wanted in zip(np.asarray(draws).T, np.asarray(mean), strict=True):
        assert abs(z_score(draw, wanted)) < 4


@over_counts
def test_a_fit_knows_exposures(kind):
    """Counts of known parameters have these, within about four standard errors of moments."""
    random = np.random.default_rng(0)
    exposure = random.lognormal(0, 0.5, 40_000)
    theta = np.array([np.inf if kind is Poisson else 2.0, np.inf if kind is Poisson else 5.0])
    rates = exposure[:, None] * np.array([3.0, 8.0])
    if kind is not Poisson:
        rates = rates * random.gamma(theta, 1 / theta, rates.shape)
    x = random.poisson(rates)
    if kind is ZeroInflatedNegativeBinomial:
        x = np.where(random.random(x.shape) < 0.3, 0, x)
    likelihood, output = kind.fitted(x, exposure)
    np.testing.assert_allclose(output[:2], np.log([3.0, 8.0]), atol=0.05)
    if kind is not Poisson:
        np.testing.assert_allclose(np.exp(likelihood.log_inverse_dispersion), theta, rtol=0.2)
    if kind is ZeroInflatedNegativeBinomial:
        np.testing.assert_allclose(1 / (1 + np.exp(-output[2:])), 0.3, atol=0.03)


@over_counts
@pytest.mark.parametrize("exposure", [0.0, -1.0, np.ones(3), np.array([1.0, np.nan])])
def test_exposures_that_are_none(kind, exposure):
    with pytest.raises(InputError, match=r"^exposure has the shape .*one positive number"):
        kind.fitted(np.array([[1], [2]]), exposure)


def test_a_column_without_counts_or_without_dispersion_has_a_finite_fit():
    x = np.array([[0, 3, 1], [0, 3, 2], [0, 3, 1]])
    for kind in COUNTED:
        likelihood, output = kind.fitted(x)
        assert np.all(np.isfinite(output))
        assert np.isfinite(likelihood.log_prob(jnp.asarray(x[0]), jnp.asarray(output, jnp.float32)))


@pytest.mark.parametrize("theta", [1e-2, 1.0, 15.9, 16.1, 1e3, 1e6, 1e9])
def test_negative_binomials_of_any_dispersion_are_exact_in_single_precision(theta):
    """Gamma functions cancel: at 1e6, the usual form is wrong by whole nats."""
    x, mean = np.array([0.0, 1.0, 7.0, 40.0], np.float32), 6.0
    likelihood = NegativeBinomial(4, inverse_dispersion=theta)
    found = likelihood.log_probs(jnp.asarray(x), jnp.full(4, np.log(mean), jnp.float32))
    wanted = scipy.stats.nbinom.logpmf(x, theta, theta / (theta + mean))
    if theta == 1e9:
        wanted = scipy.stats.poisson.logpmf(x, mean)
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=2e-5)


@pytest.mark.parametrize("degrees", [0.5, 3.0, 50.0, 1e7])
def test_student_of_any_degrees_is_exact_in_single_precision(degrees):
    x = np.array([0.1, -3.0, 8.0], np.float32)
    likelihood = StudentT(3, degrees=degrees)
    wanted = scipy.stats.t.logpdf(x, degrees)
    np.testing.assert_allclose(
        likelihood.log_probs(jnp.asarray(x), jnp.zeros(3)), wanted, rtol=3e-6
    )


def test_special_functions_equal_those_of_scipy():
    r = np.geomspace(1e-3, 1e5, 200)
    with jax.enable_x64(True):
        np.testing.assert_allclose(digamma(jnp.asarray(r)), scipy.special.digamma(r), rtol=1e-8)
        for x in (0.0, 0.5, 3.0, 1e4):
            rise = scipy.special.gammaln(r + x) - scipy.special.gammaln(r) - x * np.log(r)
            found = log_rise(jnp.full(200, x), jnp.asarray(r))
            np.testing.assert_allclose(found, rise, rtol=1e-9, atol=2e-9)


def test_categories_of_one_number_of_levels_are_level_by_level():
    likelihood = Categorical([3, 3])
    logits = jnp.arange(6.0).reshape(3, 2)
    wanted = jax.nn.log_softmax(logits, axis=0)[jnp.array([2, 0]), jnp.arange(2)]
    found = likelihood.log_probs(jnp.array([2, 0]), logits.ravel())
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    seen = likelihood.standardise(jnp.array([2, 0])).reshape(3, 2)
    assert seen.T.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_levels_that_were_not_seen_can_be_named():
    x = np.array([[0, 1], [0, 2]])
    assert Categorical.fitted(x)[0].num_levels == (1, 3)
    assert Categorical.fitted(x, num_levels=4)[0].num_levels == (4, 4)
    likelihood, logits = Categorical.fitted(x, num_levels=[2, 5])
    unseen = likelihood.log_probs(jnp.array([1, 4]), jnp.asarray(logits, jnp.float32))
    np.testing.assert_allclose(unseen, np.log([0.001 / 1.001, 0.001 / 1.003]), rtol=1e-5)
    with pytest.raises(InputError, match=r"^x has the value 2 in column 1, but a Categorical"):
        Categorical.fitted(x, num_levels=2)
    with pytest.raises(InputError, match=r"^num_levels has 3 numbers for 2 columns"):
        Categorical.fitted(x, num_levels=[2, 3, 4])


def test_columns_equal_their_parts():
    """Also with an exposure, which is for counts alone."""
    parts = [(Poisson(2), [3, 0]), (Gaussian(1), [1]), (Bernoulli(1), [2])]
    likelihood = Columns(parts)
    x, output = jnp.array([4.0, 0.3, 1.0, 0.0]), jnp.array([0.1, 1.2, -0.4, 2.0])
    found = likelihood.log_probs(x, output, exposure=3.0)
    counts = Poisson(2).log_probs(jnp.array([0.0, 4.0]), output[:2], exposure=3.0)
    np.testing.assert_array_equal(found[jnp.array([3, 0])], counts)
    np.testing.assert_array_equal(found[1:2], Gaussian(1).log_probs(x[1:2], output[2:3]))
    np.testing.assert_array_equal(found[2:3], Bernoulli(1).log_probs(x[2:3], output[3:]))
    mean = likelihood.mean(output, exposure=3.0)
    np.testing.assert_allclose(mean[0], 3 * np.exp(1.2), rtol=1e-6)
    np.testing.assert_allclose(mean[1:], [-0.4, 1 / (1 + np.exp(-2.0)), 3 * np.exp(0.1)], rtol=1e-6)


@pytest.mark.parametrize("columns", [[[0, 1]], [[0, 1], [1, 2]], [[0], [2]], []])
def test_each_column_is_named_once(columns):
    with pytest.raises(InputError, match=r"^parts are of the columns .*name each of 0 to 2 once"):
        Columns.fitted(np.eye(3), [(Gaussian, part) for part in columns])


def test_columns_say_where_a_value_is_wrong():
    x = np.array([[0.5, 1.0, 2.0], [0.1, 0.0, -2.0]])
    with pytest.raises(InputError) as caught:
        Columns.fitted(x, [(Gaussian, [0]), (Poisson, [1, 2])])
    assert str(caught.value).startswith("x[:, [1, 2]] has the value -2 in column 1, but a Poisson")
    with pytest.raises(InputError, match="has a Gaussian of 2 features for 1 columns"):
        Columns([(Gaussian(2), [0])])


@pytest.mark.usefixtures("as_users_have_it")
def test_training_data_that_nothing_can_be_fitted_to():
    with pytest.raises(InputError, match=r"^x has the shape \(3,\): give examples along the first"):
        Gaussian.fitted(np.zeros(3))
    with pytest.raises(InputError, match=r"^x has no value in column 1: all are missing"):
        Gaussian.fitted(np.array([[1.0, np.nan], [2.0, np.nan]]))
    with pytest.raises(InputError, match=r"^scale is 'of x': it must be 'learned' or 'of z'"):
        Gaussian(3, scale="of x")


def test_a_column_of_one_value_has_the_unit_scale():
    for kind in (Gaussian, StudentT):
        likelihood, _ = kind.fitted(np.full((5, 1), 7.0))
        assert likelihood.units.scale.tolist() == [1.0]
        assert likelihood.standardise(jnp.array([8.0])).tolist() == [1.0]
