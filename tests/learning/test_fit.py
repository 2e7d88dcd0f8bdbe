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
from aisle.data import Split, as_split
from aisle.errors import InputError, TrainingError
from aisle.learning import AIS, VAE, Adam, EarlyStopping, Phase, Recipe, Validation, loop, rates
from aisle.learning.looks import Bounder
from aisle.learning.plan import Plan, batch_mesh, prepare, trained_arrays
from aisle.learning.recording import Recorder
from aisle.models import DiagonalNormal, LinearGaussian, PriorProposal
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


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(AIS(4, 2, Kernel.paper(transition=HMC(2))), marks=pytest.mark.slow),
        aisle.DReG(4),
    ],
    ids=["ais", "dreg"],
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
    assert re.search(r"^58 updates, held-out bound -\d+\.\d\d \+- 0\.\d\d nats$", repr(fitted))


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


def test_the_model_gets_examples_in_the_shape_of_the_array(pictures):
    assert pictures.model.mean.shape == (4, 3)
    assert np.all(np.asarray(pictures.model.mean) != 0)


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


def test_step_sizes_move_towards_the_acceptance_asked_for(pictures):
    """Each by one factor an update, up where more is accepted than asked for and else down."""
    updates = [r for r in pictures.history if r["phase"] == 1 and "bound" in r]
    is_above = np.array([record["acceptance"] > 0.999 for record in updates])
    sizes = np.array([record["step_size"] for record in updates])
    factors = np.where(is_above, 1.002, 0.998)[:-1]
    np.testing.assert_allclose(sizes[1:] / sizes[:-1], factors, rtol=1e-5)


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


def test_a_method_and_an_optimiser_of_ones_own():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01))
    options = QUICK | {"method": Reweighted(), "optimizer": optimizer}
    fitted = fit(START, encoder(), DATA, **options)
    # Its state counts the updates.
    assert fitted.state.method == 58 == fitted.state.update
    bounds = [record["bound"] for record in fitted.history]
    assert np.mean(bounds[-5:]) > np.mean(bounds[:5])
    assert fitted.history[-1]["decoder_gradients"] == 58 * 11 * 2


@pytest.mark.parametrize("method", [VAE(), AIS(1, 2, Kernel.paper(transition=HMC(1)))])
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


def planned(number=320, **options):
    recipe = options.pop("recipe", Recipe([Phase(VAE())]))
    return Plan(recipe, **options).fitted_to(number)


def test_training_has_a_hundred_epochs_or_five_thousand_updates():
    """Whole epochs, and never fewer updates."""
    assert planned(12_800).ends == (10_000,)
    assert planned(133).ends == (5_000,)
    assert planned(320, batch_size=100).ends == (5_001,)
    assert planned(320, batch_size=11, num_epochs=3).ends == (87,)
    assert planned(320, num_updates=7).ends == (7,)


def test_phases_share_the_updates():
    three = Recipe([Phase(VAE(), share=share) for share in (1.0, 2.0, 5.0)])
    assert planned(recipe=three, num_updates=80).ends == (10, 30, 80)
    assert planned(recipe=Recipe(), num_updates=5).ends == (2, 5)


def test_a_batch_has_at_most_all_examples(capsys):
    plan = planned(50, num_epochs=2)
    assert (plan.batch_size, plan.ends) == (50, (2,))
    assert capsys.readouterr().err == (
        "aisle: batch_size is 128 but there are 50 examples: each batch has all of them\n"
    )
    assert planned(128, num_epochs=2).batch_size == 128
    assert capsys.readouterr().err == ""


def prepared(plan, x=DATA):
    return prepare(plan, START, encoder(), x, Recorder(), show_progress=False)[0]


class Recording:
    """An optimiser that remembers what it was built for."""

    is_shared_out = False

    def __init__(self):
        self.built = []

    def build(self, num_updates, updates_per_epoch):
        self.built.append((num_updates, updates_per_epoch))
        return optax.sgd(0.1)


def test_rates_and_batches_agree_on_an_epoch_where_examples_are_left_over():
    optimizer = Recording()
    recipe = Recipe([Phase(VAE(), optimizer, share) for share in (1.0, 3.0)])
    made = prepared(planned(recipe=recipe, batch_size=11, num_epochs=4))
    assert made.feeder.updates_per_epoch == 29
    assert optimizer.built == [(29, 29), (87, 29)]
    assert [stage.end for stage in made.stages] == [29, 116]
    assert [stage.look_every for stage in made.stages] == [116, 116]
    assert made._epoch(58) == "epoch 2.0/4"


def test_validation_shares_no_key_with_any_update():
    """An update's key is folded from the root by its number, and an example's from that."""
    made = prepared(planned(batch_size=11, num_epochs=1, validation=Validation(DATA[:8])))
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    updates = fold(made.key, jnp.append(jnp.arange(2000), 2**31 - 1))
    examples = jax.vmap(lambda key: fold(key, jnp.arange(8)))(updates).ravel()
    held_out = fold(made.bounder._key, jnp.arange(8))

    def known(*keys):
        data = [np.asarray(jax.random.key_data(k)).reshape(-1, 2) for k in keys]
        return set(map(tuple, np.concatenate(data)))

    own = known(made.bounder._key, held_out)
    assert len(own) == 9
    assert not own & known(made.key, updates, examples)


class Plain:
    """A model that is no pytree: its arrays cannot be found, and so not be trained."""

    def __init__(self, inner):
        self.log_prior, self.log_likelihood = inner.log_prior, inner.log_likelihood
        self.sample_prior, self.sample_observation = inner.sample_prior, inner.sample_observation


