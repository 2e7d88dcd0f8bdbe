"""The sampler against exact answers: what `aisle selfcheck` runs.

Each check compares an estimate with a truth that is known in closed form, in units of its standard
error. Step sizes are coarse enough that rejection matters, and one target is skewed, so that no
sign error can hide.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.annealing import HMC, Ladder, anneal, anneal_reverse, normalised_weights, schedules
from aisle.evaluation import problems
from aisle.evaluation.problems import Problem
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.types import PRNGKey

# A true statement fails at 4 standard errors once in 16,000 times.
LARGEST_Z = 4.0
# A claim that something shrinks must be shown, at 3 standard errors.
SHOWN_Z = 3.0

Rule = Literal["equals", "at most", "at least", "shrinks", "exactly"]


class Check(NamedTuple):
    """One comparison with a known truth.

    `z` is the estimate's distance from the truth in standard errors, positive above it; for
    `shrinks` it is the fall from the row before, in standard errors of the difference.
    """

    name: str
    rule: Rule
    truth: float
    estimate: float
    standard_error: float
    z: float

    @property
    def is_passed(self) -> bool:
        """Whether the estimate keeps the rule; a z-score that is not a number does not."""
        verdicts: dict[Rule, bool] = {
            "equals": abs(self.z) < LARGEST_Z,
            "at most": self.z < LARGEST_Z,
            "at least": self.z > -LARGEST_Z,
            "shrinks": self.z > SHOWN_Z,
            "exactly": self.estimate == self.truth,
        }
        return bool(verdicts[self.rule])


class Runs(NamedTuple):
    """Log-weights of forward and of reverse chains, in double precision."""

    forward: np.ndarray
    reverse: np.ndarray
    acceptance: float


def linear_gaussian(key: PRNGKey) -> list[Check]:
    """Check forward and reverse runs against the exact log p(x), for four kernels."""
    problem = problems.linear_gaussian().posterior
    checks = []
    for num_temperatures, num_leapfrog in ((5, 5), (10, 2), (25, 1)):
        for precondition, step_size in ((0.0, 0.45), (1.0, 1.15)):
            for refresh in (1.0, 0.5):
                hmc = HMC(num_leapfrog, refresh, precondition)
                runs = _run(key, problem, hmc, num_temperatures, step_size, num_chains=50_000)
                name = f"T={num_temperatures} L={num_leapfrog}, {_called(hmc)}"
                checks += _normalisers(name, problem.log_normaliser, runs)
                if precondition and refresh < 1:
                    checks += _sandwich(name, problem.log_normaliser, runs)
    return checks


def narrow_normal(key: PRNGKey) -> list[Check]:
    """Check N(0, 1) -> N(1.5, 0.3^2), where an energy kept from the last temperature shows."""
    problem, checks = problems.narrow_normal(), []
    for num_temperatures in (10, 30, 100):
        runs = _run(key, problem, HMC(3), num_temperatures, 0.25, num_chains=20_000)
        name = f"T={num_temperatures} L=3, {_called(HMC(3))}"
        checks += _normalisers(name, problem.log_normaliser, runs)[:1]
    return checks


def lopsided(key: PRNGKey) -> list[Check]:
    """Check a skewed mixture with steps so coarse that a good part of the moves is rejected."""
    problem, checks = problems.lopsided(), []
    for refresh in (1.0, 0.3):
        hmc = HMC(1, refresh)
        runs = _run(key, problem, hmc, 6, 1.3, num_chains=200_000)
        name = f"T=6 L=1, {_called(hmc)}"
        checks += _normalisers(name, problem.log_normaliser, runs)
        checks.append(_fluctuation(name, runs))
    return checks


def no_annealing_needed(key: PRNGKey) -> list[Check]:
    """Check that a proposal equal to the target gives every chain a log-weight of exactly 0."""
    q = DiagonalNormal(jnp.array([0.3, -2.0]), jnp.array([0.1, 3.0]))
    problem = Problem(q, q, q.log_prob, 0.0, q.sample)
    runs = _run(key, problem, HMC(3), 10, 0.3, num_chains=1000)
    largest = float(max(np.abs(runs.forward).max(), np.abs(runs.reverse).max()))
    return [Check("largest |log w|", "exactly", 0.0, largest, 0.0, 0.0)]


def gradient(key: PRNGKey) -> list[Check]:
    """Check that the weighted gradient loses the variational bias as T and as K grow.

    The proposal is the best diagonal normal q. The number is the share of the ELBO gradient's
    error that is left: with d = E_q[grad] - grad log p(x), it is <estimate - grad log p(x), d> /
    <d, d>, which is 1 for a VAE and 0 for the truth.
    """
    lengths, numbers = (1, 4, 16), (1, 4, 16)
    left = {T: _bias_left(key, T, numbers) for T in lengths}
    by_length = [(f"T={T} K=4", left[T][1]) for T in lengths]
    by_number = [(f"T=4 K={K}", left[4][i]) for i, K in enumerate(numbers)]
    variational = _mean("T=1 K=1, which is the VAE's", "equals", 1.0, left[1][0])
    return [variational, *_shrinking(by_length), *_shrinking(by_number)]


GROUPS: dict[str, Callable[[PRNGKey], list[Check]]] = {
    "log p(x) of a linear-Gaussian model": linear_gaussian,
    "log-normaliser, N(0, 1) to N(1.5, 0.3²)": narrow_normal,
    "log-normaliser, N(0, 1) to a lopsided mixture": lopsided,
    "proposal equal to the target": no_annealing_needed,
    "share of the VAE's gradient bias that is left": gradient,
}


@eqx.filter_jit
def _both_ways(keys: Array, problem: Problem, ladder: Ladder) -> tuple[Array, Array, Array]:
    def chain(key: PRNGKey) -> tuple[Array, Array, Array]:
        key_forward, key_exact, key_reverse = jax.random.split(key, 3)
        forward = anneal(key_forward, problem.wide, problem.log_joint, ladder)
        z = problem.sample(key_exact)
        reverse = anneal_reverse(key_reverse, z, problem.narrow, problem.log_joint, ladder)
        return forward.log_weight, reverse.log_weight, forward.info.acceptance.mean()

    return jax.vmap(chain)(keys)


def _run(
    key: PRNGKey,
    problem: Problem,
    hmc: HMC,
    num_temperatures: int,
    step_size: float,
    num_chains: int,
) -> Runs:
    betas = schedules.linear(num_temperatures)
    ladder = Ladder(betas, jnp.full(num_temperatures, step_size), hmc)
    forward, reverse, acceptance = _both_ways(jax.random.split(key, num_chains), problem, ladder)
    return Runs(np.asarray(forward, float), np.asarray(reverse, float), float(acceptance.mean()))


def _called(hmc: HMC) -> str:
    units = "preconditioned" if hmc.precondition else "identity"
    return f"{units}, {'full' if hmc.refresh == 1 else 'partial'} refresh"


def _normalisers(name: str, truth: float, runs: Runs) -> list[Check]:
    """Estimate log Z from E[w] = Z forward and E[1/w] = 1/Z in reverse, by the delta method."""
    checks = []
    for direction, sign, logs in (("forward", 1, runs.forward), ("reverse", -1, runs.reverse)):
        relative = np.exp(sign * (logs - truth))
        mean, error = relative.mean(), _standard_error(relative)
        label = f"{direction}, {name}, {runs.acceptance:.0%} accepted"
        estimate, z = truth + sign * np.log(mean), sign * (mean - 1) / error
        checks.append(Check(label, "equals", truth, estimate, error / mean, z))
    return checks


def _sandwich(name: str, truth: float, runs: Runs) -> list[Check]:
    """Check that the mean log-weights bound log Z from both sides."""
    return [
        _mean(f"mean log w forward, {name}", "at most", truth, runs.forward),
        _mean(f"mean log w reverse, {name}", "at least", truth, runs.reverse),
    ]


def _fluctuation(name: str, runs: Runs) -> Check:
    """Check that the reverse run is the reversal of the forward one (Crooks, 1999).

    Only then is the reverse run's density of log-weights w / Z times the forward one's, so that
    E_reverse[log w] = E_forward[w log w] / E_forward[w]. The bound E[1/w] = 1/Z does not
    see the difference: it holds for any kernels that leave the same densities invariant.
    """
    weights = np.exp(runs.forward)
    share = weights / weights.mean()
    predicted = np.mean(share * runs.forward)
    error = np.hypot(
        _standard_error(share * (runs.forward - predicted)), _standard_error(runs.reverse)
    )
    z = (runs.reverse.mean() - predicted) / error
    return Check(f"Crooks, {name}", "equals", predicted, runs.reverse.mean(), error, z)


def _bias_left(
    key: PRNGKey, num_temperatures: int, numbers: Sequence[int], num_repeats: int = 20_000
) -> list[np.ndarray]:
    """Return, for each K, the share of the variational bias left in each repeat's gradient."""
    problem = problems.linear_gaussian()
    model, x, q = problem.model, problem.x, problem.posterior.narrow
    truth = jax.grad(lambda w: _with_weight(model, w).log_marginal(x))(model.weight)
    residual = x - model.bias - model.weight @ q.loc
    variational = jnp.outer(residual, q.loc) - model.weight * q.scale[None] ** 2
    direction = variational / jnp.exp(2 * model.log_sigma) - truth
    is_annealed = num_temperatures > 1
    sizes = jnp.full(num_temperatures, 0.3)
    ladder = Ladder(schedules.linear(num_temperatures), sizes, HMC(3), last_move=is_annealed)

    def share_left(z: Float[Array, " latent"]) -> Array:
        grad = jax.grad(lambda w: _with_weight(model, w).log_likelihood(x, z))(model.weight)
        return jnp.sum((grad - truth) * direction) / jnp.sum(direction**2)

    @jax.jit
    @jax.vmap
    def repeat(key: PRNGKey) -> list[Array]:
        keys = jax.random.split(key, max(numbers))
        run = jax.vmap(lambda k: anneal(k, q, problem.posterior.log_joint, ladder))(keys)
        shares = jax.vmap(share_left)(run.z)
        return [jnp.sum(normalised_weights(run.log_weight[:K]) * shares[:K]) for K in numbers]

    return [np.asarray(a, float) for a in repeat(jax.random.split(key, num_repeats))]


def _shrinking(cases: list[tuple[str, np.ndarray]]) -> list[Check]:
    """Compare each case with the one before, and the first one with a VAE's share, 1."""
    checks, before, error_before = [], 1.0, 0.0
    for name, shares in cases:
        left, error = abs(shares.mean()), _standard_error(shares)
        fall = (before - left) / np.hypot(error, error_before)
        checks.append(Check(name, "shrinks", 0.0, shares.mean(), error, fall))
        before, error_before = left, error
    return checks


def _mean(name: str, rule: Rule, truth: float, samples: np.ndarray) -> Check:
    mean, error = samples.mean(), _standard_error(samples)
    return Check(name, rule, truth, mean, error, (mean - truth) / error)


def _standard_error(samples: np.ndarray) -> float:
    return samples.std(ddof=1) / np.sqrt(len(samples))


def _with_weight(model: LinearGaussian, weight: Array) -> LinearGaussian:
    return eqx.tree_at(lambda m: m.weight, model, weight)
