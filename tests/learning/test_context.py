"""Training on examples in contexts, with missing values, and with weights: exactly."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

import aisle
from aisle.context import Context
from aisle.data import Split
from aisle.errors import InputError
from aisle.learning import Losses, Metrics
from aisle.learning.batches import Chunk, Feeder
from contexts import MODEL, draw_contexts, draw_observations

pytestmark = pytest.mark.usefixtures("quick_compilation")

START = aisle.LinearGaussian(
    jnp.array([[0.3, 0.1], [0.2, -0.4], [0.1, 0.5], [0.6, 0.2]]), jnp.zeros(4), jnp.zeros(())
)
MASK = np.array([True, False, True, True])
# A batch that one device takes.
QUICK = {"batch_size": 11, "num_updates": 4, "optimizer": optax.adam(0.01), "show_progress": False}


class Encoder(eqx.Module):
    """Linear in what is observed."""

    weight: Array
    log_scale: Array
    is_observed: Array | None = None

    def given(self, context):
        return Encoder(self.weight, self.log_scale, context.is_observed)

    def __call__(self, x):
        x = x if self.is_observed is None else jnp.where(self.is_observed, x, 0)
        return aisle.DiagonalNormal(self.weight @ x, jnp.exp(self.log_scale))


ENCODER = Encoder(jnp.array([[0.3, 0.1, 0.2, 0.1], [0.0, -0.4, 0.1, 0.3]]), jnp.full(2, -0.3))


@pytest.mark.slow
@pytest.mark.parametrize("method", [aisle.DReG(2), aisle.AIS(2, 3)], ids=["dreg", "ais"])
def test_training_with_one_mask_is_training_on_what_it_leaves(method):
    x = np.random.default_rng(0).normal(size=(33, 4)).astype(np.float32)
    gone = np.where(MASK, x, np.nan)
    masks = np.broadcast_to(MASK, x.shape)
    full = aisle.fit(START, ENCODER, gone, Context(masks), method=method, **QUICK)
    small = aisle.LinearGaussian(START.weight[MASK], START.bias[MASK], START.log_sigma)
    encoder = Encoder(ENCODER.weight[:, MASK], ENCODER.log_scale)
    part = aisle.fit(small, encoder, x[:, MASK], method=method, **QUICK)
    pairs = [
        (full.model.weight[MASK], part.model.weight),
        (full.model.bias[MASK], part.model.bias),
        (full.model.log_sigma, part.model.log_sigma),
        (full.proposal.weight[:, MASK], part.proposal.weight),
        (full.proposal.log_scale, part.proposal.log_scale),
    ]
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    # What was never observed is not learned.
    np.testing.assert_array_equal(full.model.weight[~MASK], START.weight[~MASK])
    assert np.all(full.model.weight[MASK] != START.weight[MASK])


@dataclass(frozen=True)
class Exact:
    """Maximum likelihood by the closed form, which draws nothing."""

    num_gradients = 1

    def init(self):
        return ()

    def estimate(self, key, model, proposal, x, state):
        log_p = model.log_marginal(x)
        metrics = Metrics(log_p, jnp.ones(()), jnp.zeros(0), jnp.zeros(()))
        return Losses(-log_p, 0 * jnp.sum(proposal(x).loc)), metrics

    def adapt(self, state, metrics):
        return state


def one_step(x, weights=None, context=None, model=START):
    """Return the model after one step of gradient descent on all examples."""
    settings = {"method": Exact(), "optimizer": optax.sgd(0.1), "num_updates": 1}
    settings |= {"batch_size": len(x), "show_progress": False}
    return aisle.fit(model, ENCODER, Split(x, context=context, weights=weights), **settings).model


def test_a_weight_of_a_whole_number_is_so_many_copies():
    x = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32)
    weights = np.array([1, 3, 0, 2, 1, 1, 5, 1, 0, 2, 1])
    found, scaled = one_step(x, weights), one_step(x, 0.1 * weights)
    wanted, plain = one_step(np.repeat(x, weights, axis=0)), one_step(x)
    for name in ("weight", "bias", "log_sigma"):
        a, b = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        # Weights are relative.
        np.testing.assert_allclose(a, getattr(scaled, name), rtol=1e-5, atol=1e-6)
        assert np.all(np.abs(a - getattr(plain, name)) > 1e-4)
    equal = one_step(x, np.full(11, 3.0))
    np.testing.assert_allclose(equal.weight, plain.weight, rtol=1e-6)
    # And without any, a step is along the mean gradient.
    gradient = jax.jit(jax.grad(lambda m: jnp.mean(jax.vmap(m.log_marginal)(x))))(START)
    np.testing.assert_allclose(plain.weight, START.weight + 0.1 * gradient.weight, rtol=1e-4)


@pytest.mark.slow
def test_a_step_is_along_the_gradient_of_examples_in_their_contexts():
    contexts = draw_contexts(11, seed=2)
    x = draw_observations(contexts)

    def mean_log_p(model):
        def one(x, context):
            return model.given(context).log_marginal(x)

        return jnp.mean(jax.vmap(one)(x, jax.tree.map(jnp.asarray, contexts)))

    gradient = eqx.filter_grad(mean_log_p)(MODEL)
    found = one_step(x, context=contexts, model=MODEL)
    for name in ("weight", "bias", "log_sigma", "condition_weight"):
        wanted = getattr(MODEL, name) + 0.1 * getattr(gradient, name)
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("resident_bytes", [0, 1 << 30], ids=["streamed", "resident"])
def test_contexts_and_weights_go_with_their_examples(resident_bytes):
    number = np.arange(23.0)
    rows = np.arange(22, 0, -1)
    split = Split(
        number[:, None], rows, context={"label": 10 * number[:, None]}, weights=number + 1
    )
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("batch",))
    feeder = Feeder(split, 4, 0, mesh, resident_bytes=resident_bytes)
    batches = feeder.batches(Chunk(1, 3), None, 5)
    feeder.close()
    positions, indices = (np.asarray(a)[:3] for a in (batches.positions, batches.indices))
    np.testing.assert_array_equal(np.asarray(batches.examples.x)[positions][..., 0], indices)
    label = np.asarray(batches.examples.context["label"])[positions][..., 0]
    np.testing.assert_array_equal(label, 10 * indices)
    wanted = (indices + 1) / np.mean(rows + 1)
    np.testing.assert_allclose(np.asarray(batches.weights)[positions], wanted, rtol=1e-6)


def table(number=60):
    random = np.random.default_rng(0)
    x = random.normal(size=(number, 1)) * [1.0, -1.0, 2.0] + random.normal(size=(number, 3))
    return np.where(random.random(x.shape) < 0.3, np.nan, x).astype(np.float32)


@pytest.mark.slow
def test_nan_just_works_where_the_model_knows_of_it():
    x = table()
    options = {"num_latents": 1, "hidden": (4,), "has_missing": True}
    networks = aisle.mlp_model(jax.random.key(0), *aisle.Gaussian.fitted(x), **options)
    settings = QUICK | {"num_updates": 30}
    fitted = aisle.fit(*networks, x[:44], held_out=x[44:], method=aisle.VAE(), **settings)
    bounds = [row["bound"] for row in fitted.history if "bound" in row]
    assert np.all(np.isfinite(bounds))
    # By hand: the values that are there, and a mask.
    filled = np.nan_to_num(x)
    masks = Context(~np.isnan(x))
    held_out = aisle.Validation(filled[44:], context=jax.tree.map(lambda a: a[44:], masks))
    again = aisle.fit(
        *networks,
        filled[:44],
        jax.tree.map(lambda a: a[:44], masks),
        held_out=held_out,
        method=aisle.VAE(),
        **settings,
    )
    np.testing.assert_allclose([r["bound"] for r in again.history if "bound" in r], bounds)
    ours, theirs = (
        [r["held_out_bound"] for r in f.history if "held_out_bound" in r] for f in (fitted, again)
    )
    assert ours == theirs and ours


def test_nan_is_refused_where_the_model_does_not_know_of_it():
    x = table()
    options = {"num_latents": 1, "hidden": (4,)}
    networks = aisle.mlp_model(jax.random.key(0), *aisle.Gaussian.fitted(x), **options)
    with pytest.raises(InputError, match=r"has the value nan in row \d+: .*has_missing=True\)$"):
        aisle.fit(*networks, x, method=aisle.VAE(), **QUICK)
    with pytest.raises(InputError, match=r"the held-out data has the value nan"):
        aisle.fit(*networks, np.nan_to_num(x), held_out=x, method=aisle.VAE(), **QUICK)


def test_held_out_examples_need_a_context_if_the_others_have_one():
    contexts = draw_contexts(22)
    x = draw_observations(contexts)
    with pytest.raises(InputError, match=r"^either the held-out examples or those to train on"):
        aisle.fit(MODEL, ENCODER, x, contexts, held_out=np.zeros((5, 4)), method=Exact(), **QUICK)


@pytest.mark.slow
def test_a_run_resumes_with_its_context_only(tmp_path):
    contexts = draw_contexts(22)
    x = draw_observations(contexts)
    settings = QUICK | {"method": Exact(), "out": tmp_path / "run"}
    aisle.fit(MODEL, ENCODER, x, contexts, **settings)
    settings |= {"num_updates": 6, "resume": True}
    moved = contexts._replace(condition=contexts.condition + 1)
    with pytest.raises(InputError, match="the data are not those of"):
        aisle.fit(MODEL, ENCODER, x, moved, **settings)
    resumed = aisle.fit(MODEL, ENCODER, x, contexts, **settings)
    assert int(resumed.state.update) == 6
