import logging
import re
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

import aisle
from aisle import compilation
from aisle.annealing import HMC, Kernel
from aisle.errors import TrainingError
from aisle.learning import AIS, VAE, Adam, EarlyStopping, Phase, Recipe, Validation, loop, rates
from aisle.learning.looks import Bounder
from aisle.learning.preparing import trained_arrays
from aisle.models import LinearGaussian, PriorProposal
from aisle.runs import checkpoints
from aisle.runs.folder import read_metrics
from estimating import Reweighted
from fitting import DATA, QUICK, START, TRUTH, assert_identical, encoder

pytestmark = pytest.mark.usefixtures("quick_compilation")

fit = aisle.fit


def mean_log_marginal(model, data):
    return float(jax.vmap(model.log_marginal)(jnp.asarray(data, jnp.float32)).mean())


def best_mean_log_marginal(data):
    """The highest that any linear-Gaussian model reaches: Tipping & Bishop (1999), one latent."""
    spectrum = np.linalg.eigvalsh(np.cov(data.T, bias=True))
    noise = spectrum[:-1].mean()
    log_determinant = np.log(spectrum[-1]) + 2 * np.log(noise)
    return -0.5 * (3 * np.log(2 * np.pi) + log_determinant + 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [AIS(4, 2, Kernel.paper(transition=HMC(2))), aisle.DReG(4)], ids=["ais", "dreg"]
)
def test_training_finds_the_maximum_of_the_likelihood(method):
    recipe = Recipe([Phase(method, Adam(0.05, rates.cosine))], average=0.98)
    fitted = fit(
        START,
        encoder(),
        DATA,
        method=recipe,
        num_epochs=60,
        batch_size=31,
        show_progress=False,
    )
    best = best_mean_log_marginal(DATA)
    assert mean_log_marginal(TRUTH, DATA) < best
    assert mean_log_marginal(START, DATA) < best - 1
    assert -0.01 < best - mean_log_marginal(fitted.model, DATA) < 0.01
    assert fitted.state.num_skipped == 0
    # The encoder finds the posterior, so that the bound is the likelihood.
    last = [record["bound"] for record in fitted.history[-10:]]
    assert abs(np.mean(last) - best) < 0.05
    # The caller's model is as it was.
    np.testing.assert_array_equal(START.weight, np.float32([[0.3], [0.2], [0.1]]))
    assert re.fullmatch(r"600 updates, bound -\d\.\d\d nats", repr(fitted))


