"""Networks by options: which ones are meant, and the same ones again without the data."""

import dataclasses
import json
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.data import Dataset, Split, View, as_split, read_table
from aisle.errors import InputError
from aisle.models import FAMILIES
from aisle.runs.forms import Form, as_json, form_from, form_of
from aisle.runs.networks import build, network_of, rebuild
from aisle.runs.options import ModelOptions

pytestmark = pytest.mark.usefixtures("quick_compilation")

TINY = ModelOptions(num_latents=2, hidden="5,3")
RANDOM = np.random.default_rng(0)
VALUES = {
    "bernoulli": RANDOM.integers(0, 2, (30, 4)),
    "categorical": np.stack([RANDOM.integers(0, n, 30) for n in (2, 3, 5, 3)], axis=1),
    "poisson": RANDOM.poisson(3.0, (30, 4)),
    "negative-binomial": RANDOM.poisson(3.0, (30, 4)),
    "zero-inflated": RANDOM.poisson(0.5, (30, 4)),
    "logit-normal": RANDOM.uniform(0.1, 0.9, (30, 4)),
    "beta": RANDOM.uniform(0.1, 0.9, (30, 4)),
    "gaussian": RANDOM.normal(3.0, 100.0, (30, 4)),
    "student-t": RANDOM.standard_t(3, (30, 4)),
}


TAKES_MISSING = SimpleNamespace(has_missing=True)


def dataset_of(values, table=None, view=None):
    context = None if table is None else table.context
    train = Split(np.asarray(values), view=view or View(), context=context)
    train = as_split(train, model=TAKES_MISSING)
    return Dataset("x", train, None, train, values.shape[1:], "x", table)


def mixed():
    table = read_table(
        {
            "real": [1.5, None, -2.0, 7.0],
            "count": [3, 0, 5, 2],
            "category": ["a", "b", "c", "a"],
            "code": [0, 2, 1, 0],
            "bit": [0, 1, 1, None],
        },
        {"code": "category"},
    )
    return dataset_of(table.values, table)


def shapes(networks):
    return jax.tree.structure(networks), [np.shape(a) for a in jax.tree.leaves(networks)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n != "beta")) for n in FAMILIES],
)
def test_networks_of_every_family_are_built_again_without_the_data(name):
    options = dataclasses.replace(TINY, likelihood=name)
    dataset = dataset_of(VALUES[name])
    form = form_of(name, dataset)
    built = build(options, dataset, seed=1)
    again = rebuild(options, form_from(json.loads(json.dumps(as_json(form)))), form.shape)
    assert shapes(eqx.filter(built, eqx.is_array)) == shapes(eqx.filter(again, eqx.is_array))
    assert type(built[0].likelihood) is FAMILIES[name]
    assert [layer.out_features for layer in built[0].decoder.layers[:-1]] == [5, 3]


@pytest.mark.slow
def test_a_table_has_the_families_of_its_columns():
    dataset = mixed()
    form = form_of("auto", dataset)
    assert form == Form(
        (5,),
        ("gaussian", "negative-binomial", "categorical", "categorical", "bernoulli"),
        (0, 0, 3, 3, 0),
        has_missing=True,
    )
    built = build(TINY, dataset, seed=1)
    assert shapes(built) == shapes(rebuild(TINY, form, form.shape))
    assert built[0].has_missing
    x = dataset.train.arrays
    # The first outputs are those of the independent model: the mean of each column.
    bare = eqx.tree_at(
        lambda m: [layer.weight for layer in m.decoder.layers],
        built[0],
        replace_fn=lambda w: 0 * w,
    )
    means = bare.mean_observation(jnp.zeros(2))
    np.testing.assert_allclose(means[:2], np.nanmean(x[:, :2], axis=0), rtol=1e-4)


@pytest.mark.slow
def test_pictures_of_convolutions_keep_their_shape():
    options = ModelOptions(num_latents=2, num_hidden=6, network="conv")
    pictures = RANDOM.integers(0, 256, (20, 6, 5)).astype(np.uint8)
    dataset = dataset_of(pictures, view=View(is_grey=True, binarize="dynamic"))
    model, _ = build(options, dataset, seed=0)
    assert model.shape == (6, 5)
    assert shapes((model, _)) == shapes(rebuild(options, form_of("auto", dataset), dataset.shape))


