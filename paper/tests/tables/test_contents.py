import dataclasses
import functools
import shlex

import pytest

import aisle
from aisle.cli.main import parse
from paper.core import runs
from paper.tables.budgets import BUDGETS
from paper.tables.contents import TABLES, make_table
from paper.tables.maker import PAPER


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_sound(name, budget):
    spec = make_table(name, budget, 3)
    names = [cell.name for cell in spec.cells]
    assert len(set(names)) == len(names)
    for i, cell in enumerate(spec.cells):
        assert cell.start is None or cell.start in names[:i]
        assert cell.training.seed == 3
        # What is not evaluated is there for others to begin from.
        assert cell.evaluation or cell.name in [one.start for one in spec.cells]
        begins = budget == "paper" or cell.name.endswith("-start")
        begins = begins or "-scratch-" in cell.name or "-default-" in cell.name
        goes_on = cell.name.endswith(("-growing-T", "-annealed-start"))
        assert (cell.start is None) == (begins and not goes_on)
    for claim in spec.claims:
        assert {claim.better, claim.worse} <= set(names)


@pytest.mark.parametrize("name", ["table1", "table2", "beyond", "ramp"])
def test_cells_of_a_network_begin_from_the_same_weights(name):
    for cell in make_table(name, "cpu", 0).cells:
        if cell.evaluation and not cell.note.startswith("fewer"):
            network = "-two-layer" if cell.training.networks.model == "two-layer" else ""
            assert cell.start == f"{cell.training.data}{network}-annealed-start"


def test_every_number_of_the_paper_has_its_cell():
    found = {
        cell.paper for name in ("table1", "table2") for cell in make_table(name, "cpu", 0).cells
    }
    assert found - {None} == set(PAPER.values())
    smoke = make_table("table1", "smoke", 0).cells
    assert {cell.paper for cell in smoke} == {None}


@pytest.mark.parametrize("data", ["mnist", "omniglot"])
@pytest.mark.parametrize("T", [5, 11])
def test_fifty_chains_are_compared_with_as_many_updates_by_five(data, T):
    spec = make_table("table1", "cpu", 0)
    found = {cell.name: cell for cell in spec.cells}
    five, longer, fifty = (found[f"{data}-ais-T{T}-{end}"] for end in ("K5", "K5-longer", "K50"))
    assert longer.start == fifty.start == five.name
    assert longer.training.method == five.training.method
    assert longer.training == dataclasses.replace(fifty.training, method=five.training.method)
    assert (fifty.name, longer.name) in [(claim.better, claim.worse) for claim in spec.claims]


def test_fifty_chains_that_are_trained_in_full_need_no_other_comparison():
    assert not any("longer" in cell.name for cell in make_table("table1", "paper", 0).cells)


@pytest.mark.parametrize("budget", ["smoke", "paper"])
def test_multiples_of_a_rate_that_a_budget_leaves_open_are_those_of_the_usual_one(budget):
    found = {cell.name: cell.training for cell in make_table("recipes", budget, 0).cells}
    rates = {
        name.removeprefix("mnist-short-recipe-"): training.optimizer.learning_rate
        for name, training in found.items()
    }
    assert rates["tuned"] is None
    assert [rates[f"rate-x{factor}"] for factor in (0.5, 2, 4)] == [0.0005, 0.002, 0.004]
    # The IWAE study's rate is for two layers, too.
    for cell in make_table("beyond", budget, 0).cells:
        assert cell.training.optimizer.learning_rate is None