def test_networks_that_cannot_be_trained(as_users_have_it):
    with pytest.raises(InputError, match="the model, a Plain, has no arrays of floats to train"):
        fit(Plain(START), encoder(), DATA, **QUICK)
    with pytest.raises(InputError, match="the proposal is a NoneType: give an encoder"):
        fit(START, None, DATA, **QUICK)
    with pytest.raises(InputError, match=r"a sample of the proposal has the shape \(2,\)"):
        fit(START, lambda x: DiagonalNormal(x[:2], jnp.ones(2)), DATA, **QUICK)
    with pytest.raises(InputError, match=r"freeze does not name parts of \(model, proposal\)"):
        fit(START, encoder(), DATA, freeze=lambda model, proposal: model.decoder, **QUICK)


def test_a_proposal_that_stays_as_it_is_is_reported(capsys):
    own = encoder()
    trained_arrays(START, own)
    assert capsys.readouterr().err == ""
    trained_arrays(START, lambda x: own(x))
    message = capsys.readouterr().err
    assert message.startswith("aisle: the proposal, a function, has no arrays of floats and stays")
    assert message.count("\n") == 1


BAD = [
    ({"num_epochs": 2.5}, "num_epochs is 2.5: it must be a whole number"),
    ({"num_epochs": 0}, "num_epochs is 0: it must be at least 1"),
    ({"num_updates": 0, "num_epochs": None}, "num_updates is 0: it must be at least 1"),
    ({"num_updates": 9}, "give num_epochs or num_updates, and not both"),
    ({"batch_size": 0}, "batch_size is 0: it must be at least 1"),
    ({"batch_size": 20.0}, "batch_size is 20.0: it must be a whole number"),
    ({"seed": -1}, "seed is -1: it must be at least 0"),
    ({"seed": 2**32}, "seed is 4294967296: it must be from 0 to 4294967295"),
    ({"callbacks": [3]}, "callbacks has 3: give functions of (metrics, state)"),
    (
        {"callbacks": [EarlyStopping(3)]},
        "callbacks has aisle.EarlyStopping(patience=3) but nothing is held out: give held_out",
    ),
    (
        {"method": "vae"},
        "method is 'vae': give an object such as aisle.AIS(), or one of your own with init, "
        "estimate, adapt and num_gradients",
    ),
    (
        {"method": Recipe()},
        "optimizer is given, but each phase of a recipe has its own: give it to aisle.Phase",
    ),
    (
        {"optimizer": "adam"},
        "optimizer is 'adam': give an Optax transformation such as optax.adam(1e-3), or "
        "aisle.Adam() or aisle.Muon()",
    ),
    ({"x": DATA[:, 0]}, "the data have the shape (320,): give examples along the first axis"),
    ({"x": DATA[:0]}, "the data have no examples: give at least 1"),
    ({"x": DATA[:, :2]}, "an example has the shape (2,) but those that the model simulates (3,)"),
    ({"x": DATA + 1j}, "the data have values of type complex128"),
    ({"x": np.where(np.arange(3) == 1, np.nan, DATA)}, "the data has the value nan in row 0"),
    ({"held_out": DATA[:0]}, "the held-out data have no examples: give at least 1"),
    ({"held_out": DATA[:, :2]}, "held-out examples have the shape (2,) and those to train on (3,)"),
    ({"held_out": np.full((5, 3), np.inf)}, "the held-out data has the value inf in row 0"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_what_makes_no_sense_gets_one_clear_line(as_users_have_it, tmp_path, changes, message):
    options = QUICK | {"x": DATA} | changes
    with pytest.raises(InputError) as caught:
        fit(START, encoder(), out=tmp_path / "run", **options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Phase(VAE(), share=0), "share is 0: it must be finite and positive"),
        (lambda: Phase("vae"), "method is 'vae': give an object such as aisle.AIS()"),
        (lambda: Recipe([]), "phases is (): give aisle.Phase objects"),
        (lambda: Recipe([VAE()]), "phases is (aisle.VAE(num_samples=1),): give aisle.Phase"),
        (lambda: Recipe(average=1.0), "average is 1.0: it must be at least 0 and below 1"),
    ],
)
def test_recipes_are_checked_when_they_are_made(as_users_have_it, make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).startswith(message)


@pytest.mark.slow
def test_what_was_trained_on_some_devices_can_be_evaluated_on_all():
    options = QUICK | {"batch_size": 30, "num_epochs": 1, "method": VAE()}
    fitted = fit(START, encoder(), DATA, **options)
    everywhere = jax.sharding.Mesh(jax.devices(), ("examples",))
    xs = jax.device_put(DATA[:8].astype(np.float32), jax.NamedSharding(everywhere, jax.P()))
    log_p = jax.jit(jax.vmap(LinearGaussian.log_marginal, in_axes=(None, 0)))(fitted.model, xs)
    assert np.all(np.isfinite(log_p))


def test_an_array_keeps_its_shape_and_a_split_its_view():
    array = np.zeros((5, 4, 3), np.float32)
    assert as_split(array).example.shape == (4, 3)
    flat = Split(array, view=aisle.View(is_flat=True))
    assert as_split(flat).view == flat.view
    assert as_split(flat).example.shape == flat.example.shape == (12,)


@pytest.mark.parametrize(("batch_size", "number"), [(1, 1), (11, 1), (20, 5), (128, 8), (6, 6)])
def test_the_mesh_divides_the_batch(batch_size, number):
    assert batch_mesh(batch_size).size == number
