"""Which kernel is the tightest at the same cost, on a trained model.

The mean log-weight of one chain is a lower bound of log p(x). How far below it lies depends on the
kernel. What a chain may cost is given in leapfrog steps, T L of them, so that a kernel with longer
trajectories has fewer temperatures. A step costs a gradient of log p(x, z); a chain needs one
gradient more to start, and the move at beta = 1, which training makes too, is counted though it
leaves the weight as it is.

Each kernel's step sizes are tuned on training examples and frozen; the chains that are compared run
on test examples with another key. All kernels share that key, so that their chains start at the
same points: the gaps differ by what the kernels do. A much longer run, with bidirectional Monte
Carlo as its certificate, stands for log p(x).
"""

import dataclasses
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aisle.errors import check, check_seed
from aisle.statistics import Mean, summarise
from aisle.types import PRNGKey
from paper.core import chains
from paper.core.chains import Kernel, Preset
from paper.core.trained import (
    LogLikelihood,
    Subject,
    claim_folder,
    estimate_log_p,
    load_arrays,
    open_subject,
    save_arrays,
)
from paper.kernels.variants import ADAPTED, VARIANTS

# How the runs that stand for log p(x) are made, whatever the defaults of an evaluation.
TRUTH = Preset(
    num_leapfrog=4,
    schedule="sigmoid",
    precondition=0.75,
    momentum_refresh=0.6,
    target_accept=0.8,
)

# No round of an evaluation has this number: its keys and those below are not the same.
_NO_ROUND = 2**31

# Moves at each temperature that stand for as many as one likes: the next weight is then that of an
# independent draw.
MANY_MOVES = 40

# What the keys are for.
_TUNING, _RATIOS, _CHAINS = range(3)


class Config(NamedTuple):
    """What is compared, and how well.

    Attributes:
        num_examples: of the test examples, spread evenly.
        chains: of each example and kernel.
        steps: T L of a chain, one or more numbers; T is rounded down, but at least 1.
        truth_temperatures: T of the runs that stand for log p(x).
        truth_chains: of each example in those.
        seed: of all draws.
    """

    num_examples: int
    chains: int
    steps: tuple[int, ...]
    truth_temperatures: int
    truth_chains: int
    seed: int


class Study(NamedTuple):
    """A comparison that has begun: what all kernels share, and the folder that it is kept in."""

    subject: Subject
    config: Config
    folder: Path
    show_progress: bool

    def key(self, purpose: int) -> PRNGKey:
        """Return the key for one purpose, the same for each kernel."""
        root = jax.random.fold_in(jax.random.key(self.config.seed), _NO_ROUND)
        return jax.random.fold_in(root, purpose)


class KernelResult(NamedTuple):
    """What is known of one kernel with so many leapfrog steps.

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
    steps: int
    num_temperatures: int
    gradients: int
    log_weight: Mean
    gap: Mean
    acceptance: float
    num_nonfinite: int
    seconds: float
    gaps: np.ndarray


class Ratio(NamedTuple):
    """Gap of tuned by gap of paper for equal steps, with its standard error to first order."""

    steps: int
    ratio: float
    standard_error: float


class Saving(NamedTuple):
    """Gap of paper less gap of tuned, which makes fewer steps, paired by example."""

    tuned_steps: int
    paper_steps: int
    difference: Mean


def begin(
    path: Path,
    config: Config,
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    show_progress: bool = True,
) -> Study:
    """Open a run and its data, and make the folder of the comparison, or resume in it."""
    _check(config)
    # In one order, so that the same steps are the same comparison.
    config = config._replace(steps=tuple(sorted(set(config.steps))))
    subject = open_subject(path, config.num_examples, data_dir)
    folder = path / "kernels" if out is None else out
    settings = config._asdict() | {"update": subject.update, "variants": VARIANTS}
    claim_folder(folder, settings, "rows")
    return Study(subject, config, folder, show_progress)


def estimate_truth(study: Study) -> LogLikelihood:
    """Estimate log p(x) of each example, or resume an estimate that was interrupted."""
    return estimate_log_p(
        study.subject,
        num_chains=study.config.truth_chains,
        num_temperatures=study.config.truth_temperatures,
        seed=study.config.seed,
        out=study.folder / "truth",
        preset=TRUTH,
        show_progress=study.show_progress,
    )


def compare(study: Study, log_p: np.ndarray) -> Iterator[KernelResult]:
    """Yield the result of each kernel for each number of steps; chains on disk are read.

    `log_p` is what stands for log p(x) of each example.
    """
    for steps in study.config.steps:
        for name, preset in VARIANTS.items():
            yield _result(name, preset, steps, _arrays(study, name, preset, steps), log_p)


def floors(study: Study, log_p: np.ndarray) -> Iterator[KernelResult]:
    """Yield, for each number of steps, the gap of tuned with many moves at each temperature.

    They cost that much more. What is left then is mostly that of the temperatures, whatever moves
    the chains.
    """
    preset = VARIANTS["tuned"]
    for steps in study.config.steps:
        name = f"tuned, {MANY_MOVES} moves"
        arrays = _arrays(study, name, preset, steps, MANY_MOVES)
        yield _result(name, preset, steps, arrays, log_p)


def ratios(results: list[KernelResult]) -> list[Ratio]:
    """Compare tuned with paper for each number of steps."""
    return [
        _ratio(steps, _gaps(results, "tuned", steps), _gaps(results, "paper", steps))
        for steps in _all_steps(results)
    ]


def savings(results: list[KernelResult]) -> list[Saving]:
    """Compare tuned for each number of steps with paper for the next larger one."""
    return [
        Saving(few, many, summarise(_gaps(results, "paper", many) - _gaps(results, "tuned", few)))
        for few, many in pairwise(_all_steps(results))
    ]


def _check(config: Config) -> None:
    rules = {
        "num_examples": (config.num_examples >= 1, "at least 1"),
        "chains": (config.chains >= 1, "at least 1"),
        "steps": (min(config.steps, default=0) >= 1, "one or more numbers, each at least 1"),
        "truth_temperatures": (config.truth_temperatures >= 2, "at least 2"),
        "truth_chains": (config.truth_chains >= 1, "at least 1"),
    }
    for name, (is_kept, rule) in rules.items():
        check(is_kept, name, getattr(config, name), rule)
    check_seed(config.seed)


def _arrays(
    study: Study, name: str, preset: Preset, steps: int, moves: int = 1
) -> dict[str, np.ndarray]:
    """Run a kernel's chains, or read what is on disk of them."""
    words = re.sub(r"[^a-z0-9.]+", "-", name.lower())
    file = study.folder / "rows" / f"{words}-{steps}.npz"
    arrays = load_arrays(file)
    if arrays is None:
        arrays = _run_chains(study, f"{name}, {steps}", preset, steps, moves)
        save_arrays(file, arrays)
    return arrays


