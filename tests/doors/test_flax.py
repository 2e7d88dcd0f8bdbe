"""Networks of Flax, of both kinds."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.errors import InputError

nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed: make test-doors has it")
linen = pytest.importorskip("flax.linen")

pytestmark = pytest.mark.usefixtures("quick_compilation")


class NNXDecoder(nnx.Module):
    def __init__(self, rngs, size=6):
        self.first, self.norm = nnx.Linear(2, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.dropout, self.last = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(4, size, rngs=rngs)

    def __call__(self, z):
        return self.last(self.dropout(jnp.tanh(self.norm(self.first(z)))))


class LinenDecoder(linen.Module):
    is_training: bool = False

    @linen.compact
    def __call__(self, z):
        hidden = linen.BatchNorm(use_running_average=not self.is_training)(linen.Dense(4)(z))
        return linen.Dense(6)(jnp.tanh(hidden)).reshape(-1, 2, 3)


def nnx_decoder(size=6):
    decoder = NNXDecoder(nnx.Rngs(0), size)
    decoder.norm.mean[...] = jnp.linspace(-1, 1, 4)
    decoder.eval()
    return decoder


def linen_variables():
    variables = LinenDecoder().init(jax.random.key(0), jnp.zeros((1, 2)))
    mean = {"BatchNorm_0": {**variables["batch_stats"]["BatchNorm_0"], "mean": jnp.full(4, 0.3)}}
    return {**variables, "batch_stats": mean}


def test_a_module_of_nnx_gives_the_same():
    decoder, z = nnx_decoder(), jnp.array([[0.5, -1.0], [2.0, 0.1]])
    model, _ = aisle.from_flax(decoder, num_latents=2)
    np.testing.assert_allclose(jax.vmap(model.decoder)(z), decoder(z), rtol=1e-5)
    assert model.shape == (6,)


def test_a_module_of_linen_gives_the_same():
    variables, z = linen_variables(), jnp.array([[0.5, -1.0], [2.0, 0.1]])
    model, _ = aisle.from_flax(LinenDecoder().bind(variables), num_latents=2)
    wanted = LinenDecoder().apply(variables, z)
    np.testing.assert_allclose(jax.vmap(model.decoder)(z), wanted.reshape(2, 6), rtol=1e-5)
    assert model.shape == (2, 3)


def learned(decoder):
    """Return a model whose weights were changed along their gradient, as by a step of training."""
    model, _ = aisle.from_flax(decoder, num_latents=2)
    x, z = jnp.ones(model.shape), jnp.array([0.5, -1.0])
    gradient = eqx.filter_grad(lambda model: model.log_likelihood(x, z))(model)
    assert all(np.all(leaf == 0) for leaf in floats(gradient.decoder.constants))
    assert all(np.any(leaf != 0) for leaf in floats(gradient.decoder.weights))
    return model, eqx.apply_updates(model, gradient)


def floats(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]


def test_weights_go_back_to_nnx():
    decoder, z = nnx_decoder(), jnp.array([0.5, -1.0])
    before, after = learned(decoder)
    np.testing.assert_allclose(decoder(z[None])[0], before.decoder(z), rtol=1e-5)
    nnx.update(decoder, after.decoder.weights)
    np.testing.assert_allclose(decoder(z[None])[0], after.decoder(z), rtol=1e-5)
    assert not np.allclose(before.decoder(z), after.decoder(z))


def test_weights_go_back_to_linen():
    variables, z = linen_variables(), jnp.array([0.5, -1.0])
    before, after = learned(LinenDecoder().bind(variables))
    found = LinenDecoder().apply({**variables, "params": after.decoder.weights}, z[None])
    np.testing.assert_allclose(found.ravel(), after.decoder(z), rtol=1e-5)
    assert not np.allclose(before.decoder(z), after.decoder(z))


def test_an_encoder_gives_means_and_logarithms_of_variances():
    encoder = nnx.Linear(6, 4, rngs=nnx.Rngs(1))
    variables = linen_variables()
    model, proposal = aisle.from_flax(
        LinenDecoder().bind(variables), encoder=encoder, num_latents=2
    )
    x = aisle.sample(model, 1)[0]
    mean, log_variance = jnp.split(encoder(x.reshape(1, 6))[0], 2)
    q = proposal(x)
    np.testing.assert_allclose(q.loc, mean, rtol=1e-5)
    np.testing.assert_allclose(q.scale, jnp.exp(log_variance / 2), rtol=1e-5)


def in_training(**off):
    decoder = nnx_decoder()
    decoder.train(**off)
    return decoder


@pytest.mark.parametrize(
    ("decoder", "words"),
    [
        (in_training, "outputs of the decoder differ .* in a batch"),
        (lambda: LinenDecoder(), "decoder is a LinenDecoder without its variables"),
        (lambda: len, "decoder is a builtin_function_or_method without its variables"),
        (
            lambda: LinenDecoder(is_training=True).bind(linen_variables()),
            "decoder does not take a batch of the shape",
        ),
        (lambda: nnx.Linear(3, 4, rngs=nnx.Rngs(0)), r"does not take a batch of the shape \(5, 2"),
    ],
)
def test_what_cannot_be_taken(decoder, words):
    with pytest.raises(InputError, match=words) as caught:
        aisle.from_flax(decoder(), num_latents=2)
    assert "\n" not in str(caught.value)