def test_averaged_weights_are_those_that_are_measured_and_returned():
    held_out = np.concatenate([DATA, DATA, 5 + DATA])
    recipe = Recipe([Phase(QUICK["method"], QUICK["optimizer"])], average=0.9)
    options = QUICK | {"method": recipe, "optimizer": None}
    fitted = fit(START, encoder(), DATA, held_out=Validation(held_out, keep="last"), **options)
    trained = trained_arrays(fitted.model, fitted.proposal)[0]
    assert_identical(trained, fitted.state.average)
    assert np.all(np.asarray(fitted.model.weight) != np.asarray(fitted.state.params[0].weight))
    # From all over the held-out examples, of which only a part is used.
    last = fitted.history[-1]
    key = jax.random.fold_in(jax.random.key(0), 2**32 - 1)
    weights = (fitted.model, fitted.proposal)
    bound = Bounder(held_out[np.arange(512) * 960 // 512], key)(QUICK["method"], weights, ())
    assert last["held_out_examples"] == 512
    np.testing.assert_allclose(last["held_out_bound"], bound.mean, rtol=0.02)
    assert re.search(r"^58 updates, last held-out bound -\d+\.\d\d \+- 0\.\d\d nats$", repr(fitted))


class Pictures(eqx.Module):
    """A model that takes examples of the shape (4, 3) and no other."""

    mean: Array

    def log_prior(self, z):
        return -jnp.sum(z**2) / 2

    def log_likelihood(self, x, z):
        assert x.shape == (4, 3)
        return -jnp.sum((x - self.mean - z[0]) ** 2) / 2

    def sample_prior(self, key):
        return jax.random.normal(key, (1,))

    def sample_observation(self, key, z):
        return self.mean + z[0] + jax.random.normal(key, (4, 3))


@pytest.fixture(scope="module")
def pictures():
    """A run with all that a model may meet: two phases, chains, held-out data, two devices."""
    data = np.random.default_rng(0).normal(size=(88, 4, 3)).astype(np.float32)
    annealing = AIS(2, 2, Kernel.paper(transition=HMC(3), target_accept=0.999))
    recipe = Recipe([Phase(VAE(), Adam(), 2.0), Phase(annealing, Adam(), 3.0)])
    options = {"method": recipe, "batch_size": 22, "num_epochs": 5, "show_progress": False}
    model = Pictures(jnp.zeros((4, 3)))
    return fit(model, encoder(12), data, held_out=Validation(data[:6], every=2), **options)


@pytest.mark.slow
def test_the_model_gets_examples_in_the_shape_of_the_array(pictures):
    assert pictures.model.mean.shape == (4, 3)
    assert np.all(np.asarray(pictures.model.mean) != 0)


@pytest.mark.slow
def test_gradients_are_counted_by_phase(pictures):
    updates = [record for record in pictures.history if "bound" in record]
    assert [record["update"] for record in updates] == list(range(1, 21))
    np.testing.assert_allclose([r["epoch"] for r in updates], np.arange(1, 21) / 4)
    assert [record["phase"] for record in updates] == [0] * 8 + [1] * 12
    # By vae one gradient an example; by ais those of K chains with T x L steps, their ends, phi.
    spent = np.cumsum([22] * 8 + [22 * (2 * (2 + 2 * 3) + 1)] * 12)
    assert [record["decoder_gradients"] for record in updates] == spent.tolist()
    assert [np.size(record["acceptance"]) for record in updates] == [0] * 8 + [2] * 12
    assert [np.size(record["step_size"]) for record in updates] == [0] * 8 + [2] * 12


@pytest.mark.slow
def test_step_sizes_move_towards_the_acceptance_asked_for(pictures):
    """Each by one factor an update, up where more is accepted than asked for and else down."""
    updates = [r for r in pictures.history if r["phase"] == 1 and "bound" in r]
    is_above = np.array([record["acceptance"] > 0.999 for record in updates])
    sizes = np.array([record["step_size"] for record in updates])
    factors = np.where(is_above, 1.002, 0.998)[:-1]
    np.testing.assert_allclose(sizes[1:] / sizes[:-1], factors, rtol=1e-5)


@pytest.mark.slow
def test_held_out_data_are_bounded_every_few_epochs_and_at_the_end(pictures):
    held_out = [record for record in pictures.history if "held_out_bound" in record]
    assert [record["epoch"] for record in held_out] == [2, 4, 5]
    assert [record["update"] for record in held_out] == [8, 16, 20]
    spent = [176, 176 + 8 * 374, 176 + 12 * 374]
    assert [record["decoder_gradients"] for record in held_out] == spent
    assert all(record["held_out_examples"] == 6 for record in held_out)
    assert all(record["held_out_standard_error"] > 0 for record in held_out)


class Mixed(eqx.Module):
    """Three categories and a real number; the latent has no say, so that log p(x) is known."""

    logits: Array
    mean: Array

    def log_prior(self, z):
        return -jnp.sum(z**2) / 2 - jnp.log(2 * jnp.pi) / 2

    def log_likelihood(self, x, z):
        assert (x["kind"].dtype, x["size"].dtype) == (jnp.uint8, jnp.float32)
        log_chance = jax.nn.log_softmax(self.logits)[x["kind"]]
        return log_chance - (x["size"] - self.mean) ** 2 / 2 - jnp.log(2 * jnp.pi) / 2

    def sample_prior(self, key):
        return jax.random.normal(key, (1,))

    def sample_observation(self, key, z):
        kind = jax.random.categorical(key, self.logits).astype(jnp.uint8)
        return {"kind": kind, "size": self.mean + jax.random.normal(key)}


def test_examples_are_any_pytree_and_keep_their_types():
    """Each batch has all examples, and q is the prior: the first bound is the exact log p(x)."""
    kind = np.random.default_rng(0).integers(0, 3, 40).astype(np.uint8)
    size = np.random.default_rng(1).normal(size=40)
    logits = np.array([0.5, -1.0, 0.2])
    model = Mixed(jnp.asarray(logits, jnp.float32), jnp.zeros(()))
    options = {"method": VAE(), "optimizer": optax.sgd(0.1), "num_updates": 3, "batch_size": 40}
    x = {"kind": kind, "size": size}
    fitted = fit(model, PriorProposal(model), x, show_progress=False, **options)
    log_chance = logits - np.log(np.exp(logits).sum())
    exact = np.mean(log_chance[kind] - size**2 / 2 - np.log(2 * np.pi) / 2)
    np.testing.assert_allclose(fitted.history[0]["bound"], exact, rtol=1e-5)
    assert fitted.history[-1]["bound"] > exact


@pytest.mark.slow
def test_a_method_and_an_optimiser_of_ones_own():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01))
    options = QUICK | {"method": Reweighted(), "optimizer": optimizer}
    fitted = fit(START, encoder(), DATA, **options)
    # Its state counts the updates.
    assert fitted.state.method == 58 == fitted.state.update
    bounds = [record["bound"] for record in fitted.history]
    assert np.mean(bounds[-5:]) > np.mean(bounds[:5])
    assert fitted.history[-1]["decoder_gradients"] == 58 * 11 * 2


