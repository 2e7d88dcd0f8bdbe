import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jaxtyping import Array

from aisle.data import Split
from aisle.errors import InputError, TrainingError
from aisle.learning import checkpoints, loop, trainer
from aisle.learning.run_directory import read_metrics
from aisle.learning.trainer import as_split, batch_mesh, fit
from aisle.learning.updates import split_arrays
from aisle.learning.validation import make_validation
from aisle.models import DiagonalNormal, LinearGaussian
from fitting import DATA, QUICK, START, TRUTH, assert_identical, encoder

pytestmark = pytest.mark.usefixtures("quick_compilation")


def mean_log_marginal(model, data):
    return float(jax.vmap(model.log_marginal)(jnp.asarray(data, jnp.float32)).mean())


def best_mean_log_marginal(data):
    """The highest that any linear-Gaussian model reaches: Tipping & Bishop (1999), one latent."""
    spectrum = np.linalg.eigvalsh(np.cov(data.T, bias=True))
    noise = spectrum[:-1].mean()
    log_determinant = np.log(spectrum[-1]) + 2 * np.log(noise)
    return -0.5 * (3 * np.log(2 * np.pi) + log_determinant + 3)


@pytest.mark.parametrize("method", [pytest.param("ais", marks=pytest.mark.slow), "dreg"])
def test_training_finds_the_maximum_of_the_likelihood(method):
    fitted = fit(
        START,
        encoder(),
        DATA,
        method=method,
        num_samples=4,
        num_temperatures=2,
        num_leapfrog=2,
        num_epochs=60,
        batch_size=31,
        learning_rate=0.05,
        lr_schedule="cosine",
        ema=0.98,
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


def test_averaged_weights_are_those_that_are_measured_and_returned():
    held_out = np.concatenate([DATA, DATA, 5 + DATA])
    fitted = fit(START, encoder(), DATA, ema=0.9, held_out=held_out, **QUICK)
    trained = split_arrays(fitted.model, fitted.proposal)[0]
    assert_identical(trained, fitted.state.average)
    assert np.all(np.asarray(fitted.model.weight) != np.asarray(fitted.state.params[0].weight))
    # From all over the held-out examples, of which only a part is used.
    chosen = jnp.asarray(held_out[np.arange(512) * 960 // 512], jnp.float32)
    last = fitted.history[-1]
    key = jax.random.fold_in(jax.random.key(0), last["update"])
    bound = make_validation(chosen, 64)(key, fitted.model, fitted.proposal)
    assert last["held_out_examples"] == 512
    np.testing.assert_allclose(last["held_out_bound"], bound.mean, rtol=1e-5)


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
    """A run with all that a model may meet: a warm-up, chains, held-out data, two devices."""
    data = np.random.default_rng(0).normal(size=(88, 4, 3)).astype(np.float32)
    options = QUICK | {
        "batch_size": 22,
        "method": "ais",
        "num_leapfrog": 3,
        "num_temperatures": 2,
        "num_epochs": 5,
        "warmup_epochs": 2,
        "validate_every": 2,
    }
    model = Pictures(jnp.zeros((4, 3)))
    return fit(model, encoder(12), data, held_out=data[:6], **options)


def test_the_model_gets_examples_in_the_shape_of_the_array(pictures):
    assert pictures.model.mean.shape == (4, 3)
    assert np.all(np.asarray(pictures.model.mean) != 0)


def test_gradients_are_counted_by_phase(pictures):
    updates = [record for record in pictures.history if "bound" in record]
    assert [record["update"] for record in updates] == list(range(1, 21))
    np.testing.assert_allclose([r["epoch"] for r in updates], np.arange(1, 21) / 4)
    # By vae one gradient an example; by ais those of K chains with T x L steps, their ends, phi.
    spent = np.cumsum([22] * 8 + [22 * (2 * (2 + 2 * 3) + 1)] * 12)
    assert [record["decoder_gradients"] for record in updates] == spent.tolist()
    assert [np.size(record["acceptance"]) for record in updates] == [0] * 8 + [2] * 12
    assert [np.size(record["step_size"]) for record in updates] == [0] * 8 + [2] * 12


def test_held_out_data_are_bounded_every_few_epochs_and_at_the_end(pictures):
    held_out = [record for record in pictures.history if "held_out_bound" in record]
    assert [record["epoch"] for record in held_out] == [2, 4, 5]
    assert [record["update"] for record in held_out] == [8, 16, 20]
    assert [record["decoder_gradients"] for record in held_out] == [
        176,
        176 + 8 * 374,
        176 + 12 * 374,
    ]
    assert all(record["held_out_examples"] == 6 for record in held_out)
    assert all(record["held_out_standard_error"] > 0 for record in held_out)


def test_training_gives_up_when_no_gradient_is_finite(tmp_path, monkeypatch):
    """A rate so large that the weights overflow after the first update, which is good."""
    monkeypatch.setattr(loop, "MAX_SKIPPED_IN_ROW", 20)
    monkeypatch.setattr(loop, "CHUNK_CAPACITY", 4)
    options = QUICK | {"learning_rate": 1e30, "checkpoint_minutes": 0.0}
    with pytest.raises(TrainingError) as caught:
        fit(START, encoder(), DATA, out=tmp_path, **options)
    message, last = str(caught.value), checkpoints.latest(tmp_path)
    assert "\n" not in message
    assert re.search(r"not finite in 2\d updates in a row", message)
    assert 1 <= last < 24
    assert re.search(rf"last good checkpoint is \S*\b{last}\b", message)
    assert len(read_metrics(tmp_path)) >= 20


def test_training_without_one_finite_bound_is_a_failure():
    """Data so far out that their log-density overflows, though no update need be skipped."""
    few = QUICK | {"num_epochs": 1, "method": "vae"}
    with pytest.raises(TrainingError, match=r"the bound was not finite in any of \d+ updates: "):
        fit(START, encoder(), np.full_like(DATA, 1e25), **few)


class Plain:
    """A model that is no pytree: its arrays cannot be found, and so not be trained."""

    def __init__(self, inner):
        self.log_prior, self.log_likelihood = inner.log_prior, inner.log_likelihood
        self.sample_prior, self.sample_observation = inner.sample_prior, inner.sample_observation


def test_networks_that_cannot_be_trained():
    with pytest.raises(InputError, match="the model, a Plain, has no arrays of floats to train"):
        fit(Plain(START), encoder(), DATA, **QUICK)
    with pytest.raises(InputError, match="the proposal is a NoneType: give an encoder"):
        trainer._check_networks(START, None, (3,))
    with pytest.raises(InputError, match=r"a sample of the proposal has the shape \(2,\)"):
        trainer._check_networks(START, lambda x: DiagonalNormal(x[:2], jnp.ones(2)), (3,))


def test_a_proposal_that_stays_as_it_is_is_told(capsys):
    own = encoder()
    trainer._check_networks(START, own, (3,))
    assert capsys.readouterr().err == ""
    trainer._check_networks(START, lambda x: own(x), (3,))
    message = capsys.readouterr().err
    assert message.startswith("aisle: the proposal, a function, has no arrays of floats and stays")
    assert message.count("\n") == 1


def test_a_mask_is_not_lost_silently():
    masked = np.ma.masked_greater(DATA, 1.0)
    number = int((DATA > 1.0).sum())
    with pytest.raises(InputError, match=f"the data have {number} masked values, and a mask"):
        as_split(masked)
    assert as_split(np.ma.masked_array(DATA))[1] == (3,)


@pytest.mark.parametrize("data", [{"x": DATA}, scipy.sparse.csr_matrix(DATA)])
def test_data_that_are_no_array(data):
    with pytest.raises(InputError, match=f"the data are a {type(data).__name__}: give one array"):
        as_split(data)


def test_a_list_is_as_good_as_an_array():
    split, shape = as_split(DATA.tolist())
    np.testing.assert_allclose(split.take(np.arange(len(DATA))), DATA, rtol=1e-6)
    assert shape == DATA.shape[1:]


BAD = [
    ("num_epochs", 2.5, "a whole number"),
    ("warmup_epochs", 0.5, "a whole number"),
    ("batch_size", 20.0, "a whole number"),
    ("num_samples", 0, "at least 1"),
    ("num_temperatures", 0, "at least 1"),
    ("num_leapfrog", 0, "at least 1"),
    ("num_epochs", 0, "at least 1"),
    ("warmup_epochs", -1, "0 to num_epochs"),
    ("warmup_epochs", 3, "0 to num_epochs"),
    ("validate_every", 0, "at least 1"),
    ("keep_checkpoints", 0, "at least 1"),
    ("target_accept", 0.0, "between 0 and 1"),
    ("target_accept", 1.0, "between 0 and 1"),
    ("precondition", -0.1, "finite, and 0 or more"),
    ("momentum_refresh", 0.0, "above 0 and at most 1"),
    ("momentum_refresh", 1.1, "above 0 and at most 1"),
    ("jitter", -0.1, "at least 0 and below 1"),
    ("jitter", 1.0, "at least 0 and below 1"),
    ("ema", -0.1, "at least 0 and below 1"),
    ("ema", 1.0, "at least 0 and below 1"),
    ("ema", float("nan"), "at least 0 and below 1"),
    ("batch_size", 0, "1 to 320, the number of examples"),
    ("batch_size", 321, "1 to 320, the number of examples"),
    ("learning_rate", -1.5, "finite and positive"),
    ("learning_rate", float("inf"), "finite and positive"),
    ("checkpoint_minutes", float("nan"), "finite, 0 or more"),
]


@pytest.mark.parametrize(("name", "value", "rule"), BAD, ids=lambda a: str(a)[:20])
def test_numbers_that_make_no_sense(as_users_have_it, tmp_path, name, value, rule):
    with pytest.raises(InputError) as caught:
        fit(START, encoder(), DATA, out=tmp_path / "run", **QUICK | {name: value})
    assert str(caught.value) == f"{name} is {value}: it must be {rule}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"method": "magic"},
        {"schedule": "magic"},
        {"optimizer": "magic"},
        {"lr_schedule": "magic"},
        {"binarize": "magic"},
        {"binarize": "dynamic"},
        {"data": DATA[:, 0]},
        {"data": DATA[:0]},
        {"data": DATA[:, :0]},
        {"data": np.where(np.arange(3) == 1, np.nan, DATA)},
        {"held_out": DATA[:0]},
        {"held_out": np.full((5, 3), np.inf)},
        {"seed": -1},
        {"seed": 2**32},
        {"held_out": DATA[:, :2]},
        {"data": DATA + 1j},
        {"data": DATA[:, :2]},
    ],
    ids=lambda a: "-".join(f"{k} {v if isinstance(v, str) else np.shape(v)}" for k, v in a.items()),
)
def test_names_and_data_that_make_no_sense(tmp_path, arguments):
    options = QUICK | {"data": DATA} | arguments
    with pytest.raises(InputError) as caught:
        fit(START, encoder(), out=tmp_path / "run", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_was_trained_on_some_devices_can_be_evaluated_on_all():
    options = QUICK | {"batch_size": 30, "num_epochs": 1, "method": "vae"}
    fitted = fit(START, encoder(), DATA, **options)
    everywhere = jax.sharding.Mesh(jax.devices(), ("examples",))
    xs = jax.device_put(DATA[:8].astype(np.float32), jax.NamedSharding(everywhere, jax.P()))
    log_p = jax.jit(jax.vmap(LinearGaussian.log_marginal, in_axes=(None, 0)))(fitted.model, xs)
    assert np.all(np.isfinite(log_p))


def test_a_split_is_flat_and_an_array_keeps_its_shape():
    array = np.zeros((5, 4, 3), np.float32)
    split, shape = as_split(array)
    assert (len(split), shape) == (5, (4, 3))
    assert as_split(Split(array))[1] == (12,)


@pytest.mark.parametrize(("batch_size", "number"), [(1, 1), (11, 1), (20, 5), (128, 8), (6, 6)])
def test_the_mesh_divides_the_batch(batch_size, number):
    assert batch_mesh(batch_size).size == number
