"""Whether a model, a proposal and an example belong together."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from aisle.errors import InputError
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.models.joint import check_density, check_observation, check_parts

MODEL = LinearGaussian(jnp.ones((3, 2)), jnp.zeros(3), jnp.zeros(()))
X = jnp.arange(3.0)


def encoder(x):
    return DiagonalNormal(jnp.zeros(2), jnp.ones(2))


class Made:
    """The model, with some methods of its own."""

    def __init__(self, **methods):
        for name in ("log_prior", "log_likelihood", "sample_prior", "sample_observation"):
            setattr(self, name, methods.get(name, getattr(MODEL, name)))


def test_parts_that_fit():
    for proposal in (encoder, lambda x: dist.Normal(jnp.zeros(2)).to_event()):
        check_parts(MODEL, proposal, X)
        check_parts(MODEL, proposal, jax.ShapeDtypeStruct((3,), jnp.float32))


# Each of these would be broadcast, and train to a believable number.
MISFITS = {
    "log_likelihood without a sum": (
        Made(log_likelihood=lambda x, z: dist.Normal(MODEL.weight @ z).log_prob(x)),
        encoder,
        r"^log_likelihood\(x, z\) has the shape \(3,\): it must be one number",
    ),
    "log_prior without a sum": (
        Made(log_prior=lambda z: dist.Normal().log_prob(z)),
        encoder,
        r"^log_prior\(z\) has the shape \(2,\): it must be one number",
    ),
    "NumPyro without to_event": (
        MODEL,
        lambda x: dist.Normal(jnp.zeros(2)),
        r"^log_prob\(z\) of the proposal has the shape \(2,\): .* to_event\(\)",
    ),
    "a latent too few": (
        MODEL,
        lambda x: DiagonalNormal(jnp.zeros(1), jnp.ones(1)),
        r"^a sample of the proposal has the shape \(1,\) but one of the prior \(2,\)",
    ),
    "moments instead of a distribution": (
        MODEL,
        lambda x: (jnp.zeros(2), jnp.ones(2)),
        r"^the proposal returns a tuple: return a distribution",
    ),
    "no proposal": (MODEL, None, r"^the proposal is a NoneType: give an encoder"),
}


@pytest.mark.parametrize(("own", "proposal", "words"), MISFITS.values(), ids=MISFITS)
def test_parts_that_do_not_fit(own, proposal, words):
    with pytest.raises(InputError, match=words) as caught:
        check_parts(own, proposal, X)
    assert "\n" not in str(caught.value)


def test_something_else_than_a_model():
    with pytest.raises(InputError, match=r"the model, a function, has no log_prior: give an obj"):
        check_observation(encoder, X, "x")


def test_densities_that_are_not_numbers():
    wrong = SimpleNamespace(sample=lambda key: jnp.zeros(2), log_prob=lambda z: jnp.log(-1.0))
    with pytest.raises(InputError, match=r"^log_prob\(z\) of the proposal is not a number"):
        check_density(MODEL, lambda x: wrong, X)
    check_density(Made(log_likelihood=lambda x, z: jnp.array(-np.inf)), encoder, X)
