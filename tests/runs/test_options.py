"""Options become objects, and what no object would use is refused."""

import pytest

from aisle.annealing import HMC, Kernel, schedules
from aisle.data import View
from aisle.errors import InputError
from aisle.learning import AIS, IWAE, MHHMC, VAE, Adam, DReG, Muon, Phase, Recipe, rates
from aisle.runs.options import (
    DataOptions,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    SamplerOptions,
    TrainConfig,
)


@pytest.mark.parametrize(
    ("options", "method"),
    [
        (MethodOptions(), AIS(1, 11, Kernel.tuned())),
        (MethodOptions("vae"), VAE(1)),
        (MethodOptions("vae", 3), VAE(3)),
        (MethodOptions("iwae"), IWAE(5)),
        (MethodOptions("dreg", 2), DReG(2)),
        (MethodOptions("mh-hmc"), MHHMC(5, 11, Kernel.tuned())),
        (MethodOptions("ais", 2, 3, "paper"), AIS(2, 3, Kernel.paper())),
        (
            MethodOptions("ais", 2, 3, "paper", 4, "sigmoid", 0.7, 0.5, 0.9, "wake"),
            AIS(2, 3, Kernel(schedules.sigmoid, HMC(4, 0.9, 0.5), 0.7), "wake"),
        ),
    ],
    ids=lambda value: value.method if isinstance(value, MethodOptions) else "",
)
def test_methods(options, method):
    assert options.build() == method


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_temperatures", 5),
        ("kernel", "paper"),
        ("num_leapfrog", 2),
        ("schedule", "linear"),
        ("target_accept", 0.7),
        ("precondition", 0.0),
        ("momentum_refresh", 0.5),
        ("phi_objective", "wake"),
        ("num_states", 2),
        ("precision", "bfloat16"),
        ("late_temperatures", 20),
    ],
)
@pytest.mark.parametrize("method", ["vae", "iwae", "dreg"])
def test_options_of_chains_are_refused_without_chains(method, name, value):
    with pytest.raises(InputError, match=f"{method} runs no chains: leave it out") as caught:
        MethodOptions(method, **{name: value}).build()
    assert caught.value.argument == name
    MethodOptions("ais", **{name: value}).build()


def test_a_recipe_has_a_rate_for_each_phase():
    usual = TrainConfig("digits").recipe(updates_per_epoch=10, num_updates=101)
    vae, ais = VAE(), AIS(1, 11, Kernel.tuned())
    assert usual == Recipe((Phase(vae, Muon(0.02), 50.0), Phase(ais, Muon(0.0075), 51.0)))
    assert usual.ends(101) == [50, 101]
    # The library's own default is the same.
    assert [(p.method, p.optimizer) for p in Recipe().phases] == [
        (p.method, p.optimizer) for p in usual.phases
    ]
    options = OptimizerOptions(learning_rate=0.5, warmup_epochs=3, ema=0.9)
    given = TrainConfig("digits", optimizer=options).recipe(10, 100)
    assert given == Recipe((Phase(vae, Muon(0.02), 30.0), Phase(ais, Muon(0.5), 70.0)), 0.9)


@pytest.mark.parametrize(
    ("method", "options", "phases"),
    [
        ("vae", {}, [(VAE(), Muon(0.02), 100.0)]),
        ("iwae", {"learning_rate": 0.5}, [(IWAE(), Muon(0.5), 100.0)]),
        ("ais", {"optimizer": "adam"}, [(AIS(), Adam(1e-3), 100.0)]),
        (
            "ais",
            {"warmup_epochs": 2, "learning_rate": 0.5, "lr_schedule": "constant"},
            [(VAE(), Muon(0.5, rates.constant), 20.0), (AIS(), Muon(0.5, rates.constant), 80.0)],
        ),
        ("dreg", {"warmup_epochs": 10}, [(VAE(), Muon(0.02), 100.0)]),
    ],
)
def test_phases_of_a_method(method, options, phases):
    config = TrainConfig(
        "digits", method=MethodOptions(method), optimizer=OptimizerOptions(**options)
    )
    assert config.recipe(10, 100) == Recipe(tuple(Phase(*phase) for phase in phases))


LAST = RunOptions(keep="last")


