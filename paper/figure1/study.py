"""How close q_IS and q_AIS come to their target at the same cost.

The target p is a normal distribution of two variables of variance 1 with a correlation of 0.95; the
proposal q is the independent normal that minimises KL(q || p). Cost is counted as in the paper, K
samples for IS against L x K x T for AIS, with linear inverse temperatures. In fact IS pays K values
of log p, and AIS K (1 + T L) gradients; results state both. The paper does not state its
correlation, and the answer depends on it: the weaker, the less there is to gain.

Two samplers have a known distance to the target, and show whether to believe the others: exact
draws of p, at a distance of 0, and q itself, which is q_IS with K = 1.
"""

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.errors import InputError
from aisle.progress import Progress
from aisle.statistics import summarise
from aisle.types import PRNGKey
from paper.core.chains import (
    Kernel,
    draw_implicit,
    gradients_per_chain,
    schedules,
    tune_for_density,
)
from paper.figure1.target import (
    BINS_PER_AXIS,
    CorrelatedNormal,
    divergence,
    proposal_divergence,
)

# With fewer than about ten draws to a bin, more than the first order of the bias matters.
MIN_DRAWS = 10_000

# A difference must be shown, at 3 standard errors; a control fails at 4.
SHOWN_Z = 3.0
LARGEST_Z = 4.0

Sampler = Literal["target", "proposal", "is", "ais"]


class Split(NamedTuple):
    """How AIS spends a cost."""

    num_leapfrog: int
    num_samples: int
    num_temperatures: int

    @property
    def cost(self) -> int:
        """L x K x T, the K of IS at the same cost."""
        return self.num_leapfrog * self.num_samples * self.num_temperatures


# The paper's L = 5 throughout: its T = 5 and T = 11 for one chain, then its K = 5 and K = 50.
SPLITS = (Split(5, 1, 5), Split(5, 1, 11), Split(5, 5, 11), Split(5, 50, 11))


class SamplerResult(NamedTuple):
    """What is known of one sampler at one cost; costs are those of one draw.

    Attributes:
        cost: K of IS, or L x K x T of AIS; 1 for a control.
        num_leapfrog: L, and below it T; 0 where there are no chains.
        evaluations: values of log p without a gradient.
        gradients: of log p, each with its value.
        divergence: KL to the target over the bins, in nats.
        truth: what it must be, where that is known.
        long_variance: along the target's long axis, as a share of the target's.
    """

    sampler: Sampler
    cost: int
    num_samples: int
    num_leapfrog: int
    num_temperatures: int
    evaluations: int
    gradients: int
    divergence: float
    standard_error: float
    truth: float | None
    long_variance: float
    long_variance_error: float

    @property
    def control_z(self) -> float:
        """Distance from the truth in standard errors, for a control."""
        return (self.divergence - (self.truth or 0.0)) / self.standard_error


class Comparison(NamedTuple):
    """KL of IS less KL of AIS at one cost; `z` is in standard errors of the difference."""

    cost: int
    difference: float
    standard_error: float
    z: float
    closer: Literal["AIS", "IS", "neither"]


class SamplerStudy(NamedTuple):
    """Everything that the figure and its table show.

    Attributes:
        results: the two controls, then IS and AIS by turns for each of `SPLITS`.
        draws: of each result.
        step_sizes: of HMC by temperature, for each (L, T), as tuned and frozen.
    """

    correlation: float
    results: list[SamplerResult]
    draws: list[np.ndarray]
    step_sizes: dict[tuple[int, int], list[float]]


class _Case(NamedTuple):
    sampler: Sampler
    cost: int
    kernel: Kernel


def check_arguments(num_draws: int, correlation: float) -> None:
    """Refuse too few draws for the bins, and what is no correlation."""
    if not 0 < correlation < 1:
        raise InputError(
            f"is {correlation}: it must be above 0 and below 1", argument="correlation"
        )
    if num_draws < MIN_DRAWS:
        raise InputError(
            f"is {num_draws}: it must be at least {MIN_DRAWS}, or the {BINS_PER_AXIS**2} bins "
            "would have too few each",
            argument="draws",
        )


def measure(
    seed: int, num_draws: int, correlation: float = 0.95, *, show_progress: bool = True
) -> SamplerStudy:
    """Draw from every sampler at every cost, and measure."""
    check_arguments(num_draws, correlation)
    p, draws, results = CorrelatedNormal(correlation), [], []
    key_pilot, key_draws = jax.random.split(jax.random.key(seed))
    with Progress(
        2 + 2 * len(SPLITS), "tuning", "draws", units_per_step=num_draws, is_shown=show_progress
    ) as progress:
        kinds = dict.fromkeys((s.num_leapfrog, s.num_temperatures) for s in SPLITS)
        tuned = {kind: _tuned(key_pilot, p, *kind) for kind in kinds}
        for number, case in enumerate(_cases(tuned)):
            draws.append(_draw(jax.random.fold_in(key_draws, number), p, case, num_draws))
            results.append(_result(p, case, draws[-1]))
            progress.advance(number + 1, f"{case.sampler}, cost {case.cost}")
    step_sizes = {kind: np.asarray(kernel.step_sizes).tolist() for kind, kernel in tuned.items()}
    return SamplerStudy(correlation, results, draws, step_sizes)


