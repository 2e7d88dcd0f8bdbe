"""Figure 1: how close q_IS and q_AIS come to their target at the same cost.

The target p is a normal distribution of two variables of variance 1 with a correlation of 0.95; the
proposal q is the independent normal that minimises KL(q || p). Cost is counted as in the paper, K
samples for IS against L x K x T for AIS, with linear inverse temperatures. In fact IS pays K values
of log p, and AIS K (1 + T L) gradients; results state both. The paper does not state its
correlation, and the answer depends on it: the weaker, the less there is to gain.

The distance is KL(q || p) over 32 x 32 cells that have equal probability under p, in nats. Merging
points into cells can only lower a KL divergence, so it bounds that of the densities from below. Its
estimate loses its first-order bias by a jackknife over 50 batches of draws, which gives the
standard error too. Two rows have a known truth, and tell whether to believe the others: exact draws
of p, at a distance of 0, and q itself, which is q_IS with K = 1.
"""

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, ndtri

from aisle.annealing import Kernel, schedules
from aisle.annealing.kernel import gradients_per_chain
from aisle.errors import InputError
from aisle.evaluation.implicit import draw_many, tune
from aisle.models import DiagonalNormal
from aisle.progress import Progress
from aisle.statistics import Mean, summarise
from aisle.types import PRNGKey, Scalar

# Cells along each axis, and batches of the jackknife.
NUM_CELLS = 32
NUM_BATCHES = 50

# With fewer than about ten draws to a cell, more than the first order of the bias matters.
MIN_DRAWS = 10_000

# A difference must be shown, at 3 standard errors; a control fails at 4.
SHOWN_Z = 3.0
LARGEST_Z = 4.0

Sampler = Literal["target", "proposal", "is", "ais"]


class Split(NamedTuple):
    """How AIS spends a budget."""

    num_leapfrog: int
    num_samples: int
    num_temperatures: int

    @property
    def budget(self) -> int:
        """L x K x T, the K of IS at the same cost."""
        return self.num_leapfrog * self.num_samples * self.num_temperatures


# The paper's L = 5 throughout: its T = 5 and T = 11 for one chain, then its K = 5 and K = 50.
SPLITS = (Split(5, 1, 5), Split(5, 1, 11), Split(5, 5, 11), Split(5, 50, 11))


class CorrelatedNormal(eqx.Module):
    """Two variables of mean 0, variance 1 and the given correlation."""

    correlation: float = eqx.field(static=True)

    def log_prob(self, z: Float[Array, " 2"]) -> Scalar:
        """Return the normalised log-density."""
        rest = 1 - self.correlation**2
        square = (z[0] ** 2 - 2 * self.correlation * z[0] * z[1] + z[1] ** 2) / rest
        return -square / 2 - jnp.log(2 * jnp.pi) - jnp.log(rest) / 2

    def sample(self, key: PRNGKey) -> Float[Array, " 2"]:
        """Draw one point exactly."""
        first, second = jax.random.normal(key, (2,))
        other = self.correlation * first + (1 - self.correlation**2) ** 0.5 * second
        return jnp.stack([first, other])

    def mean_field(self) -> DiagonalNormal:
        """Return the independent normal q that minimises KL(q || p): p's precision's diagonal."""
        return DiagonalNormal(jnp.zeros(2), jnp.full(2, (1 - self.correlation**2) ** 0.5))

    def whiten(self, draws: np.ndarray) -> np.ndarray:
        """Return coordinates along the long and the short axis in which p is N(0, I)."""
        sums, differences = draws[:, 0] + draws[:, 1], draws[:, 0] - draws[:, 1]
        return np.stack([sums, differences], axis=1) / np.sqrt(2 * self.axes)

    @property
    def axes(self) -> np.ndarray:
        """Variances along the long and the short axis."""
        return 1 + self.correlation * np.array([1.0, -1.0])


