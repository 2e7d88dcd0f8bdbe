"""Which kernel is the tightest at the same cost, on a trained model.

The mean log-weight of one chain is a lower bound of log p(x). How far below it lies depends on the
kernel, and what a kernel may cost is the budget: T L gradients of log p(x, z), so that a kernel
with longer trajectories has fewer temperatures. A chain needs one gradient more to start, and the
move at beta = 1, which training makes too, is counted though it leaves the weight as it is.

Each kernel's step sizes are tuned on training examples and frozen; the chains that are compared run
on test examples with another key. All kernels share that key, so that their chains start at the
same points: the gaps differ by what the kernels do. For log p(x) stands a much longer run with
bidirectional Monte Carlo as its certificate.
"""

import dataclasses
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.annealing import Kernel, schedules
from aisle.annealing.kernel import gradients_per_chain, run_forward
from aisle.annealing.presets import TRAINING, Preset
from aisle.errors import check_rules, check_seed
from aisle.evaluation import LogLikelihood, log_likelihood, parts, runs
from aisle.evaluation.folders import claim
from aisle.evaluation.pilot import FIRST_STEP, NUM_ROUNDS, tune_exactly
from aisle.evaluation.work import Job, Limits, preferred_examples, walk
from aisle.experiments import evaluating
from aisle.experiments.held_out import held_out
from aisle.experiments.training import Run, open_run
from aisle.files import remove_leftovers
from aisle.models.joint import log_joint
from aisle.statistics import Mean, summarise
from aisle.types import Model, PRNGKey, Proposal

# A schedule of this module's own: temperatures placed by the log-ratios of a pilot run.
ADAPTED = "adapted"

# How the runs that stand for log p(x) are made, whatever the defaults of an evaluation.
TRUTH: dict[str, Any] = {
    "num_leapfrog": 4,
    "schedule": "sigmoid",
    "precondition": 0.75,
    "momentum_refresh": 0.6,
    "target_accept": 0.8,
    "bdmc_examples": 100,
}

# Bytes that the temporary arrays of a tile may take on a device.
_MEMORY = 512 * 2**20

# No round of an evaluation has this number: its keys and those below are not the same.
_NO_ROUND = 2**31

# What the keys are for.
_TUNING, _RATIOS, _CHAINS = range(3)

_WORDS = {
    "num_leapfrog": "L={}",
    "schedule": "{} schedule",
    "precondition": "scale^{:g}",
    "momentum_refresh": "refresh {:g}",
    "jitter": "jitter {:g}",
    "target_accept": "target {:g}",
}


def _variant(start: str, **changes: Any) -> tuple[str, Preset]:
    """Change a preset, and name it by what was changed."""
    words = [_WORDS[name].format(value) for name, value in changes.items()]
    # Evenly spaced if nothing else is said: a schedule that stays at the posterior helps training,
    # but what is compared here are weights, which gain nothing there.
    return ", ".join([start, *words]), TRAINING[start]._replace(**{"schedule": "linear", **changes})


def _variants() -> dict[str, Preset]:
    """Return one change at a time: of paper, from paper to tuned, and of tuned."""
    tuned = TRAINING["tuned"]._asdict()
    leapfrog, power, refresh = (
        {name: tuned[name]} for name in ("num_leapfrog", "precondition", "momentum_refresh")
    )
    pairs = [
        _variant("paper"),
        _variant("paper", num_leapfrog=2),
        *(_variant("paper", precondition=value) for value in (0.5, 0.75, 1.0)),
        _variant("paper", **power, **leapfrog),
        _variant("paper", **power, **leapfrog, **refresh),
        _variant("tuned"),
        *(_variant("tuned", precondition=value) for value in (0.5, 1.0)),
        *(_variant("tuned", num_leapfrog=value) for value in (1, 4)),
        _variant("tuned", momentum_refresh=0.4),
        *(_variant("tuned", target_accept=value) for value in (0.65, 0.9)),
        _variant("tuned", jitter=0.2),
        *(_variant("tuned", schedule=value) for value in ("sigmoid", "ramp", ADAPTED)),
        _variant("paper", schedule=ADAPTED),
    ]
    return dict(pairs)


VARIANTS = _variants()