@pytest.mark.parametrize(
    "method",
    [VAE(), pytest.param(AIS(1, 2, Kernel.paper(transition=HMC(1))), marks=pytest.mark.slow)],
)
def test_training_is_compiled_once_and_not_again_for_the_same_shapes(method, caplog, monkeypatch):
    # What is not trained is an argument of the program, too: another value is heeded.
    options = QUICK | {"method": method, "optimizer": Adam(0.01), "freeze": lambda m, _: m.bias}
    other = eqx.tree_at(lambda m: m.bias, START, jnp.ones(3))

    def second():
        return fit(other, encoder(), DATA + 1, held_out=DATA[4:8], seed=1, **options)

    with caplog.at_level(logging.WARNING), jax.log_compiles():
        fit(START, encoder(), DATA, held_out=DATA[:4], **options)
        # The weakly typed number in START makes no second program.
        assert START.log_sigma.weak_type
        compiled = [m for m in caplog.messages if "Finished XLA compilation of jit(chunk)" in m]
        assert len(compiled) == 1
        caplog.clear()
        fitted = second()
    assert [m for m in caplog.messages if "Finished XLA compilation of" in m] == []
    np.testing.assert_array_equal(fitted.model.bias, jnp.ones(3))
    monkeypatch.setattr(compilation, "_PROGRAMS", {})
    assert_identical(fitted.state, second().state)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_callbacks_look_after_each_epoch_and_early_stopping_ends_training(keep):
    """A negative rate makes each look worse than the one before, and all worse than the start."""
    looks = []

    def remember(metrics, state):
        looks.append((metrics, int(state.update)))

    fitted = fit(
        START,
        encoder(),
        DATA,
        **QUICK | {"optimizer": optax.sgd(-1e-3), "num_epochs": 9},
        held_out=Validation(DATA[:8], every=1, keep=keep),
        callbacks=[EarlyStopping(2), remember],
    )
    # Where the best weights are kept, those of the start count.
    number = 2 if keep == "best" else 3
    assert [update for _, update in looks] == [29, 58, 87][:number]
    assert [metrics.epoch for metrics, _ in looks] == [1, 2, 3][:number]
    assert [metrics.num_since_best for metrics, _ in looks] == [0, 1, 2][-number:]
    held_out = [metrics.held_out.mean for metrics, _ in looks]
    assert held_out == sorted(held_out, reverse=True) and len(set(held_out)) == number
    assert all(metrics.is_last_phase for metrics, _ in looks)
    bounds = [record["bound"] for record in fitted.history if "bound" in record]
    assert looks[1][0].bound == pytest.approx(np.mean(bounds[29:58]), rel=1e-6)
    assert int(fitted.state.update) == 29 * number
    assert not fitted.is_interrupted
    last = (looks[-1][0].model, looks[-1][0].proposal)
    kept = (START, encoder()) if keep == "best" else last
    assert_identical((fitted.model, fitted.proposal), kept)


def test_a_phase_that_gains_nothing_leaves_what_it_started_from():
    held_out = Validation(DATA[:8], every=1)
    good = Phase(VAE(), optax.sgd(1e-3))
    options = {name: QUICK[name] for name in QUICK if name not in ("method", "optimizer")}
    first = fit(START, encoder(), DATA, **options | {"method": Recipe([good]), "num_epochs": 1})
    recipe = Recipe([good, Phase(VAE(), optax.sgd(-1e-3))])
    both = fit(
        *(START, encoder(), DATA),
        **options | {"method": recipe, "num_epochs": 2, "held_out": held_out},
    )
    assert_identical((both.model, both.proposal), (first.model, first.proposal))
    assert [r["epoch"] for r in both.history if "held_out_bound" in r] == [1, 2]


class Counting(VAE):
    """Its bounds rise with the updates, whatever the weights."""

    def init(self):
        return jnp.zeros(())

    def estimate(self, key, model, proposal, x, state):
        return super().estimate(key, model, proposal, x, ())

    def adapt(self, state, metrics):
        return state + 1.0

    def bound(self, key, model, proposal, x, state):
        return state


