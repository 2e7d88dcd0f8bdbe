"""Models in a context: masks, conditions and exposures, exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import aisle
from aisle.context import Context
from aisle.errors import InputError
from families import CASES, over_cases, over_few_cases

KEY = jax.random.key(0)
Z = jnp.array([0.4, -1.1])


def build(name, **options):
    fitted = CASES[name].fit(CASES[name].columns)
    return aisle.mlp_model(KEY, *fitted, num_latents=2, hidden=(5,), **options)


def masks_of(number):
    """Return masks of which none, some and all are observed."""
    some = np.random.default_rng(1).random((3, number)) < 0.5
    return np.concatenate([np.zeros((1, number), bool), some, np.ones((1, number), bool)])


@over_few_cases
def test_what_is_missing_drops_out_with_its_gradient(name):
    model, _ = build(name, has_missing=True)
    x = jnp.asarray(CASES[name].columns[0], jnp.float32)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def masked(model, x, mask):
        return model.given(Context(mask)).log_likelihood(jnp.where(mask, x, jnp.nan), Z)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def wanted(model, x, mask):
        return mask.astype(x.dtype) @ model.likelihood.log_probs(x, model.decoder(Z))

    for mask in masks_of(len(x)):
        pairs = (jax.tree.leaves(f(model, x, mask)) for f in (masked, wanted))
        for left, right in zip(*pairs, strict=True):
            assert np.all(np.isfinite(left))
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


@over_cases
def test_an_encoder_sees_what_is_observed_and_nothing_else(name):
    _, proposal = build(name, has_missing=True)
    x = np.float32(CASES[name].columns[0])
    (first, *_) = proposal.network.layers
    num_features, num_inputs = len(x), first.in_features

    @eqx.filter_jit
    def locate(x, mask):
        return proposal.given(Context(mask))(x).loc

    @eqx.filter_jit
    def seen(x, mask):
        told = eqx.tree_at(lambda p: p.network, proposal, lambda a: jnp.concatenate([a, a]))
        return told.given(Context(mask))(x).loc

    for mask in masks_of(num_features):
        other = np.where(mask, x, CASES[name].columns[1]).astype(np.float32)
        gone = np.where(mask, x, np.nan).astype(np.float32)
        np.testing.assert_array_equal(locate(x, mask), locate(other, mask))
        np.testing.assert_array_equal(locate(x, mask), locate(gone, mask))
        inputs = np.asarray(seen(gone, mask))
        assert inputs.shape == (num_inputs,)
        np.testing.assert_array_equal(inputs[-num_features:], mask)
        assert mask.any() or not inputs[:-num_features].any()
    unbound = eqx.filter_jit(proposal)(jnp.asarray(x)).loc
    np.testing.assert_allclose(unbound, locate(x, np.ones(num_features, bool)), rtol=1e-5)


@pytest.mark.slow
def test_simulated_examples_have_the_masks_they_are_given():
    model, _ = build("gaussian", has_missing=True)
    masks = np.random.default_rng(0).random((50, 3)) < 0.6
    drawn = np.asarray(aisle.sample(model, 50, Context(masks)))
    np.testing.assert_array_equal(np.isnan(drawn), ~masks)
    np.testing.assert_array_equal(drawn[masks], aisle.sample(model, 50)[masks])


@pytest.mark.slow
def test_missing_pixels_are_left_out_and_seen_as_missing():
    x = np.random.default_rng(0).integers(0, 3, (40, 5, 4))
    fitted = aisle.Categorical.fitted(x, num_levels=3)
    sizes = {"shape": (5, 4), "num_latents": 2, "channels": (3,), "num_hidden": 6}
    model, proposal = aisle.convolutional_model(KEY, *fitted, has_missing=True, **sizes)
    mask = jnp.asarray(np.random.default_rng(1).random((5, 4)) < 0.5)
    own = eqx.filter_jit(model.given(Context(mask)).log_likelihood)
    encoder = eqx.filter_jit(proposal.given(Context(mask)))
    terms = model.likelihood.log_probs(jnp.asarray(x[0]).ravel(), model.decoder(Z))
    np.testing.assert_allclose(own(jnp.asarray(x[0]), Z), terms[mask.ravel()].sum(), rtol=1e-5)
    other = jnp.asarray(np.where(mask, x[0], x[1]))
    np.testing.assert_array_equal(encoder(jnp.asarray(x[0])).loc, encoder(other).loc)
    assert np.any(encoder(other).loc != eqx.filter_jit(proposal)(other).loc)
    assert model.given(Context(mask)).sample_observation(KEY, Z).shape == (5, 4)


def test_a_condition_follows_z_into_the_decoder_and_x_into_the_encoder():
    model, proposal = build("gaussian", num_conditions=3)
    condition = jnp.array([1.0, -2.0, 0.5])
    own, encoder = (
        model.given(Context(condition=condition)),
        proposal.given(Context(None, condition)),
    )
    x = jnp.asarray(CASES["gaussian"].columns[0], jnp.float32)
    output = model.decoder(jnp.concatenate([Z, condition]))
    np.testing.assert_allclose(own.mean_observation(Z), model.likelihood.mean(output))
    np.testing.assert_allclose(own.log_likelihood(x, Z), model.likelihood.log_prob(x, output))
    inputs = jnp.concatenate([proposal.likelihood.standardise(x), condition])
    np.testing.assert_allclose(encoder(x).loc, proposal.network(inputs)[:2], rtol=1e-6)
    # Labels may be whole numbers.
    whole = model.given(Context(condition=jnp.array([1, 0, 2])))
    assert np.isfinite(whole.log_likelihood(x, Z))


@pytest.mark.parametrize("name", ["poisson", pytest.param("columns", marks=pytest.mark.slow)])
def test_an_exposure_multiplies_the_means_of_counts(name):
    model, proposal = build(name, has_exposure=True, typical_exposure=2.0)
    output = model.decoder(Z)
    own = model.given(Context(exposure=jnp.array(3.0)))
    wanted = model.likelihood.mean(output, exposure=3.0)
    np.testing.assert_allclose(own.mean_observation(Z), wanted, rtol=1e-6)
    assert np.any(wanted != model.likelihood.mean(output))
    x = jnp.asarray(CASES[name].columns[0], jnp.float32)
    if name == "poisson":
        exact = scipy.stats.poisson(np.asarray(wanted, float)).logpmf(np.asarray(x)).sum()
        np.testing.assert_allclose(own.log_likelihood(x, Z), exact, rtol=1e-5)
    inputs = jnp.append(proposal.likelihood.standardise(x), jnp.log(3.0 / 2.0))
    found = proposal.given(Context(exposure=jnp.array(3.0)))(x).loc
    np.testing.assert_allclose(found, proposal.network(inputs)[:2], rtol=1e-5)


def test_conditions_are_standardised_inside():
    """A category becomes one-hot codes, and a number is in units of its column."""
    given = np.stack([np.tile([0.0, 2.0, 1.0, 1.0], 5), np.linspace(2000, 9000, 20)], axis=1)
    kinds = [(aisle.Categorical, [0]), (aisle.Gaussian, [1])]
    model, proposal = build("gaussian", conditions=aisle.Columns.fitted(given, kinds)[0])
    sizes = given[:, 1]
    seen = jnp.array([0.0, 0.0, 1.0, (sizes[1] - sizes.mean()) / sizes.std()])
    context = Context(condition=jnp.asarray(given[1], jnp.float32))
    wanted = model.likelihood.mean(model.decoder(jnp.concatenate([Z, seen])))
    np.testing.assert_allclose(model.given(context).mean_observation(Z), wanted, rtol=1e-4)
    x = jnp.asarray(CASES["gaussian"].columns[0], jnp.float32)
    inputs = jnp.concatenate([proposal.likelihood.standardise(x), seen])
    found = proposal.given(context)(x).loc
    np.testing.assert_allclose(found, proposal.network(inputs)[:2], rtol=1e-4)


def test_without_a_context_a_model_that_may_have_one_is_the_same():
    plain, knowing = build("gaussian"), build("gaussian", has_missing=True)
    x = jnp.asarray(CASES["gaussian"].columns[0], jnp.float32)
    found = [model.log_likelihood(x, Z) for model in (plain[0], knowing[0])]
    assert found[0] == found[1]
    assert (plain[0].has_missing, knowing[0].has_missing) == (False, True)


BAD = [
    ({}, {"label": 1}, r"^context is a dict: this model takes an aisle\.Context$"),
    (
        {},
        Context(condition=jnp.ones(2)),
        r"^context has a condition of shape \(2,\), but the model no",
    ),
    ({"num_conditions": 3}, Context(), r"^context has no condition, but the model a condition of"),
    (
        {"num_conditions": 3},
        Context(condition=jnp.ones(2)),
        r"shape \(2,\), but the model .*\(3,\)",
    ),
    ({}, Context(exposure=jnp.ones(())), r"^context has an exposure: give one if and only if"),
    ({"has_exposure": True}, Context(), r"^context has no exposure: give one if and only if"),
    ({}, Context(jnp.ones(3, bool)), r"^context has is_observed, but the model was built without"),
]


@pytest.mark.parametrize(("options", "context", "words"), BAD)
def test_a_context_that_does_not_fit_is_refused(options, context, words):
    for part in build("poisson", **options):
        with pytest.raises(InputError, match=words):
            part.given(context)


def test_what_the_model_needs_cannot_be_left_out():
    model, proposal = build("poisson", num_conditions=2)
    with pytest.raises(InputError, match=r"^context is not given, but the model takes conditions"):
        aisle.sample(model, 3)
    with pytest.raises(InputError, match=r"^context is not given, but the model takes conditions"):
        aisle.encode(proposal, CASES["poisson"].columns)
    with pytest.raises(
        InputError, match=r"^has_exposure is True, but a Gaussian likelihood has no"
    ):
        build("gaussian", has_exposure=True)


# The linear-Gaussian model, whose answers are known.
WEIGHT = np.array([[1.0, 0.5], [-0.5, 1.0], [1.5, -0.3], [0.2, 0.8]])
BIAS, SIGMA = np.array([0.2, 0.0, -1.0, 0.5]), 0.6
SHIFT = np.array([[1.0], [-2.0], [0.5], [0.0]])
LINEAR = aisle.LinearGaussian(
    *(jnp.asarray(a, jnp.float32) for a in (WEIGHT, BIAS, np.log(SIGMA), SHIFT))
)


@pytest.mark.slow
@pytest.mark.parametrize("mask", np.array(np.meshgrid(*[[False, True]] * 4)).reshape(4, -1).T)
def test_the_closed_form_of_any_observed_subset_is_that_of_its_block(mask):
    x, condition = np.array([0.7, -1.0, 2.0, 0.3]), np.array([1.5])
    model = LINEAR.given(Context(jnp.asarray(mask), jnp.asarray(condition, jnp.float32)))
    gone = jnp.asarray(np.where(mask, x, np.nan), jnp.float32)
    mean = (BIAS + SHIFT @ condition)[mask]
    block = WEIGHT[mask]
    covariance = block @ block.T + SIGMA**2 * np.eye(mask.sum())
    exact = scipy.stats.multivariate_normal(mean, covariance).logpdf(x[mask]) if mask.any() else 0
    np.testing.assert_allclose(model.log_marginal(gone), exact, rtol=1e-5, atol=1e-6)
    # Bayes' rule, which holds the likelihood and the posterior to the marginal.
    joint = model.log_prior(Z) + model.log_likelihood(gone, Z)
    found = joint - model.posterior(gone).log_prob(Z)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
    assert np.all(
        np.isfinite(
            jax.grad(lambda b: eqx.tree_at(lambda m: m.bias, model, b).log_marginal(gone))(
                model.bias
            )
        )
    )


def test_a_linear_gaussian_model_refuses_what_it_does_not_take():
    for context in ({}, Context(), Context(condition=jnp.ones(1), exposure=jnp.ones(()))):
        with pytest.raises(InputError, match=r"^context is .*: a LinearGaussian takes an aisle"):
            LINEAR.given(context)