class Config(NamedTuple):
    """What is compared, and how well.

    Attributes:
        num_examples: of the test examples, spread evenly.
        chains: of each example and kernel.
        budgets: T L of a chain; T is rounded down, but at least 1.
        truth_temperatures: T of the runs that stand for log p(x).
        truth_chains: of each example in those.
        seed: of all draws.
    """

    num_examples: int
    chains: int
    budgets: tuple[int, ...]
    truth_temperatures: int
    truth_chains: int
    seed: int


class Study(NamedTuple):
    """A comparison that has begun: what all kernels share, and the folder that it is kept in."""

    run: Run
    config: Config
    folder: Path
    indices: np.ndarray
    x: Array
    pilot_x: Array
    show_progress: bool

    def key(self, purpose: int) -> PRNGKey:
        """Return the key for one purpose, the same for each kernel."""
        root = jax.random.fold_in(jax.random.key(self.config.seed), _NO_ROUND)
        return jax.random.fold_in(root, purpose)


class Row(NamedTuple):
    """What is known of one kernel at one budget.

    Attributes:
        gradients: of log p(x, z) that a chain costs: T L + 1.
        log_weight: mean log-weight of one chain, over chains and then over examples.
        gap: log p(x) less that, of the same examples.
        acceptance: mean over temperatures and chains.
        num_nonfinite: transitions that were rejected for an infinite energy.
        seconds: of tuning, compiling and running.
        gaps: of each example.
    """

    variant: str
    preset: Preset
    budget: int
    num_temperatures: int
    gradients: int
    log_weight: Mean
    gap: Mean
    acceptance: float
    num_nonfinite: int
    seconds: float
    gaps: np.ndarray


class Ratio(NamedTuple):
    """Gap of tuned by gap of paper at one budget, with its standard error to first order."""

    budget: int
    ratio: float
    standard_error: float


class Saving(NamedTuple):
    """Gap of paper less gap of tuned, which has a smaller budget, paired by example."""

    tuned_budget: int
    paper_budget: int
    difference: Mean


def begin(
    path: Path,
    config: Config,
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    show_progress: bool = True,
) -> Study:
    """Open a run and its data, and make or find again the folder of the comparison."""
    _check(config)
    # In one order, so that the same budgets are the same comparison.
    config = config._replace(budgets=tuple(sorted(set(config.budgets))))
    run = open_run(path)
    evaluating.check_weights(run)
    data = held_out(run, config.num_examples, data_dir)
    folder = path / "kernels" if out is None else out
    claim(folder, config._asdict() | {"update": run.update, "variants": VARIANTS})
    for place in (folder, folder / "rows"):
        remove_leftovers(place)
    return Study(run, config, folder, *data, show_progress)


def estimate_truth(study: Study) -> LogLikelihood:
    """Estimate log p(x) of each example, going on where an earlier start was."""
    return log_likelihood(
        study.run.model,
        study.run.proposal,
        study.x,
        num_chains=study.config.truth_chains,
        num_temperatures=study.config.truth_temperatures,
        **TRUTH,
        pilot_x=study.pilot_x,
        indices=study.indices,
        seed=study.config.seed,
        out=study.folder / "truth",
        show_progress=study.show_progress,
    )


def compare(study: Study, truth: LogLikelihood) -> Iterator[Row]:
    """Yield a row for each budget and kernel; those of an earlier start are read, not computed."""
    for budget in study.config.budgets:
        for name, preset in VARIANTS.items():
            yield _row(name, preset, budget, _figures(study, name, preset, budget), truth)


def ratios(rows: list[Row]) -> list[Ratio]:
    """Compare tuned with paper at each budget."""
    return [_ratio(b, _gaps(rows, "tuned", b), _gaps(rows, "paper", b)) for b in _budgets(rows)]


def savings(rows: list[Row]) -> list[Saving]:
    """Compare tuned at each budget with paper at the next larger one."""
    return [
        Saving(small, large, summarise(_gaps(rows, "paper", large) - _gaps(rows, "tuned", small)))
        for small, large in pairwise(_budgets(rows))
    ]


def _check(config: Config) -> None:
    rules = {
        "chains": (config.chains >= 1, "at least 1"),
        "budgets": (min(config.budgets, default=0) >= 1, "one or more numbers, each at least 1"),
        "truth_temperatures": (config.truth_temperatures >= 2, "at least 2"),
        "truth_chains": (config.truth_chains >= 1, "at least 1"),
    }
    check_rules(config._asdict(), rules)
    check_seed(config.seed)


