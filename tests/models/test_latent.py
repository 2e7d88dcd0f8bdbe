import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.errors import InputError
from aisle.learning.preparing import trained_arrays
from aisle.models.convolutions import ConvolutionalDecoder, sizes_of
from aisle.models.likelihoods import Units
from aisle.types import Model, Proposal
from families import CASES, over_few_cases

KEY = jax.random.key(0)


def build(name, **options):
    fitted = CASES[name].fit(CASES[name].columns)
    return aisle.mlp_model(KEY, *fitted, num_latents=2, hidden=(5, 7), **options)


def pictures(shape, levels=None):
    random = np.random.default_rng(0)
    if levels is not None:
        x = random.integers(0, levels, (50, *shape))
        return x, aisle.Categorical.fitted(x, num_levels=levels)
    x = random.normal(size=(50, *shape)) + np.arange(np.prod(shape)).reshape(shape)
    return x, aisle.Gaussian.fitted(x, scale="of z")


def convolved(shape, fitted, **options):
    sizes = {"num_latents": 2, "channels": (3, 4), "num_hidden": 6} | options
    return aisle.convolutional_model(KEY, *fitted, shape=shape, **sizes)


@over_few_cases
def test_a_model_of_any_family_has_the_protocol(name):
    fitted = CASES[name].fit(CASES[name].columns)

    @eqx.filter_jit
    def everything(likelihood, x):
        model, proposal = aisle.mlp_model(KEY, likelihood, fitted[1], num_latents=2, hidden=(5,))
        assert isinstance(model, Model) and isinstance(proposal, Proposal)
        q = proposal(x)
        z = q.sample(KEY)
        return {
            "latents": (z, q.scale, model.sample_prior(KEY)),
            "examples": (model.sample_observation(KEY, z), model.mean_observation(z)),
            "scalars": (model.log_prior(z), model.log_likelihood(x, z), q.log_prob(z)),
        }

    x = jnp.asarray(CASES[name].columns[0], jnp.float32)
    found = everything(fitted[0], x)
    shapes = {"latents": (2,), "examples": x.shape, "scalars": ()}
    for kind, values in found.items():
        assert [value.shape for value in values] == [shapes[kind]] * len(values)
        assert all(np.all(np.isfinite(value)) for value in values)


@over_few_cases
def test_a_decoder_without_weights_is_the_independent_model(name):
    fitted, output = CASES[name].fit(CASES[name].columns)
    x, z = jnp.asarray(CASES[name].columns[0], jnp.float32), jnp.array([0.7, -2.0])

    @eqx.filter_jit
    def values(likelihood):
        model, _ = aisle.mlp_model(KEY, likelihood, output, num_latents=2, hidden=(5,))
        empty = jax.tree.map(lambda a: 0 * a if a.ndim == 2 else a, model.decoder)
        emptied = eqx.tree_at(lambda m: m.decoder, model, empty)
        plain = likelihood.log_prob(x, jnp.asarray(output, jnp.float32))
        return emptied.log_likelihood(x, z), plain

    found, wanted = values(fitted)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.slow
def test_widths_and_activation_are_as_given():
    model, proposal = build("gaussian", activation=jax.nn.softplus)

    def widths(network):
        return [network.layers[0].in_features, *(m.out_features for m in network.layers)]

    assert widths(model.decoder) == [2, 5, 7, 3]
    assert widths(proposal.network) == [3, 7, 5, 4]
    z = np.array([0.5, -1.0], np.float32)
    for layer in model.decoder.layers[:-1]:
        z = np.log1p(np.exp(np.asarray(layer.weight) @ z + np.asarray(layer.bias)))
    last = model.decoder.layers[-1]
    wanted = np.asarray(last.weight) @ z + np.asarray(last.bias)
    np.testing.assert_allclose(model.decoder(jnp.array([0.5, -1.0])), wanted, rtol=1e-5)


def test_an_encoder_shares_no_array_with_the_model_and_learns_no_likelihood():
    """Two places with one array could not be donated to a computation."""
    model, proposal = build("columns")
    (model_arrays, proposal_arrays), _ = trained_arrays(model, proposal)
    ours, theirs = ({id(a) for a in jax.tree.leaves(t)} for t in (model_arrays, proposal_arrays))
    assert not ours & theirs
    nodes = jax.tree.leaves(proposal.likelihood, is_leaf=lambda n: isinstance(n, Units))
    assert len(nodes) == 1 and isinstance(nodes[0], Units)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zero-inflated", "columns"])
