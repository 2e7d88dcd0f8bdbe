import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from aisle.errors import InputError
from aisle.models import Bernoulli, Gaussian, one_layer, two_layer
from aisle.models.distributions import standard_log_prob
from aisle.models.iwae_study import PairDistribution
from aisle.models.networks import MLP, GaussianLayer
from aisle.types import Distribution, Model, Proposal
from measures import z_score

MEAN = np.array([0.0, 0.2, 0.5, 0.9])

MODELS = {"one-layer": one_layer, "two-layer": two_layer}
over_models = pytest.mark.parametrize(
    "name", ["one-layer", pytest.param("two-layer", marks=pytest.mark.slow)]
)
over_likelihoods = pytest.mark.parametrize("likelihood", [Bernoulli, Gaussian])


def sized(name, likelihood=Bernoulli, num_latents=1):
    """Return a builder of a tiny model, as a function of its key."""
    sizes = {"num_latents": num_latents, "num_hidden": 6}
    return lambda key: MODELS[name](key, MEAN, likelihood=likelihood, **sizes)


@functools.cache
def compiled(name, likelihood):
    return eqx.filter_jit(sized(name, likelihood))


def initial(name, likelihood=Bernoulli, seed=0):
    return compiled(name, likelihood)(jax.random.key(seed))


@functools.cache
def strong(name):
    """Scale the weights up, for networks far from linear."""
    return jax.tree.map(lambda a: 1.5 * a if a.ndim == 2 else a, initial(name))


def draws(function, num_draws=20_000, seed=0):
    return jax.jit(jax.vmap(function))(jax.random.split(jax.random.key(seed), num_draws))


def assert_moments(samples, mean, deviation):
    for column, loc, scale in zip(np.asarray(samples, float).T, mean, deviation, strict=True):
        assert abs(z_score(column, loc)) < 4
        assert abs(z_score((column - loc) ** 2, scale**2)) < 4


@over_models
@over_likelihoods
def test_shapes_and_protocols(name, likelihood):
    def everything(key, x):
        model, proposal = sized(name, likelihood, num_latents=2)(key)
        q = proposal(x)
        assert isinstance(model, Model)
        assert isinstance(proposal, Proposal)
        assert isinstance(q, Distribution)
        z = q.sample(key)
        return {
            "latents": (z, model.sample_prior(key), q.scale),
            "scalars": (q.log_prob(z), model.log_prior(z), model.log_likelihood(x, z)),
            "observations": (model.sample_observation(key, z), model.mean_observation(z)),
        }

    found = jax.tree.map(
        lambda a: a.shape, jax.eval_shape(everything, jax.random.key(0), jnp.ones(4))
    )
    shapes = {"one-layer": (2,), "two-layer": ((4,), (2,))}[name]
    assert found["latents"] == (shapes,) * 3
    assert found["scalars"] == ((),) * 3
    assert found["observations"] == ((4,),) * 2


@pytest.mark.parametrize(
    ("name", "decoder", "lower", "upper", "upper_model"),
    [
        ("one-layer", (50, 200, 200, 784), (784, 200, 200, 100), None, None),
        (
            "two-layer",
            (100, 200, 200, 784),
            (784, 200, 200, 200),
            (100, 100, 100, 100),
            (50, 100, 100, 200),
        ),
    ],
)
def test_default_sizes_are_those_of_the_study(name, decoder, lower, upper, upper_model):
    def sizes(network):
        return (network.layers[0].in_features, *(m.out_features for m in network.layers))

    build = functools.partial(MODELS[name], mean=np.full(784, 0.5))
    model, proposal = eqx.filter_eval_shape(build, jax.random.key(0))
    assert sizes(model.decoder) == decoder
    if upper is None:
        assert sizes(proposal.network) == lower
    else:
        assert sizes(proposal.lower.network) == lower
        assert sizes(proposal.upper.network) == upper
        assert sizes(model.upper.network) == upper_model


@over_models
def test_the_output_bias_is_the_logit_of_the_clipped_mean(name):
    model, _ = initial(name)
    clipped = np.array([0.001, 0.2, 0.5, 0.9])
    bias = model.decoder.layers[-1].bias
    np.testing.assert_allclose(bias, np.log(clipped / (1 - clipped)), rtol=1e-6, atol=1e-7)


def test_the_output_bias_of_a_gaussian_is_the_mean():
    model, _ = initial("one-layer", likelihood=Gaussian)
    np.testing.assert_allclose(model.decoder.layers[-1].bias, MEAN, rtol=1e-6)


