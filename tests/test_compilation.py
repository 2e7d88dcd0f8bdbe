import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.compilation import jit, remembered
from aisle.models import DiagonalNormal, PriorProposal, one_layer

TRACES = []


@jit
def total(part, x, how="sum"):
    TRACES.append(1)
    return getattr(jnp, how)(part.weight * x)


class Plain:
    """An object that JAX cannot look into."""

    weight = 2.0


@dataclasses.dataclass
class Unhashable:
    """Another one, which cannot be a constant of a compiled function."""

    weight: float = 2.0


class Known(eqx.Module):
    weight: jax.Array
    activation: object = jax.nn.relu


def test_an_object_that_was_changed_is_seen_as_it_is():
    for part in (Plain(), Unhashable()):
        assert total(part, jnp.ones(3)) == 6
        part.weight = 5.0
        assert total(part, jnp.ones(3)) == 15
        assert total(part, jnp.ones(3), how="max") == 5


def test_a_program_is_made_once_unless_its_key_may_change():
    made = []

    def make():
        made.append(1)
        return len(made)

    part = Plain()
    assert [remembered(("a", part), make) for _ in range(2)] == [1, 2]
    assert [remembered(("a", Unhashable()), make) for _ in range(2)] == [3, 4]
    assert [remembered(("a", jnp.tanh, 2.0), make) for _ in range(2)] == [5, 5]


def test_pytrees_share_a_compilation():
    before = len(TRACES)
    for weight in (2.0, 5.0):
        assert total(Known(jnp.array(weight)), jnp.ones(3)) == 3 * weight
    assert len(TRACES) == before + 1


@pytest.mark.slow
def test_models_of_the_library_share_a_compilation():
    traces = []

    @jit
    def density(key, model, proposal, x):
        traces.append(1)
        z = proposal(x).sample(key)
        return model.log_prior(z)

    x = jnp.zeros(4)
    for seed in (0, 1):
        model, encoder = one_layer(
            jax.random.key(seed), np.full(4, 0.5), num_latents=2, num_hidden=3
        )
        for proposal in (encoder, PriorProposal(model), around):
            density(jax.random.key(seed), model, proposal, x)
    assert len(traces) == 3


def around(x):
    return DiagonalNormal(x[:2], jnp.ones(2))