def _run_chains(
    study: Study, name: str, preset: Preset, steps: int, moves: int = 1
) -> dict[str, np.ndarray]:
    """Tune a kernel that makes so many steps, and run its chains on the test examples.

    `moves` is how many are made at each temperature.
    """
    start, subject = time.perf_counter(), study.subject
    kernel = _repeated(_tuned(study, preset, max(1, steps // preset.num_leapfrog)), moves)
    found = chains.anneal_examples(
        name,
        (subject.model, subject.proposal),
        kernel,
        study.key(_CHAINS),
        subject.x,
        subject.indices,
        show_progress=study.show_progress,
    )
    return {
        **found,
        "indices": subject.indices,
        "gradients": np.array(chains.gradients_per_chain(kernel)),
        "betas": np.asarray(kernel.betas),
        "step_sizes": np.asarray(kernel.step_sizes),
        "seconds": np.array(time.perf_counter() - start),
    }


def _tuned(study: Study, preset: Preset, num_temperatures: int) -> Kernel:
    """Return a kernel with tuned step sizes, and with temperatures placed by a pilot if adapted."""
    is_adapted = preset.schedule == ADAPTED
    betas = chains.betas_of("linear" if is_adapted else preset.schedule, num_temperatures)
    kernel = chains.first_kernel(preset, betas, study.config.chains)
    tuned = _with_steps(study, kernel, preset.target_accept)
    if not is_adapted:
        return tuned
    key, (model, proposal) = study.key(_RATIOS), (study.subject.model, study.subject.proposal)
    found = chains.mean_log_ratios(key, model, proposal, study.subject.pilot_x, tuned)
    betas = chains.schedules.placed(kernel.betas, found)(num_temperatures)
    return _with_steps(study, dataclasses.replace(kernel, betas=betas), preset.target_accept)


def _repeated(kernel: Kernel, moves: int) -> Kernel:
    """Return the kernel with so many moves at each temperature, whose weights count once."""
    first, rest = kernel.betas[:1], jnp.repeat(kernel.betas[1:], moves)
    sizes = jnp.repeat(kernel.step_sizes, moves)
    return dataclasses.replace(kernel, betas=jnp.concatenate([first, rest]), step_sizes=sizes)


def _with_steps(study: Study, kernel: Kernel, target: float) -> Kernel:
    key, subject = study.key(_TUNING), study.subject
    networks = (subject.model, subject.proposal)
    return chains.tune_steps(key, *networks, subject.pilot_x, kernel, target)


def _result(
    name: str, preset: Preset, steps: int, arrays: dict[str, np.ndarray], log_p: np.ndarray
) -> KernelResult:
    means = arrays["log_weight"].mean(axis=1, dtype=np.float64)
    gaps = log_p - means
    return KernelResult(
        name,
        preset,
        steps,
        len(arrays["step_sizes"]),
        int(arrays["gradients"]),
        summarise(means),
        summarise(gaps),
        float(arrays["mean_acceptance"].mean()),
        int(arrays["num_nonfinite"].sum()),
        float(arrays["seconds"]),
        gaps,
    )


def _all_steps(results: list[KernelResult]) -> list[int]:
    return sorted({result.steps for result in results})


def _gaps(results: list[KernelResult], variant: str, steps: int) -> np.ndarray:
    return next(r.gaps for r in results if (r.variant, r.steps) == (variant, steps))


def _ratio(steps: int, tuned: np.ndarray, paper: np.ndarray) -> Ratio:
    ratio = tuned.mean() / paper.mean()
    # Both means vary with the examples, and together: what is left over is their error.
    rest = summarise(tuned - ratio * paper)
    return Ratio(steps, float(ratio), float(rest.standard_error / abs(paper.mean())))
