"""Grey values have no log-likelihood under a model of bits, wherever they are given."""

import jax
import numpy as np
import pytest

import aisle
from aisle.errors import InputError

GREY = np.full((20, 6), 0.5, np.float32)
BITS = np.eye(20, 6, dtype=np.float32)
NETWORKS = aisle.one_layer(jax.random.key(0), BITS.mean(0), num_latents=2, num_hidden=4)
FEW = {"batch_size": 10, "num_epochs": 1, "show_progress": False}


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: aisle.fit(*NETWORKS, GREY, **FEW), "the data"),
        (lambda: aisle.fit(*NETWORKS, BITS, held_out=GREY, **FEW), "the held-out data"),
        (lambda: aisle.log_likelihood(*NETWORKS, GREY), "x"),
        (lambda: aisle.log_likelihood(*NETWORKS, BITS, pilot_x=GREY), "pilot_x"),
        (lambda: aisle.sample_posterior(*NETWORKS, GREY), "x"),
    ],
)
def test_grey_values_are_refused(call, what):
    with pytest.raises(InputError, match=rf"^{what} has the value 0\.5, but a Bernoulli"):
        call()


def test_whole_numbers_are_not_taken_for_grey_values():
    with pytest.raises(InputError, match=r"^x has the value 128, but a Bernoulli"):
        aisle.log_likelihood(*NETWORKS, np.uint8(256 * GREY))