def comparisons(results: list[SamplerResult]) -> list[Comparison]:
    """Compare IS and AIS at each cost."""
    importance, annealed = ([r for r in results if r.sampler == name] for name in ("is", "ais"))
    return [_compare(*pair) for pair in zip(importance, annealed, strict=True)]


def verdict(results: list[SamplerResult]) -> str:
    """Say in a sentence which comes closer where, and whether the controls hold."""
    compared = comparisons(results)
    controls = [result for result in results if result.truth is not None]
    if not all(abs(control.control_z) < LARGEST_Z for control in controls):
        return "A control is off by more than 4 standard errors: the distances are not to be used."
    found = {name: [c for c in compared if c.closer == name] for name in ("AIS", "IS", "neither")}
    if len(found["AIS"]) == len(compared):
        least = min(c.z for c in compared)
        return (
            "AIS comes closer than IS at every cost, as the paper says, "
            f"by {least:.0f} standard errors or more.{_cheapest(results)}"
        )
    parts = [f"{name} at {_costs(where)}" for name, where in found.items() if where]
    return (
        "The paper says that AIS comes closer at every cost. Here the closer one is "
        f"{'; '.join(parts)}."
    )


def _tuned(key: PRNGKey, p: CorrelatedNormal, num_leapfrog: int, num_temperatures: int) -> Kernel:
    """Tune one chain; the draws of AIS have other keys, whatever their number of chains."""
    betas, sizes = schedules.linear(num_temperatures), jnp.full(num_temperatures, 0.1)
    first = Kernel(betas, sizes, num_leapfrog=num_leapfrog)
    return tune_for_density(key, p.mean_field(), p.log_prob, first)


def _cases(tuned: dict[tuple[int, int], Kernel]) -> list[_Case]:
    """Return the two controls, then both samplers for each split."""
    one_sample = next(iter(tuned.values()))
    cases = [_Case("target", 1, one_sample), _Case("proposal", 1, one_sample)]
    for split in SPLITS:
        kernel = tuned[split.num_leapfrog, split.num_temperatures]
        importance = dataclasses.replace(kernel, num_samples=split.cost)
        annealed = dataclasses.replace(kernel, num_samples=split.num_samples)
        cases += [_Case("is", split.cost, importance), _Case("ais", split.cost, annealed)]
    return cases


def _draw(key: PRNGKey, p: CorrelatedNormal, case: _Case, num_draws: int) -> np.ndarray:
    """Draw on all devices; a draw depends on the key and its own place only."""
    mesh = jax.sharding.Mesh(jax.devices(), ("draws",))
    # As many for each device; those that are too many are dropped.
    keys = jax.random.split(key, num_draws + -num_draws % mesh.size)
    keys = jax.device_put(keys, jax.NamedSharding(mesh, jax.P("draws")))
    return np.asarray(_draw_sharded(keys, p, case, mesh), np.float64)[:num_draws]


@eqx.filter_jit
def _draw_sharded(
    keys: Array, p: CorrelatedNormal, case: _Case, mesh: jax.sharding.Mesh
) -> Float[Array, "draws 2"]:
    def local(keys: Array, kernel: Kernel) -> Array:
        if case.sampler == "target":
            return jax.vmap(p.sample)(keys)
        method = "ais" if case.sampler == "ais" else "is"
        return draw_implicit(method, keys, p.mean_field(), p.log_prob, kernel)

    over = jax.P("draws")
    return jax.shard_map(
        local, mesh=mesh, in_specs=(over, jax.P()), out_specs=over, check_vma=False
    )(keys, case.kernel)


def _result(p: CorrelatedNormal, case: _Case, draws: np.ndarray) -> SamplerResult:
    kernel, distance = case.kernel, divergence(p, draws)
    variance = summarise(p.whiten(draws)[:, 0] ** 2)
    is_annealed = case.sampler == "ais"
    return SamplerResult(
        sampler=case.sampler,
        cost=case.cost,
        num_samples=kernel.num_samples,
        num_leapfrog=kernel.num_leapfrog if is_annealed else 0,
        num_temperatures=len(kernel.step_sizes) if is_annealed else 0,
        evaluations=kernel.num_samples if case.sampler == "is" else 0,
        gradients=kernel.num_samples * gradients_per_chain(kernel) if is_annealed else 0,
        divergence=distance.mean,
        standard_error=distance.standard_error,
        truth={"target": 0.0, "proposal": proposal_divergence(p)}.get(case.sampler),
        long_variance=variance.mean,
        long_variance_error=variance.standard_error,
    )


def _compare(first: SamplerResult, second: SamplerResult) -> Comparison:
    difference = first.divergence - second.divergence
    error = float(np.hypot(first.standard_error, second.standard_error))
    z = difference / error
    closer = "AIS" if z > SHOWN_Z else "IS" if z < -SHOWN_Z else "neither"
    return Comparison(first.cost, difference, error, z, closer)


def _cheapest(results: list[SamplerResult]) -> str:
    """Name the cheapest AIS that still beats the dearest IS, if that is news."""
    dearest = max((r for r in results if r.sampler == "is"), key=lambda r: r.cost)
    annealed = [r for r in results if r.sampler == "ais"]
    better = [r.cost for r in annealed if _compare(dearest, r).z > SHOWN_Z]
    if not better or min(better) == dearest.cost:
        return ""
    return f" AIS at a cost of {min(better):,} is closer than IS at {dearest.cost:,}."


def _costs(found: list[Comparison]) -> str:
    return ", ".join(f"{c.cost:,}" for c in found)
