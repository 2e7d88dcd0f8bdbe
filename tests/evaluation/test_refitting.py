"""A proposal fitted to simulated examples, against a posterior that is known exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from aisle import log_likelihood
from aisle.errors import InputError
from aisle.evaluation import refitting
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.progress import Progress
from evaluating import chosen
from measures import z_score

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")

# With orthogonal columns the posterior has no correlations: a diagonal normal can be exact.
WEIGHT = np.array([[1.0, 0.5], [-0.5, 1.0], [0.0, 0.0]])
SIGMA = 0.5
MODEL = LinearGaussian(jnp.asarray(WEIGHT), jnp.zeros(3), jnp.log(SIGMA))
VARIANCE = 1 / (1 + 1.25 / SIGMA**2)
GAIN = VARIANCE * WEIGHT.T / SIGMA**2
KEY = jax.random.key(3)


class Encoder(eqx.Module):
    gain: Array
    log_scale: Array

    def __call__(self, x):
        return DiagonalNormal(self.gain @ x, jnp.exp(self.log_scale))


EXACT = Encoder(jnp.asarray(GAIN), jnp.full(2, 0.5 * np.log(VARIANCE)))
# Its scale is a third of what it should be, and its mean is off by as much.
SURE = Encoder(0.8 * EXACT.gain, EXACT.log_scale - 1)
SETTINGS = {"num_simulated": 100, "importance_samples": 4, "seed": 5}


@pytest.fixture
def fast(monkeypatch):
    """Two parameters learn faster than a network's."""
    monkeypatch.setattr(refitting, "_FIRST_RATE", 0.02)


def gaps(proposal, number=500):
    keys = jax.random.split(KEY, number)
    gap = jax.jit(jax.vmap(lambda k: refitting.unannealed_gap(k, MODEL, proposal)))
    return np.asarray(gap(keys))


def observations():
    z, noise = jax.random.normal(KEY, (40, 2)), jax.random.normal(jax.random.key(4), (40, 3))
    return np.asarray(z @ WEIGHT.T + SIGMA * noise, np.float32)


def evaluate(proposal=SURE, **changes):
    return log_likelihood(MODEL, proposal, observations(), **chosen(**SETTINGS | changes))


def test_an_exact_proposal_has_no_gap():
    """Every weight is p(x) then, whichever latent it is of."""
    np.testing.assert_allclose(gaps(EXACT), 0, atol=1e-5)


@pytest.mark.slow
def test_the_gap_is_both_divergences():
    """Of two normals of the same means: (r + 1/r) / 2 - 1 for each latent, r of their variances."""
    ratio = 1.7
    wide = eqx.tree_at(lambda e: e.log_scale, EXACT, EXACT.log_scale + 0.5 * np.log(ratio))
    expected = 2 * ((ratio + 1 / ratio) / 2 - 1)
    assert abs(z_score(gaps(wide, 4000), expected)) < 4


@pytest.mark.slow
def test_refitting_finds_the_exact_posterior(fast):
    found, _ = refitting.refit(KEY, MODEL, SURE, 1000, show_progress=False)
    np.testing.assert_allclose(found.gain, GAIN, atol=0.01)
    np.testing.assert_allclose(jnp.exp(2 * found.log_scale), VARIANCE, rtol=0.02)
    assert gaps(SURE).mean() > 5
    assert abs(gaps(found).mean()) < 0.01


@pytest.mark.slow
@pytest.mark.usefixtures("fast", "untuned")
def test_chains_start_from_the_refitted_proposal_and_bounds_are_of_the_given_one():
    plain, found = evaluate(), evaluate(refit=100)
    assert plain.bdmc.gap.mean > 1
    assert abs(found.bdmc.gap.mean) < 0.5 * plain.bdmc.gap.mean
    assert found.importance.elbo == plain.importance.elbo
    extra = found.decoder_gradients - plain.decoder_gradients
    assert extra == 100 * refitting.BATCH_SIZE
    assert found.settings["refit"] == 100


@pytest.mark.slow
def test_a_refitted_proposal_is_kept(tmp_path, monkeypatch, capsys):
    first = evaluate(refit=20, out=tmp_path / "out", show_progress=True)
    assert "refitting  20/20  gap without annealing" in capsys.readouterr().err
    assert first.seconds > np.load(tmp_path / "out" / "refitted20.npz")["seconds"] > 0
    for file in (tmp_path / "out" / "T3").glob("*/*.npz"):
        file.unlink()
    monkeypatch.setattr(refitting, "_fit", pytest.fail)
    again = evaluate(refit=20, out=tmp_path / "out")
    np.testing.assert_array_equal(again.log_p, first.log_p)
    with pytest.raises(InputError, match="other refit: choose another"):
        evaluate(refit=21, out=tmp_path / "out")


def test_refitting_that_was_killed_goes_on(tmp_path, monkeypatch):
    """With the same weights in the end, and with the seconds before the kill."""
    monkeypatch.setattr(refitting, "_KEEP_EVERY", 4)
    whole, _ = refitting.refit(KEY, MODEL, SURE, 10, show_progress=False)
    done, saved = [], refitting.save_arrays

    def save(path, arrays):
        saved(path, arrays | {"seconds": np.array(1000.0)})
        done.append(path)
        if len(done) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(refitting, "save_arrays", save)
    with pytest.raises(KeyboardInterrupt):
        refitting.refit(KEY, MODEL, SURE, 10, tmp_path / "refitted.npz", show_progress=False)
    assert int(np.load(done[-1])["number"]) == 8
    updates = []
    monkeypatch.setattr(Progress, "advance", lambda self, number, *_: updates.append(number))
    found, seconds = refitting.refit(
        KEY, MODEL, SURE, 10, tmp_path / "refitted.npz", show_progress=False
    )
    assert updates == [9, 10]
    assert seconds > 1000
    jax.tree.map(np.testing.assert_array_equal, found, whole)
    assert [path.name for path in tmp_path.iterdir()] == ["refitted.npz"]


@pytest.mark.parametrize(
    ("proposal", "refit", "message"),
    [
        (SURE, -1, "refit is -1: it must be at least 0"),
        (None, 5, "refit is 5 but chains start at the prior: give a proposal, or use 0"),
        (
            lambda _: DiagonalNormal(jnp.zeros(2), jnp.ones(2)),
            5,
            "refit is 5 but the proposal has no weights to fit: use 0",
        ),
        (
            eqx.tree_at(lambda e: e.gain, SURE, SURE.gain * 1e25),
            5,
            "refit is 5 but that ends in weights that are not finite: use 0",
        ),
    ],
)
def test_what_cannot_be_refitted_is_refused(proposal, refit, message):
    with pytest.raises(InputError, match=message):
        evaluate(proposal, refit=refit)
