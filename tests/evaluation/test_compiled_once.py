"""A second evaluation of the same shapes compiles nothing, and objects are seen as they are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle import compilation, log_likelihood, sample_posterior
from aisle.models import LinearGaussian
from evaluating import chosen
from measures import compilations

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")

MODEL = LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.zeros(()))
XS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
OPTIONS = {"num_temperatures": 2, "num_simulated": 3, "importance_samples": 2}
FORWARD = {"num_simulated": 0, "importance_samples": 0}


def evaluate(model=MODEL, x=XS, **changes):
    return log_likelihood(model, None, x, **chosen(**OPTIONS | changes))


@pytest.mark.usefixtures("untuned")
def test_a_second_evaluation_of_the_same_shapes_compiles_nothing():
    assert_compiled_once(**FORWARD)


@pytest.mark.slow
def test_so_does_one_with_pilot_certificate_and_importance_sampling():
    assert_compiled_once()


def assert_compiled_once(**options):
    with compilations() as first:
        before = evaluate(**options)
    assert first
    others = eqx.tree_at(lambda m: m.bias, MODEL, jnp.array([0.3, 0.1, -0.2]))
    with compilations() as second:
        again = evaluate(**options)
        changed = evaluate(others, XS + 1, seed=5, **options)
    assert second == []
    np.testing.assert_array_equal(again.log_p, before.log_p)
    assert np.all(changed.log_p != before.log_p)
    exact = jax.vmap(others.log_marginal)(jnp.asarray(XS + 1))
    assert abs(changed.log_p.mean() - exact.mean()) < 1


@pytest.mark.slow
@pytest.mark.usefixtures("untuned")
def test_other_shapes_and_types_have_programs_of_their_own():
    found = evaluate(x=XS[:2], **FORWARD)
    with compilations() as others:
        evaluate(x=XS[:2].astype(np.float16), **FORWARD)
    assert others
    np.testing.assert_allclose(evaluate(x=XS[:2], **FORWARD).log_p, found.log_p)


@pytest.mark.slow
@pytest.mark.usefixtures("untuned")
def test_few_programs_are_kept(monkeypatch):
    monkeypatch.setattr(compilation, "_PROGRAMS", {})
    monkeypatch.setattr(compilation, "_MAX_PROGRAMS", 1)
    evaluate(importance_samples=0)
    assert len(compilation._PROGRAMS) == 1


@pytest.mark.slow
def test_a_second_draw_from_the_posterior_compiles_nothing():
    sample_posterior(MODEL, None, XS)
    with compilations() as second:
        sample_posterior(MODEL, None, XS + 1, seed=4)
    assert second == []


class Plain:
    """A model that JAX cannot look into; its parts are those of another."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.mark.slow
@pytest.mark.usefixtures("untuned")
def test_an_object_that_was_changed_between_calls_is_seen_as_it_is():
    plain, moved = Plain(MODEL), eqx.tree_at(lambda m: m.bias, MODEL, jnp.full(3, 2.0))
    first = evaluate(plain, **FORWARD)
    plain.inner = moved
    second = evaluate(plain, **FORWARD)
    np.testing.assert_allclose(first.log_p, evaluate(MODEL, **FORWARD).log_p, rtol=1e-5)
    np.testing.assert_allclose(second.log_p, evaluate(moved, **FORWARD).log_p, rtol=1e-5)
    assert np.all(first.log_p != second.log_p)
