"""The plans of one evaluation: short runs, a better start where it pays, and what comes next."""

import math
import time
from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np

from aisle import processes
from aisle.evaluation import planning, refitting
from aisle.evaluation.examples import num_gradients, num_gradients_both_ways
from aisle.evaluation.folders import kept
from aisle.evaluation.planning import Costs, Forecast, Plan, spreads_of
from aisle.evaluation.results import Round
from aisle.evaluation.task import (
    PLAN,
    Spent,
    Task,
    careful,
    placed,
    refitted,
    short_run,
    tuned,
)
from aisle.evaluation.work import Outcome, is_late

# Updates of a refit that is tried without being asked for: where the plan without it takes so many
# times the gradients.
_REFITS, _WORTH = 6000, 4

# How far beyond the T of the round before a later plan may go.
_FURTHER = 8.0


def _agreed(seconds: float) -> float:
    """Return the first process's clock: all must make the same plan, or they wait for ever."""
    return float(processes.from_first(np.float64(seconds)))


class Planner:
    """Makes the plans of an evaluation.

    Attributes:
        task: with step sizes, and with the proposal that chains start from.
    """

    def __init__(self, task: Task) -> None:
        self._schedule = task.sampler.kernel.schedule
        self._begin(task)

    def first(self) -> Plan:
        """Return the first plan, or the one that the evaluation was begun with."""
        task, certificate = self.task, self.task.certificate
        asked = (certificate.tolerance, certificate.max_seconds, certificate.num_examples)
        name = "-".join("none" if value is None else f"{value:g}" for value in asked)

        def make() -> dict[str, np.ndarray]:
            plan = self._choose(self._temperatures())
            for change in (self._refitted, careful):
                if self._is_worth_trying(plan):
                    plan = self._with_change(change, plan)
            # Not under its own names: `seconds` are those that making this took.
            fields = {f"plan_{name}": value for name, value in plan._asdict().items()}
            return {n: np.array(v) for n, v in {"spent": self.task.spent, **fields}.items()}

        stored, _ = kept(task.path(f"planned-{name}.npz"), make)
        plan = Plan(*(stored[f"plan_{name}"].item() for name in Plan._fields))
        if plan.is_refitted and not self.task.num_refits:
            self._change(self._refitted)
        if plan.is_careful and not self.task.is_careful:
            self._change(careful)
        gradients, seconds = stored["spent"].tolist()
        self.task = self.task._replace(spent=Spent(round(gradients), seconds))
        return plan

    def again(self, simulated: Outcome, last: Round) -> Plan:
        """Return a plan after a round that missed the tolerance."""
        number, tolerance = last.num_temperatures, self.task.certificate.tolerance
        assert tolerance is not None and last.bdmc is not None
        had, before = len(simulated.indices), self._known
        spreads = spreads_of(simulated.numbers["up"], simulated.numbers["down"])
        self._known = Forecast(spreads, number, before.power)
        if number > before.num_temperatures:
            pair = ((before.num_temperatures, before.spreads), (number, spreads))
            self._known = planning.forecast(*pair)
        choices = self._temperatures(number)
        is_changing = last.change is not None and abs(last.change) >= tolerance
        if is_changing:
            choices = [each for each in choices if each >= 2 * number] or choices[-1:]
        plan = self._choose(choices)
        if plan.num_temperatures == number and plan.num_simulated < 2 * had:
            plan = plan._replace(num_simulated=2 * had)
        return plan

    def _temperatures(self, number: int | None = None) -> list[int]:
        sampler = self.task.sampler
        if not callable(sampler.kernel.schedule):
            return [sampler.num_temperatures]
        if number is None:
            return planning.ladder_of_temperatures()
        return planning.ladder_of_temperatures(number, _FURTHER)

    def _choose(self, temperatures: list[int]) -> Plan:
        task = self.task
        assert task.certificate.tolerance is not None
        left = math.inf if task.deadline is None else _agreed(task.deadline - time.perf_counter())
        plan = planning.choose(
            self._known,
            self._costs,
            task.certificate.tolerance,
            fewest_examples=task.certificate.num_examples,
            temperatures=temperatures,
            seconds=left,
        )
        is_refitted = task.num_refits > 0
        return plan._replace(is_refitted=is_refitted, is_careful=task.is_careful)

    def _begin(self, task: Task) -> None:
        """Tune, place the temperatures and make short runs, for two T if these are free."""
        task = placed(tuned(task))
        numbers = planning.TEMPERATURES
        if not callable(task.sampler.kernel.schedule):
            numbers = (task.sampler.num_temperatures,)
        runs, costs = [], []
        for number in numbers:
            run, spent = short_run(task, number, PLAN)
            runs.append((number, spreads_of(run.numbers["up"], run.numbers["down"])))
            costs.append(Spent(spent.gradients, _agreed(spent.seconds)))
            task = task.after(costs[-1])
        self.task = task
        self._known = Forecast(runs[0][1], runs[0][0], 1.0)
        if len(runs) > 1:
            self._known = planning.forecast(*runs)
        self._costs = self._costs_from(costs)

    def _costs_from(self, costs: list[Spent]) -> Costs:
        """Tell the time of a gradient from that of compiling.

        Both runs took it alike, or the first none, where another has placed the temperatures.
        """
        (few, short), (many, long) = costs[0], costs[-1]
        rate = long / many
        if self.task.is_placed:
            rate = min(rate, short / few)
        elif many > few and long > short:
            rate = (long - short) / (many - few)
        sampler = self.task.sampler
        per_move, chains = sampler.kernel.transition.num_gradients, sampler.num_chains
        return Costs(
            lambda number: num_gradients(number, per_move, chains),
            lambda number: num_gradients_both_ways(number, per_move, chains),
            len(self.task.indices),
            chains,
            rate,
            max(0.0, long - many * rate),
        )

    def _is_worth_trying(self, plan: Plan) -> bool:
        """Say whether another start may pay: where the plan is long, or does not do."""
        task, cost = self.task, _WORTH * _REFITS * refitting.BATCH_SIZE
        is_long = plan.gradients > cost or self._merit(plan)[0]
        seconds = cost * self._costs.seconds_per_gradient
        return task.sampler.refit is None and is_long and not is_late(task.deadline, seconds)

    def _with_change(self, change: Callable[[Task], Task], plain: Plan) -> Plan:
        """Change the start, plan again, and keep the better of both."""
        before = (self.task, self._known, self._costs)
        if not self._change(change):
            return plain
        plan, spent = self._choose(self._temperatures()), self.task.spent
        if self._merit(plan) < self._merit(plain):
            return plan
        self.task, self._known, self._costs = before
        self.task = self.task._replace(spent=spent)
        return plain

    def _merit(self, plan: Plan) -> tuple[bool, float]:
        """Plans that should reach the tolerance are compared by cost, the others by their gap."""
        is_short = plan.gap > (self.task.certificate.tolerance or 0)
        return is_short, plan.gap if is_short else float(plan.gradients)

    def _change(self, change: Callable[[Task], Task]) -> bool:
        """Begin with a changed task; say whether it has changed."""
        task = self.task.with_kernel(schedule=self._schedule)
        changed = change(task)
        if changed is task:
            return False
        self._begin(changed)
        return True

    def _refitted(self, task: Task) -> Task:
        has_weights = jax.tree.leaves(eqx.filter(task.proposal, eqx.is_inexact_array))
        return refitted(task, _REFITS) if has_weights else task
