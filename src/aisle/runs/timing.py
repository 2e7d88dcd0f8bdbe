"""How many updates fit into a time, from a short try of each phase."""

import dataclasses
from typing import Any

import numpy as np

from aisle import processes
from aisle.errors import InputError, check_positive
from aisle.learning.history import report
from aisle.learning.plan import Plan
from aisle.learning.preparing import prepare
from aisle.learning.recipe import Phase, Recipe
from aisle.learning.recording import Recorder

# Updates of a try, and what validation and checkpoints take on top of updates.
_TRIED, _BESIDE = 30, 1.1


def updates_within(
    hours: float, plan: Plan, model: Any, proposal: Any, split: Any, warmup: int | None = None
) -> int:
    """Return how many updates a plan's recipe makes in some hours, without compilation.

    Rates decay to the end of training, so its length has to be known before it begins. Phases take
    their shares; if `warmup` says how many updates the first one has, the others share the rest.
    """
    check_positive("hours", hours)
    phases = plan.recipe.phases
    if processes.is_first():
        report("a short try of each phase says how many updates there is time for")
    costs = [seconds_of_one(plan, phase, model, proposal, split) for phase in phases]
    seconds = 3600 * hours / _BESIDE
    first = 0 if warmup is None else 1
    mean = np.average(costs[first:], weights=[phase.share for phase in phases[first:]])
    if warmup is None:
        number = processes.largest(max(1, int(seconds / mean)))
    else:
        # By the fastest clock, so that all processes go on, or none.
        rest = processes.largest(int((seconds - warmup * costs[0]) / mean))
        if rest < 1:
            raise InputError(
                f"are {warmup:,} updates, which take longer than the {hours:g} hours: give fewer",
                argument="warmup_epochs",
            )
        number = warmup + rest
    if processes.is_first():
        each = " and ".join(f"{1000 * cost:.0f}" for cost in costs)
        report(f"{hours:g} hours are time for about {number:,} updates, which take {each} ms each")
    return number


def seconds_of_one(
    plan: Plan, phase: Phase, model: Any, proposal: Any, split: Any, tried: int = _TRIED
) -> float:
    """Return the seconds of an update of a phase, without compilation, after a few were tried."""
    recipe = Recipe((phase,), plan.recipe.average)
    plan = dataclasses.replace(
        plan,
        recipe=recipe,
        num_epochs=None,
        num_updates=tried,
        ends=None,
        validation=None,
        callbacks=(),
    ).fitted_to(len(split))
    loop, params = prepare(plan, model, proposal, split, Recorder(), show_progress=False)
    fitted = loop.run(params, resume=False)
    if fitted.is_interrupted:
        raise KeyboardInterrupt
    # The first update is a chunk of its own, which compiles.
    first, *_, last = fitted.history
    return (last["seconds"] - first["seconds"]) / (last["update"] - first["update"])