@pytest.mark.parametrize(
    ("changes", "is_table", "network"),
    [
        ({}, False, "study"),
        ({"likelihood": "bernoulli"}, False, "study"),
        ({"model": "two-layer", "likelihood": "gaussian"}, False, "study"),
        ({"network": "study", "likelihood": "gaussian"}, False, "study"),
        ({"hidden": "3"}, False, "mlp"),
        ({"likelihood": "gaussian"}, False, "mlp"),
        ({"network": "conv"}, False, "conv"),
        ({}, True, "mlp"),
    ],
)
def test_which_networks_are_meant(changes, is_table, network):
    assert network_of(ModelOptions(**changes), is_table) == network


@pytest.mark.parametrize(
    ("changes", "is_table", "message"),
    [
        ({"model": "three-layer"}, False, "is 'three-layer': choose from one-layer, two-layer"),
        ({"likelihood": "normal"}, False, "is 'normal': choose from auto, bernoulli"),
        ({"model": "two-layer", "likelihood": "poisson"}, False, "take --network mlp"),
        ({"model": "two-layer"}, True, "is 'auto' of a table"),
        ({"model": "two-layer", "hidden": "5,3"}, False, "leave --network, --hidden and"),
        ({"model": "two-layer", "network": "mlp"}, False, "leave --network, --hidden and"),
        ({"network": "study", "hidden": "5,3"}, False, "is 'study', whose networks have two lay"),
        ({"network": "study", "activation": "elu"}, False, "is 'study', whose networks have"),
        ({"network": "conv", "hidden": "5,3"}, False, "is '5,3', but the layers of --network co"),
    ],
)
def test_networks_that_do_not_exist(as_users_have_it, changes, is_table, message):
    with pytest.raises(InputError, match=message):
        network_of(ModelOptions(**changes), is_table)


def test_units_that_are_no_numbers():
    options = dataclasses.replace(TINY, likelihood="poisson", hidden="5;3")
    with pytest.raises(InputError, match="is '5;3': give whole numbers separated by commas"):
        build(options, dataset_of(VALUES["poisson"]), seed=0)


CONDITIONAL = {
    "sex": ["f", "m", "f", "m", "m", "f"],
    "region": ["a", "b", "c", "a", "b", "c"],
    "year": [1990, 2001, 2010, 1995, 2020, 2003],
    "seconds": [100.0, 10.0, 1000.0, 100.0, 10.0, 1000.0],
    "visits": [9, 1, 80, 12, 0, 95],
    "size": [1.5, 2.5, 1.0, 3.0, 2.0, 1.2],
}


def test_conditions_and_exposures_are_part_of_the_form():
    table = read_table(CONDITIONAL, condition=["sex", "region", "year"], exposure="seconds")
    dataset = dataset_of(table.values, table)
    form = form_of("auto", dataset)
    assert form.conditions == Form(
        (3,), ("bernoulli", "categorical", "gaussian"), (0, 3, 0), has_missing=False
    )
    assert form.typical_exposure == pytest.approx(100.0)
    built = build(TINY, dataset, seed=1)
    again = rebuild(TINY, form_from(json.loads(json.dumps(as_json(form)))), form.shape)
    assert shapes(eqx.filter(built, eqx.is_array)) == shapes(eqx.filter(again, eqx.is_array))
    # Two latents; one number of sex, three of region and one of the year.
    assert built[0].decoder.layers[0].in_features == 2 + 5
    # First outputs are rates: what was counted over the seconds.
    rate = jnp.exp(built[0].decoder.layers[-1].bias[0])
    np.testing.assert_allclose(rate, sum(CONDITIONAL["visits"]) / 2220, rtol=1e-5)


def test_an_exposure_without_counts():
    table = read_table(CONDITIONAL, {"visits": "real"}, condition=["year"], exposure="seconds")
    with pytest.raises(InputError, match=r"^exposure is given but x has no counts"):
        form_of("auto", dataset_of(table.values, table))


@pytest.mark.slow
def test_log_p_is_in_the_units_of_the_table():
    """A size in centimetres has a hundredth of the density, and nothing else changes."""
    found = []
    for unit in (1.0, 100.0):
        cells = {"size": unit * np.array(CONDITIONAL["size"]), "sex": CONDITIONAL["sex"]}
        table = read_table(cells, {"size": "real"})
        model, proposal = build(TINY, dataset_of(table.values, table), seed=1)
        x = jnp.asarray(table.values, jnp.float32)
        z = proposal(x[0]).loc
        found.append(np.array([model.log_likelihood(row, z) for row in x[:2]]))
    np.testing.assert_allclose(found[0] - np.log(100), found[1], rtol=1e-5)