def test_longer_chains_have_the_second_half_at_a_lower_rate_with_as_many_more_states():
    chains = MethodOptions("auto", num_temperatures=8, num_states=3, late_temperatures=20)
    options = OptimizerOptions(warmup_epochs=2)
    config = TrainConfig("digits", method=chains, optimizer=options, run=LAST)
    start, short, long = config.recipe(updates_per_epoch=10, num_updates=101).phases
    assert (start.method, start.share) == (VAE(), 20.0)
    assert (short.method, short.share) == (AIS(1, 8, num_states=3), 41.0)
    assert (long.method, long.share) == (AIS(1, 20, num_states=7), 40.0)
    assert (short.optimizer, long.optimizer) == (Muon(0.0075), Muon(0.003))
    plain = MethodOptions("mh-hmc", 2, late_temperatures=12)
    phases = TrainConfig("digits", method=plain, run=LAST).recipe(10, 100).phases
    assert [phase.method for phase in phases] == [MHHMC(2, 11), MHHMC(2, 12)]


@pytest.mark.parametrize(
    ("chains", "num_states"),
    [
        # One move is at the posterior.
        (MethodOptions("ais", kernel="paper", late_temperatures=22), 1),
        # 9 of 16, and not twice the 5 of 8.
        (MethodOptions("ais", num_temperatures=8, num_states=5, late_temperatures=16), 9),
        (MethodOptions("mh-hmc", num_temperatures=8, num_states=8, late_temperatures=16), 16),
    ],
)
def test_longer_chains_have_no_more_states_than_there_are_at_the_posterior(chains, num_states):
    late = chains.build_late()
    assert (late.num_temperatures, late.num_states) == (chains.late_temperatures, num_states)


def test_quick_bounds_do_not_choose_among_weights_of_longer_chains():
    config = TrainConfig("digits", method=MethodOptions("ais", late_temperatures=20))
    with pytest.raises(InputError, match="keep is 'best' but chains become longer at the end"):
        config.recipe(10, 100)


@pytest.mark.parametrize("number", [0, 5, 11])
def test_chains_that_would_not_be_longer_are_refused(number):
    config = TrainConfig("digits", method=MethodOptions("ais", late_temperatures=number), run=LAST)
    rule = f"late_temperatures is {number} but chains have 11 before: give more"
    with pytest.raises(InputError, match=rule):
        config.recipe(10, 100)


@pytest.mark.parametrize(("epochs", "rule"), [(-1, "at least 0"), (11, "longer than the whole")])
def test_a_warm_up_that_cannot_be(epochs, rule):
    config = TrainConfig("digits", optimizer=OptimizerOptions(warmup_epochs=epochs))
    with pytest.raises(InputError, match=f"warmup_epochs is {epochs}.*{rule}"):
        config.recipe(10, 100)


@pytest.mark.parametrize(
    ("data", "seen", "model", "view"),
    [
        ("digits", {}, {}, View(True, "dynamic", True)),
        ("x.npy", {}, {}, View(False, "dynamic", True)),
        ("x.npy", {"grey": True}, {}, View(True, "dynamic", True)),
        ("x.npy", {}, {"likelihood": "gaussian"}, View(False, "none", True)),
        ("x.npy", {"binarize": "static"}, {}, View(False, "static", True)),
        ("x.npy", {}, {"model": "mine:build"}, View(False, "none", False)),
        ("digits", {"binarize": "static"}, {"model": "mine:build"}, View(True, "static", False)),
    ],
)
def test_what_a_model_sees(data, seen, model, view):
    config = TrainConfig(data, observations=DataOptions(**seen), model=ModelOptions(**model))
    assert config.view() == view


def test_bits_are_not_real_values():
    model = ModelOptions(likelihood="gaussian")
    config = TrainConfig("digits", observations=DataOptions("dynamic"), model=model)
    with pytest.raises(InputError, match="binarize is 'dynamic' but likelihood is gaussian"):
        config.view()


def test_a_tolerance_needs_simulated_examples():
    with pytest.raises(InputError, match="bdmc_examples is 1: it must be at least 2"):
        SamplerOptions(bdmc_examples=1, tolerance=0.1).certificate()
    assert SamplerOptions(bdmc_examples=1).certificate().num_examples == 1
