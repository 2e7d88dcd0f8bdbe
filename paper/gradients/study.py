"""How biased and how noisy estimators of the gradient of log p(x) are, on a trained model.

The gradient of log p(x) in the decoder's weights theta is the posterior mean of the gradient of
log p(x, z). An estimator averages that gradient over the ends of K chains, by some weights: which
inverse temperatures the chains pass and which weights they get is a line of
`paper.gradients.estimators`. All of them cost the same. They run with the paper's kernel and again
with the tuned one, whose shorter transitions allow more of them, each with step sizes that were
tuned for its very schedule.

The reference is the same average over long annealing runs that then walk on at the posterior.
`paper.gradients.bias` says how bias and noise are told from one another and from the reference's
noise; both are stated as shares of the reference's norm, the noise for a batch of `BATCH` examples.
Over many updates noise averages out and bias does not.

Beside the gradient, one number in nats is easier to grasp: the mean of log p(x, z) under an
estimator's samples less its posterior mean.
"""

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from aisle.files import writing
from aisle.statistics import summarise
from aisle.types import Model, Proposal
from paper.core.chains import (
    EVALUATION,
    TRAINING,
    Kernel,
    first_kernel,
    gradients_per_chain,
    tune_steps,
)
from paper.core.trained import Subject, claim_folder, digest, open_subject
from paper.gradients import reference as references
from paper.gradients.averages import Averages, Examples, Program, average, make_program
from paper.gradients.bench import Bench, Meter, Settings, check_settings
from paper.gradients.bias import compare
from paper.gradients.estimators import (
    CHAIN_SCHEDULES,
    ESTIMATORS,
    KERNELS,
    WEIGHTINGS,
    EstimatorResult,
    Shares,
)
from paper.gradients.reference import Reference
from paper.gradients.verdicts import best_hybrid

# Examples of an update in the paper, for which noise is stated.
BATCH = 128

# Transitions for which the bias in log p(x, z) is drawn as a curve.
CURVE = (2, 5, 11, 25)


class GradientStudy(NamedTuple):
    """Everything that the table and the figure show.

    Attributes:
        results: of every estimator for the temperatures asked for.
        curve: results for other numbers of transitions, of the estimators that have a curve.
        hybrid: the best of the estimators that anneal first and then stay at the posterior.
        training: command that trains the model, if it is a run's.
    """

    results: list[EstimatorResult]
    curve: list[EstimatorResult]
    hybrid: str
    reference: Reference
    settings: Settings
    training: str | None = None


class Case(NamedTuple):
    """Chains that several estimators share, which then differ in the weights only."""

    kernel: str
    num_temperatures: int
    schedule: str

    @property
    def name(self) -> str:
        """Name of its file and of its draws."""
        return f"{self.kernel}-T{self.num_temperatures}-{self.schedule}"


def measure_run(
    path: Path,
    settings: Settings,
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    show_progress: bool = True,
) -> tuple[GradientStudy, Path]:
    """Measure on a run's newest checkpoint; return what was found and the folder that has it."""
    check_settings(settings)
    # In one order and each once, so that the same temperatures are the same measurement.
    settings = settings._replace(temperatures=tuple(sorted(set(settings.temperatures))))
    subject = open_subject(path, settings.num_examples, data_dir)
    examples = Examples(np.asarray(subject.x), subject.indices)
    folder = path / "gradients" if out is None else out
    claim_folder(folder, _identity(subject, examples, settings), "parts")
    study = measure(
        subject.model,
        subject.proposal,
        examples,
        subject.pilot_x,
        settings,
        folder=folder / "parts",
        show_progress=show_progress,
    )
    return study._replace(training=subject.command), folder


def measure(
    model: Model,
    proposal: Proposal,
    examples: Examples,
    pilot_xs: PyTree,
    settings: Settings,
    *,
    folder: Path | None = None,
    show_progress: bool = True,
) -> GradientStudy:
    """Compare every estimator with the reference; what `folder` already has is read."""
    bench = Bench(model, proposal, examples, pilot_xs, settings, folder, show_progress)
    reference = references.find(bench)
    results = _results(bench, table_cases(settings), reference)
    hybrid = best_hybrid(results)
    curve = _results(bench, curve_cases(settings, hybrid), reference)
    return GradientStudy(results, curve, hybrid, reference, settings)


def table_cases(settings: Settings) -> list[Case]:
    """Return all chains of the table: of each kernel, number of temperatures and schedule."""
    used = dict.fromkeys(estimator.schedule for estimator in ESTIMATORS.values())
    return [Case(*size) for size in itertools.product(KERNELS, settings.temperatures, used)]


def curve_cases(settings: Settings, hybrid: str) -> list[Case]:
    """Return the chains that the curve needs beside those of the table."""
    used = dict.fromkeys(ESTIMATORS[name].schedule for name in curve_names(hybrid))
    others = [T for T in CURVE if T not in settings.temperatures]
    return [Case("paper", *size) for size in itertools.product(others, used)]