def test_the_start_of_a_phase_is_bounded_as_what_it_is_compared_with():
    """Step sizes are still poor at the start, which is no reason to keep other weights."""
    looks = []
    recipe = Recipe([Phase(VAE(), optax.sgd(1e-3)), Phase(Counting(), optax.sgd(1e-3))])
    options = {name: QUICK[name] for name in QUICK if name not in ("method", "optimizer")}
    fit(
        *(START, encoder(), DATA),
        **options | {"method": recipe, "num_epochs": 3},
        held_out=Validation(DATA[:8], every=1),
        callbacks=[lambda look, state: looks.append(look)],
    )
    in_last = [look for look in looks if look.is_last_phase]
    bounds = [look.held_out.mean for look in in_last]
    assert bounds == sorted(set(bounds)) and len(bounds) > 1
    assert [look.num_since_best for look in in_last] == list(range(1, len(bounds) + 1))


def test_what_is_frozen_stays_as_it_is():
    options = QUICK | {"method": VAE(), "num_epochs": 1}
    fitted = fit(START, encoder(), DATA, freeze=lambda m, p: (m.weight, p.bias), **options)
    for before, after, is_frozen in (
        (START.weight, fitted.model.weight, True),
        (encoder().bias, fitted.proposal.bias, True),
        (START.bias, fitted.model.bias, False),
        (encoder().log_scale, fitted.proposal.log_scale, False),
    ):
        assert np.all(np.asarray(before) == np.asarray(after)) == is_frozen


@pytest.mark.slow
def test_training_gives_up_when_no_gradient_is_finite(tmp_path, monkeypatch):
    """A rate so large that the weights overflow after the first update, which is good."""
    monkeypatch.setattr(loop, "MAX_SKIPPED_IN_ROW", 20)
    monkeypatch.setattr(loop, "CHUNK_CAPACITY", 4)
    place = aisle.RunFolder(tmp_path / "run", checkpoint_minutes=0.0)
    with pytest.raises(TrainingError) as caught:
        fit(START, encoder(), DATA, out=place, **QUICK | {"optimizer": optax.adam(1e30)})
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(r"not finite in 2\d updates in a row", message)
    assert 1 <= checkpoints.latest(place.path) < 24
    assert len(read_metrics(place.path)) >= 20


def test_training_without_one_finite_bound_is_a_failure():
    """Data so far out that their log-density overflows, though no update need be skipped."""
    few = QUICK | {"num_epochs": 1}
    with pytest.raises(TrainingError, match=r"the bound was not finite in any of \d+ updates; "):
        fit(START, encoder(), np.full_like(DATA, 1e25), **few)


def raises(number):
    return lambda metrics, state: signal.raise_signal(number)


def test_ctrl_c_returns_what_was_trained(capsys):
    before = signal.getsignal(signal.SIGINT)
    options = QUICK | {"callbacks": [raises(signal.SIGINT)], "num_epochs": 5}
    fitted = fit(START, encoder(), DATA, **options)
    assert fitted.is_interrupted
    # A look after 100 updates at the least, at the end of an epoch.
    assert int(fitted.state.update) == 116
    assert np.all(np.asarray(fitted.model.weight) != np.asarray(START.weight))
    assert "SIGINT ended training at update 116 of 145" in capsys.readouterr().err
    assert repr(fitted).endswith(", interrupted")
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_ends_the_program_after_a_checkpoint(tmp_path, capsys):
    before = signal.getsignal(signal.SIGTERM)
    options = QUICK | {"num_epochs": 5}
    with pytest.raises(SystemExit) as caught:
        fit(START, encoder(), DATA, out=tmp_path, callbacks=[raises(signal.SIGTERM)], **options)
    assert caught.value.code == 143
    assert checkpoints.latest(tmp_path) == 116
    assert "SIGTERM ended training at update 116 of 145" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    resumed = fit(START, encoder(), DATA, out=tmp_path, resume=True, **options)
    assert_identical(resumed.state, fit(START, encoder(), DATA, **options).state)


@pytest.mark.slow
def test_what_was_trained_on_some_devices_can_be_evaluated_on_all():
    options = QUICK | {"batch_size": 30, "num_epochs": 1, "method": VAE()}
    fitted = fit(START, encoder(), DATA, **options)
    everywhere = jax.sharding.Mesh(jax.devices(), ("examples",))
    xs = jax.device_put(DATA[:8].astype(np.float32), jax.NamedSharding(everywhere, jax.P()))
    log_p = jax.jit(jax.vmap(LinearGaussian.log_marginal, in_axes=(None, 0)))(fitted.model, xs)
    assert np.all(np.isfinite(log_p))