def test_training_raises_the_bound_and_leaves_units_alone(name):
    model, proposal = build(name)
    x = np.float32(CASES[name].columns)
    fitted = aisle.fit(
        model,
        proposal,
        x,
        method=aisle.VAE(),
        optimizer=aisle.Adam(0.01),
        num_updates=60,
        batch_size=50,
    )
    bounds = [row["bound"] for row in fitted.history if "bound" in row]
    assert np.mean(bounds[-10:]) > np.mean(bounds[:5])

    def units(tree):
        nodes = jax.tree.leaves(tree, is_leaf=lambda n: isinstance(n, Units))
        return [a for node in nodes if isinstance(node, Units) for a in jax.tree.leaves(node)]

    before, after = units((model, proposal)), units((fitted.model, fitted.proposal))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 8), (9, 7), (1, 5), (6, 5, 3)])
def test_pictures_of_any_size(shape):
    x, fitted = pictures(shape)
    model, proposal = convolved(shape, fitted)
    assert model.decoder(jnp.zeros(2)).shape == (2 * np.prod(shape),)
    q = proposal(jnp.asarray(x[0]))
    assert q.loc.shape == q.scale.shape == (2,)
    drawn = model.sample_observation(KEY, q.loc)
    assert drawn.shape == model.mean_observation(q.loc).shape == shape
    assert np.isfinite(model.log_likelihood(drawn, q.loc))


def test_sizes_are_halved_upwards():
    assert sizes_of((9, 7, 1), 3) == [(9, 7), (5, 4), (3, 2), (2, 1)]


@pytest.mark.slow
def test_a_decoder_of_pictures_starts_from_the_independent_model():
    """Without weights each pixel has its own mean, in the place of its pixel."""
    x, fitted = pictures((6, 5, 3))
    model, _ = convolved((6, 5, 3), fitted)
    empty = jax.tree.map(lambda a: 0 * a if a.ndim == 4 else a, model.decoder)
    mean = eqx.tree_at(lambda m: m.decoder, model, empty).mean_observation(jnp.ones(2))
    np.testing.assert_allclose(mean, x.mean(axis=0), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_decoder_of_pictures_is_local_in_its_last_layers():
    """A change in one place of the hidden picture moves neighbours in both parameters alone."""
    shape = (8, 8, 2)
    bias = np.zeros(2 * 8 * 8 * 2)
    decoder = ConvolutionalDecoder(KEY, 2, 4, (3,), shape, bias, jax.nn.elu)

    def output(hidden):
        fixed = eqx.tree_at(lambda d: d.head, decoder, lambda _: hidden)
        return fixed(jnp.zeros(2)).reshape(2, 8, 8, 2)

    base = jnp.zeros((3, 4, 4))
    moved = np.asarray(output(base.at[1, 2, 0].set(1.0)) - output(base)) != 0
    rows, columns = (np.flatnonzero(moved.any(axis=axes)) for axes in ((0, 2, 3), (0, 1, 3)))
    assert rows.tolist() == [3, 4, 5, 6] and columns.tolist() == [0, 1, 2]
    assert moved[:, 3:7, 0:3].all()


@pytest.mark.slow
def test_an_encoder_of_pictures_sees_each_level_of_a_pixel_in_its_place(monkeypatch):
    """A picture of categories is one channel for each level, by rows and columns."""
    shape = (4, 4, 2)
    x, fitted = pictures(shape, levels=3)
    _, proposal = convolved(shape, fitted, channels=(3,))
    seen = []

    def first(layer, picture):
        seen.append(np.asarray(picture))
        return jnp.zeros((2, 2, 3))

    monkeypatch.setattr("aisle.models.convolutions._halved", first)
    proposal.network(proposal.likelihood.standardise(jnp.asarray(x[0]).ravel()))
    wanted = [x[0][:, :, c] == level for level in range(3) for c in range(2)]
    np.testing.assert_array_equal(seen[0], np.stack(wanted, axis=-1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (4, 4)}, "^shape is .* but the likelihood is of 9 numbers"),
        ({"shape": (9,)}, "^shape is .* but the likelihood is of 9 numbers"),
        ({"channels": (3, 0)}, "^channels is 0: it must be at least 1"),
        ({"num_latents": 0}, "^num_latents is 0"),
    ],
)
def test_sizes_that_do_not_fit(options, message):
    given = {"shape": (3, 3)} | options
    x = np.random.default_rng(0).normal(size=(5, 9))
    with pytest.raises(InputError, match=message):
        aisle.convolutional_model(KEY, *aisle.Gaussian.fitted(x), **given)


def test_an_output_that_is_of_another_likelihood():
    likelihood, output = aisle.Gaussian.fitted(np.eye(4))
    with pytest.raises(
        InputError, match=r"^output has the shape \(3,\) but the likelihood takes 4"
    ):
        aisle.mlp_model(KEY, likelihood, output[:3])


def test_pictures_of_features_that_differ():
    uneven = aisle.Categorical.fitted(np.array([[0, 1], [0, 2]]))
    with pytest.raises(InputError, match=r"^likelihood is a Categorical whose features are not"):
        aisle.convolutional_model(KEY, *uneven, shape=(1, 2))