def curve_names(hybrid: str) -> tuple[str, str, str]:
    """Return the estimators that have a curve."""
    return "mh-hmc", "ais", hybrid


def _results(bench: Bench, cases: list[Case], reference: Reference) -> list[EstimatorResult]:
    """Read the results of the cases that are done, and measure the others."""
    found = {case: _read_case(bench.folder, case) for case in cases}
    missing = [case for case in cases if found[case] is None]
    costs = [bench.settings.repeats * _cost(_first_kernel(bench, case)) for case in missing]
    program = make_program(bench.model, bench.proposal, _weigh)
    meter = bench.meter(costs)
    with meter.progress:
        for case in missing:
            found[case] = measured = _measure(bench, case, reference, program, meter)
            _write_case(bench.folder, case, measured)
    return [result for case in cases for result in found[case] or []]


def _measure(
    bench: Bench, case: Case, reference: Reference, program: Program, meter: Meter
) -> list[EstimatorResult]:
    """Tune the chains of a case, repeat them, and compare each of its estimators."""
    kernel, key, repeats = _tuned(bench, case), bench.key(case.name), []
    for number in range(bench.settings.repeats):
        spend = partial(meter.spend, case.name, _cost(kernel))
        key_repeat = jax.random.fold_in(key, number)
        repeats.append(average(program, kernel, key_repeat, bench.examples, spend))
    names = [name for name, e in ESTIMATORS.items() if e.schedule == case.schedule]
    return [_result(case, name, kernel, repeats, reference) for name in names]


def _result(
    case: Case, name: str, kernel: Kernel, repeats: list[Averages], reference: Reference
) -> EstimatorResult:
    place = list(WEIGHTINGS).index(ESTIMATORS[name].weighting)
    gradients = np.stack([repeat.gradients[place] for repeat in repeats])
    log_joint = np.mean([repeat.log_joint[place] for repeat in repeats], axis=0)
    difference = summarise(log_joint - reference.log_joint.mean(axis=0))
    compared = compare(gradients, reference.gradients, log_joint.size / BATCH)
    return EstimatorResult(
        case.kernel,
        case.num_temperatures,
        len(kernel.step_sizes),
        kernel.num_leapfrog,
        name,
        # Each chain, and the gradient in theta at its end.
        _cost(kernel) + kernel.num_samples,
        *compared.bias,
        *compared.noise,
        *compared.total,
        difference.mean,
        difference.standard_error,
        float(np.mean([repeat.effective_sample_size[place] for repeat in repeats])),
        float(np.mean([repeat.acceptance for repeat in repeats])),
    )


def _weigh(log_weights: Shares) -> Float[Array, "weightings samples"]:
    return jnp.stack([weighting(log_weights) for weighting in WEIGHTINGS.values()])


def _first_kernel(bench: Bench, case: Case) -> Kernel:
    """Return the kernel of a case before its step sizes are tuned."""
    preset, L = bench.preset(TRAINING, case.kernel), bench.settings.num_leapfrog
    if case.kernel == "paper":
        preset = preset._replace(num_leapfrog=L)
    number = max(1, case.num_temperatures * L // preset.num_leapfrog)
    betas = CHAIN_SCHEDULES[case.schedule](number)
    return first_kernel(preset, betas, bench.settings.num_samples)


def _tuned(bench: Bench, case: Case) -> Kernel:
    kernel, key = _first_kernel(bench, case), bench.key(case.name, "pilot")
    networks, target = (bench.model, bench.proposal), TRAINING[case.kernel].target_accept
    # Transition by transition, as several may be at the same temperature.
    return tune_steps(key, *networks, bench.pilot_xs, kernel, target)


def _cost(kernel: Kernel) -> int:
    return kernel.num_samples * gradients_per_chain(kernel)


def _read_case(folder: Path | None, case: Case) -> list[EstimatorResult] | None:
    """Read the results of a case; a file that is damaged is as good as not there."""
    if folder is None:
        return None
    try:
        stored = json.loads((folder / f"{case.name}.json").read_text())
        return [EstimatorResult(**result) for result in stored]
    except (OSError, ValueError, TypeError):
        return None


def _write_case(folder: Path | None, case: Case, results: list[EstimatorResult]) -> None:
    if folder is None:
        return
    with writing(folder / f"{case.name}.json") as part:
        part.write_text(json.dumps([result._asdict() for result in results], indent=1) + "\n")


def _identity(subject: Subject, examples: Examples, settings: Settings) -> dict[str, Any]:
    """Return everything that the numbers depend on, weights and data as hashes."""
    return {
        **settings._asdict(),
        "update": subject.update,
        "weights": digest((subject.model, subject.proposal)),
        "examples": digest(examples.xs),
        "estimators": ESTIMATORS,
        "kernels": {name: TRAINING[name]._asdict() for name in KERNELS},
        "reference_kernel": EVALUATION["tuned"]._asdict(),
    }
