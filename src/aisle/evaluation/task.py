"""What all parts of an evaluation share, and the parts that each of them is made of."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle.annealing import HMC, Ladder, schedules, tuning
from aisle.context import in_context, parts_of
from aisle.evaluation import examples, pilot, planning, refitting
from aisle.evaluation.folders import kept
from aisle.evaluation.sampler import Certificate, Sampler
from aisle.evaluation.work import Job, Outcome, preferred_examples, walk
from aisle.models.use import simulate
from aisle.types import Model, PRNGKey, Proposal

# What the keys of an evaluation are for.
PILOT, FORWARD, BDMC, IMPORTANCE, REFIT, PLAN, PLACE = range(7)

_CAREFUL_ACCEPT = 0.97


class Spent(NamedTuple):
    """Gradients of log p(x, z), and seconds."""

    gradients: int
    seconds: float

    def plus(self, more: "Spent") -> "Spent":
        """Return what both are together."""
        return Spent(self.gradients + more.gradients, self.seconds + more.seconds)


class Task(NamedTuple):
    """What all parts of an evaluation share.

    Attributes:
        proposal: where chains start.
        x: examples, in their context if they have one.
        about: what to write beside the numbers.
        identity: what the numbers depend on beside sampler and seed, as hashes.
        deadline: value of `time.perf_counter` after which no new work is begun, or None.
        num_refits: updates by which the proposal was refitted.
        is_careful: whether steps are smaller, and more of them, than was asked for.
        step_sizes: tuned ones, of the short ladder.
        spent: before the first round.
    """

    model: Model
    proposal: Proposal
    x: PyTree
    pilot_x: PyTree | None
    indices: np.ndarray
    sampler: Sampler
    certificate: Certificate
    importance_samples: int
    seed: int
    folder: Path | None
    about: dict[str, Any] | None
    identity: dict[str, str]
    deadline: float | None
    show_progress: bool
    num_refits: int = 0
    is_careful: bool = False
    step_sizes: np.ndarray | None = None
    spent: Spent = Spent(0, 0.0)

    def key(self, number: int, purpose: int) -> PRNGKey:
        """Return a key for one purpose and one number, such as T: no two share a draw."""
        root = jax.random.key(self.seed)
        return jax.random.fold_in(jax.random.fold_in(root, number), purpose)

    @property
    def suffix(self) -> str:
        """Tells files of other starts and kernels than those that were asked for."""
        words = "-refitted" * (self.num_refits > 0) + "-careful" * self.is_careful
        return words + "-placed" * self.is_placed

    @property
    def is_placed(self) -> bool:
        """Whether a pilot has placed the temperatures."""
        return isinstance(self.sampler.kernel.schedule, schedules.Placed)

    @property
    def num_tuned(self) -> int:
        """Temperatures of the ladder on which step sizes are tuned."""
        kernel = self.sampler.kernel
        if self.certificate.tolerance is not None and callable(kernel.schedule):
            return pilot.MAX_TEMPERATURES
        return pilot.num_short(kernel, self.sampler.num_temperatures)

    def ladder(self, num_temperatures: int) -> Ladder:
        """Return a ladder of so many temperatures, with the step sizes that were tuned."""
        kernel, sizes = self.sampler.kernel, jnp.asarray(self.step_sizes)
        if num_temperatures != self.num_tuned:
            betas, tuned_betas = kernel.betas(num_temperatures), kernel.betas(self.num_tuned)
            sizes = tuning.interpolated(betas, tuned_betas, sizes)
        # A move at beta = 1 would not change the weight.
        return kernel.ladder(num_temperatures, sizes, last_move=False)

    def contexts(self, numbers: np.ndarray) -> PyTree | None:
        """Return contexts to simulate examples in: those of the real ones, in a random order.

        That of a simulated example depends on its number alone, however many there are, and all
        real ones are taken before one is taken again.
        """
        _, context = parts_of(self.x)
        order = np.random.default_rng([self.seed, BDMC]).permutation(len(self.indices))
        return jax.tree.map(lambda a: a[order[numbers % len(order)]], context)

    def after(self, more: Spent) -> "Task":
        """Return the task when so much more was spent before its first round."""
        return self._replace(spent=self.spent.plus(more))

    def with_kernel(self, **changes: Any) -> "Task":
        """Return the task with a kernel that is another in some fields."""
        kernel = dataclasses.replace(self.sampler.kernel, **changes)
        return self._replace(sampler=dataclasses.replace(self.sampler, kernel=kernel))

    def path(self, *names: str) -> Path | None:
        """Return a path in the folder of results, if there is one."""
        return None if self.folder is None else self.folder.joinpath(*names)

    def walk(self, job: Job, *names: str) -> Outcome:
        """Compute a job, with its tiles in a folder of the results."""
        return walk(
            job,
            self.path(*names[:-1], names[-1] + self.suffix),
            memory=self.sampler.memory_mb * 2**20,
            deadline=self.deadline,
            show_progress=self.show_progress,
        )

    def depends_on(self) -> dict[str, Any]:
        """Return what the numbers of a tile depend on, as plain values."""
        kernel = self.sampler.kernel
        hmc, of_hmc = kernel.transition, {}
        if isinstance(hmc, HMC):
            of_hmc = {"precondition": hmc.precondition, "momentum_refresh": hmc.refresh}
        return {
            "num_chains": self.sampler.num_chains,
            "num_temperatures": self.sampler.num_temperatures,
            "num_leapfrog": hmc.num_gradients,
            **of_hmc,
            "target_accept": kernel.target_accept,
            "refit": self.sampler.refit,
            "kernel": repr(kernel),
            "seed": self.seed,
            **self.identity,
        }

    def settings(self) -> dict[str, Any]:
        """Return everything that the result depends on, as plain values."""
        return {
            **self.depends_on(),
            "refit": self.num_refits,
            "bdmc_examples": self.certificate.num_examples,
            "tolerance": self.certificate.tolerance,
            "max_seconds": self.certificate.max_seconds,
            "importance_samples": self.importance_samples,
            "about": self.about,
        }


def refitted(task: Task, num_updates: int) -> Task:
    """Let chains start from a proposal that is fitted to simulated examples."""
    proposal, seconds = refitting.refit(
        task.key(0, REFIT),
        task.model,
        task.proposal,
        num_updates,
        task.path(f"refitted{num_updates}.npz"),
        contexts=parts_of(task.x)[1],
        show_progress=task.show_progress,
    )
    task = task.after(Spent(num_updates * refitting.BATCH_SIZE, seconds))
    return task._replace(proposal=proposal, num_refits=num_updates)


def careful(task: Task) -> Task:
    """Let chains make smaller steps, twice as many: for posteriors of very different widths."""
    kernel = task.sampler.kernel
    hmc = kernel.transition
    if not isinstance(hmc, HMC) or kernel.target_accept >= _CAREFUL_ACCEPT:
        return task
    more = dataclasses.replace(hmc, num_leapfrog=2 * hmc.num_leapfrog)
    task = task.with_kernel(transition=more, target_accept=_CAREFUL_ACCEPT)
    return task._replace(is_careful=True)


def tuned(task: Task) -> Task:
    """Tune step sizes on a pilot, or read those that the evaluation was begun with."""
    kernel, number = task.sampler.kernel, task.num_tuned

    def tune() -> dict[str, np.ndarray]:
        number_of_start = 4 * task.is_placed + 2 * (task.num_refits > 0) + task.is_careful
        key_x, key_chains = jax.random.split(task.key(number_of_start, PILOT))
        if task.pilot_x is None:
            contexts = task.contexts(np.arange(pilot.NUM_EXAMPLES))
            xs = simulate(key_x, task.model, pilot.NUM_EXAMPLES, contexts)
            xs = in_context(xs, contexts)
        else:
            xs = pilot.repeated(task.pilot_x)
        sizes = pilot.tune(key_chains, task.model, task.proposal, xs, kernel, number)
        return {"step_sizes": np.asarray(sizes)}

    stored, seconds = kept(task.path(f"step_sizes{task.suffix}-T{number}.npz"), tune)
    gradients = pilot.num_gradients(kernel, number, pilot.NUM_EXAMPLES)
    return task.after(Spent(gradients, seconds))._replace(step_sizes=stored["step_sizes"])


def placed(task: Task) -> Task:
    """Place the temperatures anew by short chains, and tune step sizes to them.

    A schedule of the user's own stays as it is.
    """
    kernel = task.sampler.kernel
    if kernel.schedule is not schedules.sigmoid:
        return task
    number = planning.TEMPERATURES[0]
    run, spent = short_run(task, number, PLACE)
    task = task.after(spent)
    ratios = run.numbers["mean_log_ratio"]
    if not np.all(np.isfinite(ratios)):
        return task
    schedule = schedules.placed(kernel.betas(number), ratios)
    return tuned(task.with_kernel(schedule=schedule))


def anneal_given(task: Task, num_temperatures: int) -> tuple[Outcome, Spent]:
    """Anneal the given examples."""
    chains = task.sampler.num_chains
    return _anneal(task, FORWARD, num_temperatures, chains, task.x, task.indices)


def anneal_simulated(
    task: Task, num_temperatures: int, indices: np.ndarray
) -> tuple[Outcome, Spent]:
    """Anneal simulated examples of these numbers both ways, for a certificate."""
    xs = in_context(None, task.contexts(indices))
    return _anneal(task, BDMC, num_temperatures, task.sampler.num_chains, xs, indices)


def short_run(task: Task, num_temperatures: int, purpose: int) -> tuple[Outcome, Spent]:
    """Anneal a few simulated examples both ways by a few chains, for a plan."""
    indices = np.arange(planning.NUM_EXAMPLES)
    xs = in_context(None, task.contexts(indices))
    return _anneal(task, purpose, num_temperatures, planning.NUM_CHAINS, xs, indices)


def _anneal(
    task: Task,
    purpose: int,
    num_temperatures: int,
    num_chains: int,
    xs: PyTree,
    indices: np.ndarray,
) -> tuple[Outcome, Spent]:
    """Return what chains found, and what they took; only the given examples go one way."""
    function, count = examples.both_ways, examples.num_gradients_both_ways
    if purpose == FORWARD:
        function, count = examples.forward, examples.num_gradients
    name, shown = _WALKS[purpose]
    ladder = task.ladder(num_temperatures)
    job = Job(
        name=f"T={num_temperatures}, {shown}",
        function=function,
        context=(task.model, task.proposal, ladder, num_chains),
        key=task.key(num_temperatures, purpose),
        xs=xs,
        indices=indices,
        gradients=count(num_temperatures, ladder.transition.num_gradients, num_chains),
        preferred=preferred_examples(num_chains, ladder.num_gradients),
    )
    outcome = task.walk(job, f"T{num_temperatures}", name)
    return outcome, Spent(len(outcome.indices) * job.gradients, outcome.seconds)


# Of each purpose, the name of its folder and what is shown beside the bar.
_WALKS = {
    FORWARD: ("forward", "log p(x)"),
    BDMC: ("bidirectional", "bidirectional"),
    PLAN: ("pilot", "pilot"),
    PLACE: ("placing", "placing"),
}
