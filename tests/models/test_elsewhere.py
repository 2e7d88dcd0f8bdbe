"""Weights from other frameworks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.models import transposed_kernel


def laid_down(x, weight, stride):
    """The definition that PyTorch documents: each input adds its multiple of the kernel."""
    _, outputs, height, width = weight.shape
    space = [(n - 1) * stride + k for n, k in zip(x.shape[1:], (height, width), strict=True)]
    y = np.zeros((outputs, *space))
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            place = np.s_[:, i * stride : i * stride + height, j * stride : j * stride + width]
            y[place] += np.einsum("c,cohw->ohw", x[:, i, j], weight)
    return y


@pytest.mark.parametrize("stride", [1, 2])
def test_a_transposed_convolution_of_pytorch_gives_the_same_answer(stride):
    generator = np.random.default_rng(0)
    weight, x = generator.normal(size=(2, 2, 3, 2)), generator.normal(size=(2, 4, 5))
    layer = eqx.nn.ConvTranspose2d(2, 2, (3, 2), stride, use_bias=False, key=jax.random.key(0))
    assert layer.weight.shape == weight.shape  # as they are, the weights fit, and are wrong
    moved = eqx.tree_at(lambda m: m.weight, layer, transposed_kernel(np.float32(weight)))
    np.testing.assert_allclose(
        moved(jnp.float32(x)), laid_down(x, weight, stride), rtol=1e-4, atol=1e-5
    )
