"""Grey values have no log-likelihood under a model of bits, wherever they are given."""

import jax
import numpy as np
import pytest

import aisle
from aisle.errors import InputError

GREY = np.full((20, 6), 0.5, np.float32)
BITS = np.eye(20, 6, dtype=np.float32)
FEW = {"batch_size": 10, "num_epochs": 1, "show_progress": False}


@pytest.fixture(scope="module")
def networks(compiled_quickly):
    return aisle.one_layer(jax.random.key(0), BITS.mean(0), num_latents=2, num_hidden=4)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda n: aisle.fit(*n, GREY, **FEW), "the data"),
        (lambda n: aisle.fit(*n, BITS, held_out=GREY, **FEW), "the held-out data"),
        (lambda n: aisle.log_likelihood(*n, GREY), "x"),
        (lambda n: aisle.log_likelihood(*n, BITS, pilot_x=GREY), "pilot_x"),
        (lambda n: aisle.sample_posterior(*n, GREY), "x"),
    ],
)
def test_grey_values_are_refused(networks, call, what):
    with pytest.raises(InputError, match=rf"^{what} has the value 0\.5, but a Bernoulli"):
        call(networks)


def test_whole_numbers_are_not_taken_for_grey_values(networks):
    with pytest.raises(InputError, match=r"^x has the value 128, but a Bernoulli"):
        aisle.log_likelihood(*networks, np.uint8(256 * GREY))