def _figures(study: Study, name: str, preset: Preset, budget: int) -> dict[str, np.ndarray]:
    """Run a kernel's chains, or read what an earlier start has kept of them."""
    words = re.sub(r"[^a-z0-9.]+", "-", name.lower())
    file = study.folder / "rows" / f"{words}-{budget}.npz"
    figures = parts.load_arrays(file)
    if figures is None:
        figures = _run(study, f"{name}, {budget}", preset, budget)
        parts.save_arrays(file, figures)
    return figures


def _run(study: Study, name: str, preset: Preset, budget: int) -> dict[str, np.ndarray]:
    """Tune a kernel to the budget, and run its chains on the test examples."""
    start, chains = time.perf_counter(), study.config.chains
    kernel = _tuned(study, preset, max(1, budget // preset.num_leapfrog))
    cost = gradients_per_chain(kernel)
    context, key = (study.run.model, study.run.proposal, kernel), study.key(_CHAINS)
    preferred = preferred_examples(chains, cost)
    job = Job(name, runs.forward, context, key, study.x, study.indices, chains * cost, preferred)
    figures = walk(job, Limits(_MEMORY, is_shown=study.show_progress)).figures
    return {
        **figures,
        "indices": study.indices,
        "gradients": np.array(cost),
        "betas": np.asarray(kernel.betas),
        "step_sizes": np.asarray(kernel.step_sizes),
        "seconds": np.array(time.perf_counter() - start),
    }


def _tuned(study: Study, preset: Preset, num_temperatures: int) -> Kernel:
    """Return a kernel with tuned step sizes, and with temperatures placed by a pilot if adapted."""
    is_adapted = preset.schedule == ADAPTED
    first = "linear" if is_adapted else preset.schedule
    betas = schedules.named(first, num_temperatures)
    kernel = preset.kernel(betas, FIRST_STEP, study.config.chains)
    tuned = _with_steps(study, kernel, preset.target_accept)
    if not is_adapted:
        return tuned
    key, (model, proposal) = study.key(_RATIOS), (study.run.model, study.run.proposal)
    found = _log_ratios(key, model, proposal, study.pilot_x, tuned)
    betas = schedules.adapted(kernel.betas, found, num_temperatures)
    return _with_steps(study, dataclasses.replace(kernel, betas=betas), preset.target_accept)


def _with_steps(study: Study, kernel: Kernel, target: float) -> Kernel:
    key, (model, proposal) = study.key(_TUNING), (study.run.model, study.run.proposal)
    sizes = tune_exactly(key, model, proposal, study.pilot_x, kernel, jnp.asarray(target))
    return dataclasses.replace(kernel, step_sizes=sizes)


@eqx.filter_jit
def _log_ratios(
    key: PRNGKey, model: Model, proposal: Proposal, xs: Array, kernel: Kernel
) -> Float[Array, " temperatures"]:
    """Return the mean of log p - log q at each temperature, of as many chains as tuning takes."""

    def one_round(key: PRNGKey) -> Array:
        return jnp.mean(jax.vmap(chain)(jax.random.split(key, len(xs)), xs), axis=0)

    def chain(key: PRNGKey, x: Array) -> Array:
        return run_forward(key, proposal(x), log_joint(model, x), kernel).info.log_ratio

    return jnp.mean(jax.lax.map(one_round, jax.random.split(key, NUM_ROUNDS)), axis=0)


def _row(
    name: str, preset: Preset, budget: int, figures: dict[str, np.ndarray], truth: LogLikelihood
) -> Row:
    means = figures["log_weight"].mean(axis=1, dtype=np.float64)
    gaps = truth.log_p - means
    return Row(
        name,
        preset,
        budget,
        len(figures["step_sizes"]),
        int(figures["gradients"]),
        summarise(means),
        summarise(gaps),
        float(figures["mean_acceptance"].mean()),
        int(figures["num_nonfinite"].sum()),
        float(figures["seconds"]),
        gaps,
    )


def _budgets(rows: list[Row]) -> list[int]:
    return sorted({row.budget for row in rows})


def _gaps(rows: list[Row], variant: str, budget: int) -> np.ndarray:
    return next(r.gaps for r in rows if (r.variant, r.budget) == (variant, budget))


def _ratio(budget: int, tuned: np.ndarray, paper: np.ndarray) -> Ratio:
    ratio = tuned.mean() / paper.mean()
    # Both means vary with the examples, and together: what is left over is their error.
    rest = summarise(tuned - ratio * paper)
    return Ratio(budget, float(ratio), float(rest.standard_error / abs(paper.mean())))
