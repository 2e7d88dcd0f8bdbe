"""What a training is planned as, and what none can be made of."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import aisle
from aisle.data import Split, as_split
from aisle.errors import InputError
from aisle.learning import VAE, EarlyStopping, Phase, Recipe, Validation
from aisle.learning.plan import Plan
from aisle.learning.preparing import batch_mesh, prepare, trained_arrays
from aisle.learning.recording import Recorder
from aisle.models import DiagonalNormal
from fitting import DATA, QUICK, START, encoder

pytestmark = pytest.mark.usefixtures("quick_compilation")

fit = aisle.fit


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


def test_an_array_keeps_its_shape_and_a_split_its_view():
    array = np.zeros((5, 4, 3), np.float32)
    assert as_split(array).example.shape == (4, 3)
    flat = Split(array, view=aisle.View(is_flat=True))
    assert as_split(flat).view == flat.view
    assert as_split(flat).example.shape == flat.example.shape == (12,)


@pytest.mark.parametrize(("batch_size", "number"), [(1, 1), (11, 1), (20, 5), (128, 8), (6, 6)])
def test_the_mesh_divides_the_batch(batch_size, number):
    assert batch_mesh(batch_size).size == number
