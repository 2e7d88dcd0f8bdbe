"""Hours of training become a number of updates before it begins."""

import aisle
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
