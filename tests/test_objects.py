"""The objects that users choose from: frozen, comparable, and printed as they are typed."""

import dataclasses
from pathlib import Path

import pytest

import aisle

# A new object joins here: as it is by default, and with other values.
OBJECTS = [
    aisle.HMC(),
    aisle.HMC(num_leapfrog=3, refresh=0.25, precondition=0.5),
    aisle.Kernel(),
    aisle.Kernel.paper(schedule=aisle.schedules.geometric),
    aisle.Kernel(schedule=[0, 0.1, 1], target_accept=0.65),
    aisle.schedules.Placed((0.0, 0.25, 1.0)),
    aisle.VAE(),
    aisle.IWAE(num_samples=50),
    aisle.DReG(),
    aisle.MHHMC(num_samples=1),
    aisle.AIS(num_temperatures=3, kernel=aisle.Kernel.paper(), phi_objective="wake"),
    aisle.Adam(),
    aisle.Muon(0.01, aisle.rates.iwae_study),
    aisle.Phase(aisle.VAE(), aisle.Adam(), 0.25),
    aisle.Recipe(),
    aisle.Recipe([aisle.Phase(aisle.AIS())], average=0.99),
    aisle.EarlyStopping(3),
    aisle.View(is_grey=True, binarize="dynamic"),
    aisle.Sampler(),
    aisle.ImportanceSampler(),
]
over_objects = pytest.mark.parametrize("one", OBJECTS, ids=lambda o: type(o).__name__)


@over_objects
def test_what_is_printed_can_be_typed_back(one):
    again = eval(repr(one), {"aisle": aisle})
    assert again == one
    assert repr(again) == repr(one)
    assert "\n" not in repr(one)


@over_objects
def test_equal_objects_have_one_hash_and_cannot_be_changed(one):
    again = dataclasses.replace(one)
    assert again is not one
    assert hash(again) == hash(one)
    assert {one: "found"}[again] == "found"
    name = dataclasses.fields(one)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, name, None)


def test_other_objects_are_not_equal():
    assert len(set(OBJECTS)) == len(OBJECTS)


def test_a_run_folder_is_printed_as_it_is_typed():
    place = aisle.RunFolder(Path("runs/mine"), tensorboard=True)
    assert eval(repr(place), {"aisle": aisle, "PosixPath": Path}) == place