def test_weights_start_from_the_uniform_law_of_glorot_and_biases_from_zero():
    """Bounds, and the variance of each layer: bound^2 / 3."""
    network = eqx.filter_jit(MLP)(jax.random.key(0), (70, 90, 90, 50))
    for layer, (fan_in, fan_out) in zip(
        network.layers, itertools.pairwise((70, 90, 90, 50)), strict=True
    ):
        bound = np.sqrt(6 / (fan_in + fan_out))
        weight = np.asarray(layer.weight, float)
        assert weight.shape == (fan_out, fan_in)
        assert 0.99 * bound < np.max(np.abs(weight)) <= bound * (1 + 1e-6)
        assert abs(z_score(weight.ravel(), 0)) < 4
        assert abs(z_score(weight.ravel() ** 2, bound**2 / 3)) < 4
        np.testing.assert_array_equal(layer.bias, 0)
    corners = [np.asarray(layer.weight)[:50, :70].ravel() for layer in network.layers]
    assert abs(np.corrcoef(corners)[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(50 * 70)


def test_the_network_is_tanh_between_linear_layers():
    network = eqx.filter_jit(MLP)(jax.random.key(0), (3, 5, 2))
    first, last = network.layers
    x = np.array([0.5, -1.0, 2.0], np.float32)
    hidden = np.tanh(np.asarray(first.weight) @ x + np.asarray(first.bias))
    wanted = np.asarray(last.weight) @ hidden + np.asarray(last.bias)
    np.testing.assert_allclose(network(jnp.asarray(x)), wanted, rtol=1e-5)


def test_a_gaussian_layer_reads_means_and_then_log_scales():
    layer = eqx.filter_jit(GaussianLayer)(jax.random.key(0), 3, 5, 2)
    x = jnp.array([0.5, -1.0, 2.0])
    output = layer.network(x)
    np.testing.assert_array_equal(layer(x).loc, output[:2])
    np.testing.assert_allclose(layer(x).scale, np.exp(output[2:]), rtol=1e-6)


@over_models
def test_the_seed_decides_the_weights(name):
    first, other, again = (initial(name, seed=seed) for seed in (0, 1, 0))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
        assert a.ndim == 1 or np.all(np.asarray(a) != np.asarray(b))


@over_models
def test_no_two_layers_share_their_weights(name):
    leaves = [np.asarray(a).ravel() for a in jax.tree.leaves(initial(name)) if a.ndim == 2]
    firsts = [leaf[0] / np.max(np.abs(leaf)) for leaf in leaves]
    assert len(set(firsts)) == len(leaves)


@over_models
def test_the_likelihood_sums_to_one_over_all_observations(name):
    model, _ = strong(name)
    xs = jnp.asarray(list(itertools.product([0.0, 1.0], repeat=4)))
    for seed in range(3):
        z = model.sample_prior(jax.random.key(seed))
        total = jnp.sum(jnp.exp(jax.vmap(lambda x, z=z: model.log_likelihood(x, z))(xs)))
        np.testing.assert_allclose(total, 1, rtol=1e-5)


def grid(num_points):
    """A rule on (-8, 8) that is exact to rounding for smooth densities that vanish at its ends."""
    points, width = np.linspace(-8, 8, num_points, retstep=True)
    return points.astype(np.float32), width


def test_the_one_layer_joint_integrates_to_one():
    model, _ = strong("one-layer")
    points, width = grid(200)
    xs = jnp.asarray(list(itertools.product([0.0, 1.0], repeat=4)))

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def joint(x, z):
        return jnp.exp(model.log_prior(z) + model.log_likelihood(x, z))

    values = np.asarray(joint(xs, jnp.asarray(points)[:, None]), np.float64)
    np.testing.assert_allclose(values.sum() * width, 1, rtol=1e-5)


@pytest.mark.slow
def test_the_two_layer_prior_integrates_to_one_and_is_composed_of_its_factors():
    model, _ = strong("two-layer")
    points, width = grid(60)
    cube = np.stack(np.meshgrid(points, points, points, indexing="ij"), axis=-1).reshape(-1, 3)
    densities = jax.jit(jax.vmap(lambda z: jnp.exp(model.log_prior((z[:2], z[2:])))))(cube)
    np.testing.assert_allclose(np.asarray(densities, float).sum() * width**3, 1, rtol=1e-3)

    first, second = jnp.array([0.4, -1.2]), jnp.array([0.9])
    given = model.upper(second)
    wanted = scipy.stats.norm.logpdf(second).sum()
    wanted += scipy.stats.norm.logpdf(first, given.loc, given.scale).sum()
    np.testing.assert_allclose(model.log_prior((first, second)), wanted, rtol=1e-5)


def test_the_two_layer_likelihood_sees_the_first_layer_only():
    model, _ = strong("two-layer")
    x, first = jnp.array([0.0, 1.0, 1.0, 0.0]), jnp.array([0.4, -1.2])
    value = model.log_likelihood(x, (first, jnp.array([0.9])))
    assert value == model.log_likelihood(x, (first, jnp.array([-5.0])))
    np.testing.assert_allclose(value, model.likelihood.log_prob(x, model.decoder(first)))
    assert value != model.log_likelihood(x, (first + 1, jnp.array([0.9])))


def test_the_standard_normal_equals_scipy():
    z = np.array([0.3, -2.0, 5.0], np.float32)
    wanted = scipy.stats.norm.logpdf(z).sum()
    np.testing.assert_allclose(standard_log_prob(jnp.asarray(z)), wanted, rtol=1e-6)


def test_draws_of_the_one_layer_prior_are_standard_normal():
    model, _ = strong("one-layer")
    assert_moments(draws(model.sample_prior), np.zeros(1), np.ones(1))


def test_draws_of_the_two_layer_prior_have_its_density():
    """h2 by its moments, h1 by those that remain once its mean and deviation are taken off."""
    model, _ = strong("two-layer")
    first, second = draws(model.sample_prior)
    assert_moments(second, np.zeros(1), np.ones(1))
    given = jax.jit(jax.vmap(model.upper))(second)
    residual = np.asarray((first - given.loc) / given.scale, float)
    assert_moments(residual, np.zeros(2), np.ones(2))
    for i in range(2):
        assert abs(z_score(residual[:, i] * np.asarray(second[:, 0], float), 0)) < 4


@over_models
def test_observations_have_the_mean_that_is_shown(name):
    model, _ = strong(name)
    z = model.sample_prior(jax.random.key(4))
    xs = draws(lambda key: model.sample_observation(key, z))
    mean = np.asarray(model.mean_observation(z), float)
    assert_moments(xs[:, 1:], mean[1:], np.sqrt(mean * (1 - mean))[1:])


@pytest.fixture(scope="module")
def pair():
    return strong("two-layer")[1](jnp.array([0.0, 1.0, 1.0, 0.0]))


def test_a_pair_is_composed_of_its_factors(pair):
    first, second = jnp.array([0.4, -1.2]), jnp.array([0.9])
    wanted = scipy.stats.norm.logpdf(first, pair.first.loc, pair.first.scale).sum()
    given = pair.upper(first)
    wanted += scipy.stats.norm.logpdf(second, given.loc, given.scale).sum()
    np.testing.assert_allclose(pair.log_prob((first, second)), wanted, rtol=1e-5)


def test_the_scale_of_a_pair_is_the_deviation_of_its_draws(pair):
    """Of h1 whatever h2 is, and of h2 where h1 is at its mean."""
    first, _ = draws(pair.sample)
    assert_moments(first, pair.first.loc, pair.scale[0])
    given = pair.upper(pair.first.loc)
    second = draws(given.sample)
    assert_moments(second, given.loc, pair.scale[1])


@pytest.mark.slow
def test_draws_of_a_pair_have_its_density(pair):
    """E_q[f / q] = 1 for another normalised f that lies inside q, whatever is nonlinear in it."""
    narrow = PairDistribution(
        eqx.tree_at(
            lambda d: (d.loc, d.scale), pair.first, (pair.first.loc + 0.1, 0.8 * pair.first.scale)
        ),
        eqx.tree_at(lambda g: g.network.layers[-1].bias, pair.upper, jnp.array([0.1, -0.2])),
    )

    def ratio(key):
        z = pair.sample(key)
        return jnp.exp(narrow.log_prob(z) - pair.log_prob(z))

    ratios = draws(ratio, 100_000)
    assert np.std(ratios) > 0.2
    assert abs(z_score(ratios, 1)) < 4


def test_draws_of_a_pair_are_reparameterised(pair):
    """The first layer's mean moves h1 by as much, and h2 through the upper network."""
    gradient = jax.jit(jax.grad(lambda q: q.sample(jax.random.key(1))[1][0]))(pair)
    assert np.all(np.asarray(gradient.first.loc) != 0)
    assert all(np.any(np.asarray(a) != 0) for a in jax.tree.leaves(gradient.upper))
    unit = jax.jit(jax.jacrev(lambda q: q.sample(jax.random.key(1))[0]))(pair)
    np.testing.assert_array_equal(unit.first.loc, np.eye(2))


def test_the_mean_of_a_pair_is_that_of_each_layer_given_the_one_below(pair):
    np.testing.assert_array_equal(pair.loc[0], pair.first.loc)
    np.testing.assert_array_equal(pair.loc[1], pair.upper(pair.first.loc).loc)


@over_models
def test_whole_numbers_are_encoded_as_real_ones(name):
    _, proposal = initial(name)
    encode = jax.jit(lambda x: proposal(x).loc)
    bits = np.array([0, 1, 1, 0])
    found = [encode(jnp.asarray(bits, kind)) for kind in (float, bool, "uint8")]
    jax.tree.map(np.testing.assert_array_equal, found[0], found[1])
    jax.tree.map(np.testing.assert_array_equal, found[0], found[2])


@over_models
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_latents": 0}, "num_latents is 0: it must be at least 1"),
        ({"num_hidden": -3}, "num_hidden is -3: it must be at least 1"),
        (
            {"mean": np.zeros((4, 4))},
            "mean has the shape (4, 4): give one number for each feature, as in x.mean(0) of "
            "examples that are vectors",
        ),
        ({"mean": [0.5, np.nan]}, "mean has values that are not finite: repair the data"),
        (
            {"mean": [0.5, 3.0]},
            "mean has the value 3: the mean of bits is from 0 to 1; take "
            "likelihood=aisle.Gaussian for real values",
        ),
    ],
)
def test_bad_arguments_get_one_clear_line(name, options, message):
    options = {"mean": MEAN, "num_latents": 2, "num_hidden": 3} | options
    with pytest.raises(InputError) as caught:
        MODELS[name](jax.random.key(0), **options)
    assert str(caught.value) == message