class Row(NamedTuple):
    """What is known of one sampler at one budget; costs are those of one draw.

    Attributes:
        budget: K of IS, or L x K x T of AIS; 1 for a control.
        num_leapfrog: L, and below it T; 0 where there are no chains.
        evaluations: values of log p without a gradient.
        gradients: of log p, each with its value.
        divergence: KL to the target over the cells, in nats.
        truth: what it must be, where that is known.
        long_variance: along the target's long axis, as a share of the target's.
    """

    sampler: Sampler
    budget: int
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
        """Distance from the truth in standard errors, for a row that has one."""
        return (self.divergence - (self.truth or 0.0)) / self.standard_error


class Comparison(NamedTuple):
    """KL of IS less KL of AIS at one budget; `z` is in standard errors of the difference."""

    budget: int
    difference: float
    standard_error: float
    z: float
    closer: Literal["AIS", "IS", "neither"]


class Outcome(NamedTuple):
    """Everything that the figure and its table show.

    Attributes:
        rows: the two controls, then IS and AIS by turns for each of `SPLITS`.
        draws: of each row.
        step_sizes: of HMC by temperature, for each (L, T), as tuned and frozen.
    """

    correlation: float
    rows: list[Row]
    draws: list[np.ndarray]
    step_sizes: dict[tuple[int, int], list[float]]


class _Case(NamedTuple):
    sampler: Sampler
    budget: int
    kernel: Kernel


def check_arguments(num_draws: int, correlation: float) -> None:
    """Refuse too few draws for the cells, and what is no correlation."""
    if not 0 < correlation < 1:
        raise InputError(f"correlation is {correlation}: it must be above 0 and below 1")
    if num_draws < MIN_DRAWS:
        raise InputError(
            f"draws is {num_draws}: it must be at least {MIN_DRAWS}, or the {NUM_CELLS**2} cells "
            "would have too few each"
        )


def run(
    seed: int, num_draws: int, correlation: float = 0.95, *, show_progress: bool = True
) -> Outcome:
    """Draw from every sampler at every budget, and measure."""
    check_arguments(num_draws, correlation)
    p, draws, rows = CorrelatedNormal(correlation), [], []
    key_pilot, key_draws = jax.random.split(jax.random.key(seed))
    with Progress(
        2 + 2 * len(SPLITS), "tuning", "draws", units_per_step=num_draws, is_shown=show_progress
    ) as progress:
        kinds = dict.fromkeys((s.num_leapfrog, s.num_temperatures) for s in SPLITS)
        tuned = {kind: _tuned(key_pilot, p, *kind) for kind in kinds}
        for number, case in enumerate(_cases(tuned)):
            draws.append(_draw(jax.random.fold_in(key_draws, number), p, case, num_draws))
            rows.append(_row(p, case, draws[-1]))
            progress.advance(number + 1, f"{case.sampler}, cost {case.budget}")
    step_sizes = {kind: np.asarray(kernel.step_sizes).tolist() for kind, kernel in tuned.items()}
    return Outcome(correlation, rows, draws, step_sizes)


def divergence(p: CorrelatedNormal, draws: np.ndarray) -> Mean:
    """Estimate KL(q || p) over the cells, from draws of q."""
    places = np.minimum((ndtr(p.whiten(draws)) * NUM_CELLS).astype(int), NUM_CELLS - 1)
    cells = places[:, 0] * NUM_CELLS + places[:, 1]
    counts = np.stack(
        [np.bincount(batch, minlength=NUM_CELLS**2) for batch in np.array_split(cells, NUM_BATCHES)]
    )
    whole = counts.sum(axis=0)
    left_out = np.array([_divergence(whole - batch) for batch in counts])
    return summarise(NUM_BATCHES * _divergence(whole) - (NUM_BATCHES - 1) * left_out)


def proposal_divergence(p: CorrelatedNormal) -> float:
    """Return the exact KL(q || p) over the cells, for the proposal q."""
    edges = ndtri(np.linspace(0, 1, NUM_CELLS + 1))
    # q is isotropic, so in whitened coordinates it is independent too.
    deviations = np.sqrt((1 - p.correlation**2) / p.axes)
    long, short = (np.diff(ndtr(edges / deviation)) for deviation in deviations)
    return _divergence(np.outer(long, short))


