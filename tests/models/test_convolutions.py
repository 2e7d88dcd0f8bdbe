"""Convolutions with the channels last against Equinox's layers, which have them first."""

import jax
import numpy as np
import pytest

from aisle.models.convolutions import ConvolutionalDecoder, ConvolutionalEncoder

KEY, CHANNELS = jax.random.key(0), (2, 3)
# Odd sizes; several colours; several numbers for each feature.
SHAPES = [pytest.param((5, 7, 1), 1, marks=pytest.mark.slow), ((4, 6, 3), 2)]


@pytest.mark.parametrize(("shape", "numbers"), SHAPES)
def test_the_decoder_is_that_of_equinox(shape, numbers):
    height, width, colours = shape
    bias = np.arange(numbers * height * width * colours) / 7
    decoder = ConvolutionalDecoder(KEY, 2, 4, CHANNELS, shape, bias, jax.nn.elu)
    z = jax.random.normal(KEY, (2,))
    hidden = decoder.head(z).reshape(3, -(-height // 4), -(-width // 4))
    first, second = decoder.layers
    hidden = first(jax.nn.elu(hidden))[:, : -(-height // 2), : -(-width // 2)]
    hidden = second(jax.nn.elu(hidden))[:, :height, :width]
    expected = hidden.reshape(numbers, colours, height, width).transpose(0, 2, 3, 1).ravel() + bias
    np.testing.assert_allclose(decoder(z), expected, rtol=1e-5)


@pytest.mark.parametrize(("shape", "numbers"), SHAPES)
def test_the_encoder_is_that_of_equinox(shape, numbers):
    height, width, colours = shape
    x = jax.random.normal(KEY, (numbers * height * width * colours,))
    encoder = ConvolutionalEncoder(KEY, shape, len(x), CHANNELS, 4, 6, jax.nn.elu)
    hidden = x.reshape(numbers, height, width, colours).transpose(0, 3, 1, 2)
    hidden = hidden.reshape(-1, height, width)
    for layer in encoder.layers:
        hidden = jax.nn.elu(layer(hidden))
    np.testing.assert_allclose(encoder(x), encoder.head(hidden.ravel()), rtol=1e-5, atol=1e-6)