UPDATES = {"mnist": 60_000 // 128, "omniglot": 24_345 // 128}


@pytest.mark.parametrize("name", ["table1", "table2", "beyond", "ramp"])
def test_cells_of_the_cpu_budget_make_ten_thousand_updates(name):
    for cell in make_table(name, "cpu", 0).cells:
        number = cell.training.num_epochs * UPDATES[cell.training.data]
        assert not cell.evaluation or (number >= 10_000) == ("fewer" not in cell.note)


def test_recipes_differ_from_the_usual_one_as_their_names_say():
    found = {cell.name: cell for cell in make_table("recipes", "cpu", 0).cells}
    usual = found["mnist-short-recipe-tuned"].training.optimizer
    assert usual == BUDGETS["cpu"].optimizer

    def differs(trial):
        own = found[f"mnist-short-recipe-{trial}"].training.optimizer
        changed = {f.name: getattr(own, f.name) for f in dataclasses.fields(own)}
        return {k: v for k, v in changed.items() if v != getattr(usual, k)}

    for factor in (0.5, 2, 4):
        assert differs(f"rate-x{factor}") == {"learning_rate": factor * usual.learning_rate}
    assert differs("adam") == {"optimizer": "adam", "learning_rate": None}
    assert differs("averaged") == {"lr_schedule": "constant", "ema": 0.999}
    assert differs("small-batch") == {"batch_size": 64}
    # With half of the examples in a batch, 18 of 22 epochs are more updates.
    assert found["mnist-short-recipe-small-batch"].note == ""
    assert found["mnist-short-recipe-growing-T"].start == "mnist-short-recipe-T5"
    starts = {name: c.training.num_epochs for name, c in found.items() if name.endswith("-start")}
    assert starts == {
        "mnist-start": 120,
        "mnist-short-start": 40,
    }


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_the_paper_s_tables_have_the_paper_s_kernel(name):
    for cell in make_table(name, "cpu", 0).cells:
        method = runs.resolved(cell.training).method
        if cell.evaluation and method.method in ("ais", "mh-hmc"):
            assert (method.num_leapfrog, method.precondition, method.momentum_refresh) == (5, 0, 1)
            assert method.schedule == ("linear" if method.method == "ais" else None)


@functools.cache
def parsed(command):
    """Tables share cells, and parsing takes time."""
    return parse(shlex.split(command)[1:])


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_has_a_command_that_the_library_takes(name):
    for cell in make_table(name, "cpu", 3).cells:
        command = parsed(cell.command)
        assert command.method.method == cell.training.method.method
        assert command.optimizer.learning_rate == cell.training.optimizer.learning_rate
        assert (command.num_epochs, command.run_options.seed) == (cell.training.num_epochs, 3)


def test_default_recipes_are_those_of_the_two_editions():
    spec = make_table("defaults", "cpu", 0)
    old, new = spec.cells
    assert (old.name, new.name) == ("mnist-default-old", "mnist-default-new")
    assert new.command == "aisle train mnist --epochs 50"
    assert old.command == (
        "aisle train mnist --epochs 10 --method ais --num-samples 5 --num-temperatures 11 "
        "--optimizer adam --lr-schedule iwae-study"
    )
    assert old.evaluation == new.evaluation == BUDGETS["cpu"].evaluation["mnist"]
    for cell, phases in (
        (old, [aisle.Phase(aisle.AIS(5, 11), aisle.Adam(0.001, aisle.rates.iwae_study), 10.0)]),
        (
            new,
            [
                aisle.Phase(aisle.VAE(), aisle.Muon(0.02, aisle.rates.cosine), 25.0),
                aisle.Phase(aisle.AIS(1, 11), aisle.Muon(0.0075, aisle.rates.cosine), 25.0),
            ],
        ),
    ):
        config = runs._train_config(cell.training)
        assert config.recipe(1, cell.training.num_epochs).phases == tuple(phases)
        assert (config.observations.num_valid, config.run.keep) == (None, "best")
    assert [(claim.better, claim.worse) for claim in spec.claims] == [(new.name, old.name)]
    # What a line of the table says of them.
    method = runs.resolved(new.training).method
    assert (method.num_samples, method.num_temperatures, method.schedule) == (1, 11, "ramp")


@pytest.mark.parametrize("name", [name for name in TABLES if name != "defaults"])
def test_other_cells_train_on_all_examples_and_keep_the_last_weights(name):
    for cell in make_table(name, "cpu", 0).cells:
        assert (cell.training.num_valid, cell.training.keep) == (0, "last")