def comparisons(rows: list[Row]) -> list[Comparison]:
    """Compare IS and AIS at each budget."""
    importance, annealed = ([r for r in rows if r.sampler == name] for name in ("is", "ais"))
    return [_compare(*pair) for pair in zip(importance, annealed, strict=True)]


def verdict(rows: list[Row]) -> str:
    """Say in a sentence which comes closer where, and whether the controls hold."""
    compared = comparisons(rows)
    if not all(abs(row.control_z) < LARGEST_Z for row in rows if row.truth is not None):
        return "A control is off by more than 4 standard errors: the distances are not to be used."
    found = {name: [c for c in compared if c.closer == name] for name in ("AIS", "IS", "neither")}
    if len(found["AIS"]) == len(compared):
        least = min(c.z for c in compared)
        return (
            "AIS comes closer than IS at every budget, as the paper says, "
            f"by {least:.0f} standard errors or more.{_cheapest(rows)}"
        )
    parts = [f"{name} at {_budgets(where)}" for name, where in found.items() if where]
    return (
        "The paper says that AIS comes closer at every budget. Here the closer one is "
        f"{'; '.join(parts)}."
    )


_tune = eqx.filter_jit(tune)


def _tuned(key: PRNGKey, p: CorrelatedNormal, num_leapfrog: int, num_temperatures: int) -> Kernel:
    """Tune one chain; the draws of AIS have other keys, whatever their number of chains."""
    betas, sizes = schedules.linear(num_temperatures), jnp.full(num_temperatures, 0.1)
    start = Kernel(betas, sizes, num_leapfrog=num_leapfrog)
    return _tune(key, p.mean_field(), p.log_prob, start)


def _cases(tuned: dict[tuple[int, int], Kernel]) -> list[_Case]:
    """Return the two controls, then both samplers for each split."""
    one_sample = next(iter(tuned.values()))
    cases = [_Case("target", 1, one_sample), _Case("proposal", 1, one_sample)]
    for split in SPLITS:
        kernel = tuned[split.num_leapfrog, split.num_temperatures]
        importance = dataclasses.replace(kernel, num_samples=split.budget)
        annealed = dataclasses.replace(kernel, num_samples=split.num_samples)
        cases += [_Case("is", split.budget, importance), _Case("ais", split.budget, annealed)]
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
        return draw_many(keys, p.mean_field(), p.log_prob, kernel, method)

    over = jax.P("draws")
    return jax.shard_map(
        local, mesh=mesh, in_specs=(over, jax.P()), out_specs=over, check_vma=False
    )(keys, case.kernel)


def _row(p: CorrelatedNormal, case: _Case, draws: np.ndarray) -> Row:
    kernel, distance = case.kernel, divergence(p, draws)
    variance = summarise(p.whiten(draws)[:, 0] ** 2)
    is_annealed = case.sampler == "ais"
    return Row(
        sampler=case.sampler,
        budget=case.budget,
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


def _divergence(counts: np.ndarray) -> float:
    """Return KL(shares || equal shares)."""
    shares = counts[counts > 0] / counts.sum()
    return float(np.log(counts.size) + np.sum(shares * np.log(shares)))


def _compare(first: Row, second: Row) -> Comparison:
    difference = first.divergence - second.divergence
    error = float(np.hypot(first.standard_error, second.standard_error))
    z = difference / error
    closer = "AIS" if z > SHOWN_Z else "IS" if z < -SHOWN_Z else "neither"
    return Comparison(first.budget, difference, error, z, closer)


def _cheapest(rows: list[Row]) -> str:
    """Tell of the cheapest AIS that still beats the dearest IS, if that is news."""
    dearest = max((row for row in rows if row.sampler == "is"), key=lambda row: row.budget)
    better = [
        row.budget for row in rows if row.sampler == "ais" and _compare(dearest, row).z > SHOWN_Z
    ]
    if not better or min(better) == dearest.budget:
        return ""
    return f" AIS at a cost of {min(better):,} is closer than IS at {dearest.budget:,}."


def _budgets(found: list[Comparison]) -> str:
    return ", ".join(f"{c.budget:,}" for c in found)
