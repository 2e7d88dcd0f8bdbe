"""Hours of training become a number of updates before it begins."""

import pytest

import aisle
from aisle.errors import InputError
from aisle.learning.plan import Plan
from aisle.runs import timing

COSTS = {aisle.VAE(): 0.01, aisle.AIS(1): 0.05}


def test_each_phase_counts_by_its_share_and_its_cost(monkeypatch, capsys):
    monkeypatch.setattr(timing, "seconds_of_one", lambda plan, phase, *_: COSTS[phase.method])
    phases = (aisle.Phase(aisle.VAE(), share=3), aisle.Phase(aisle.AIS(1), share=1))
    number = timing.updates_within(2.0, Plan(aisle.Recipe(phases)), None, None, None)
    # 0.75 x 10 + 0.25 x 50 = 20 ms, and a tenth more for what is beside updates.
    assert number == int(7200 / 0.022)
    assert "327,272 updates, which take 10 and 50 ms each" in capsys.readouterr().err


def test_a_start_of_so_many_updates_leaves_the_rest_to_the_other_phases(monkeypatch):
    monkeypatch.setattr(timing, "seconds_of_one", lambda plan, phase, *_: COSTS[phase.method])
    plan = Plan(aisle.Recipe((aisle.Phase(aisle.VAE()), aisle.Phase(aisle.AIS(1)))))
    number = timing.updates_within(1.1, plan, None, None, None, warmup=100_000)
    # 3,600 s without the tenth, of which the start takes 1,000 s.
    assert number == 100_000 + 2600 / 0.05
    longer = aisle.AIS(2)
    monkeypatch.setitem(COSTS, longer, 0.15)
    phases = (*plan.recipe.phases, aisle.Phase(longer))
    three = Plan(aisle.Recipe(phases))
    number = timing.updates_within(1.1, three, None, None, None, warmup=100_000)
    assert number == 100_000 + 2600 / 0.1
    with pytest.raises(InputError, match="updates, which take longer than the 0"):
        timing.updates_within(0.1, plan, None, None, None, warmup=100_000)
