import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import HMC, Kernel, schedules
from aisle.learning import AIS, IWAE, MHHMC, VAE, DReG
from estimating import first_observation, ideal_encoder, problem, rows, run
from measures import z_score

pytestmark = pytest.mark.slow

SAMPLE_PLAN = {
    f"{name} {num_samples}": kind(num_samples)
    for name, kind, sizes in (
        ("vae", VAE, (1, 50)),
        ("iwae", IWAE, (1, 5, 50)),
        ("dreg", DReG, (1, 5, 50)),
    )
    for num_samples in sizes
}


def chain_plan(num_temperatures):
    kernel = Kernel(schedules.linear, HMC(2), 0.6)
    kinds = {"mh-hmc": MHHMC, "ais": AIS}
    return {name: kind(1, num_temperatures, kernel) for name, kind in kinds.items()}


NUM_KEYS = 20_000


@functools.cache
def sample_runs():
    return run(SAMPLE_PLAN, *first_observation("linear-gaussian", NUM_KEYS))


@functools.cache
def distances():
    """Return how far each mean theta gradient is from the exact one, with its standard error."""
    batch = first_observation("linear-gaussian", NUM_KEYS)
    results = dict(sample_runs())
    for length in (1, 4, 16):
        chains = run(chain_plan(length), *batch, size=0.35)
        results |= {f"{name} {length}": result for name, result in chains.items()}
    _, model, _, xs = batch
    exact = exact_gradient(model, xs[0])

    def distance(gradients):
        error = rows(gradients.theta[0]) - exact
        spread = np.sqrt(np.sum(error.var(axis=0)) / NUM_KEYS)
        return np.linalg.norm(error.mean(axis=0)), spread

    return {label: distance(result[2]) for label, result in results.items()}


def exact_gradient(model, x):
    gradient = eqx.filter_jit(jax.grad(lambda m: -m.log_marginal(x)))(model)
    return rows(jax.tree.map(lambda a: a[None], gradient))[0]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("iwae", (1, 5, 50)), ("dreg", (1, 5, 50)), ("mh-hmc", (1, 4, 16)), ("ais", (1, 4, 16))],
)
def test_theta_gradients_approach_that_of_the_exact_marginal(name, sizes):
    found = [distances()[f"{name} {size}"] for size in sizes]
    for (before, error_before), (after, error_after) in itertools.pairwise(found):
        assert before - after > 4 * np.hypot(error_before, error_after)
    assert found[-1][0] < 0.15 * found[0][0]


def test_more_samples_leave_the_theta_gradient_of_vae_as_wrong_as_one():
    (one_sample, error), (many_samples, error_many) = (
        distances()[f"vae {num_samples}"] for num_samples in (1, 50)
    )
    assert many_samples > 20 * error_many
    assert abs(many_samples - one_sample) < 4 * np.hypot(error, error_many)


def test_every_theta_gradient_is_unbiased_if_q_is_the_posterior():
    """The columns of W are orthogonal, so that the posterior is diagonal."""
    columns = np.linalg.qr(np.asarray(problem("linear-gaussian")[0].weight))[0]
    weight = jnp.asarray(columns * np.array([[1.5, 1.0, 0.5]]))
    model = eqx.tree_at(lambda m: m.weight, problem("linear-gaussian")[0], weight)
    keys, _, _, xs = first_observation("linear-gaussian", NUM_KEYS, seed=1)
    batch = (keys, model, ideal_encoder(model), xs)
    exact, evidence = exact_gradient(model, xs[0]), model.log_marginal(xs[0])
    results = run(SAMPLE_PLAN, *batch) | run(chain_plan(4), *batch)
    for losses, metrics, gradients in results.values():
        assert np.all(np.isfinite(rows(losses)))
        np.testing.assert_allclose(metrics.bound, evidence, atol=1e-4)
        for samples, truth in zip(rows(gradients.theta[0]).T, exact, strict=True):
            assert abs(z_score(samples, truth)) < 4.5
    # A path derivative has nothing left to improve: every sample of it is zero.
    np.testing.assert_allclose(rows(results["dreg 5"][2].phi[1]), 0, atol=1e-4)
    assert np.std(rows(results["iwae 5"][2].phi[1])) > 0.1


@pytest.mark.parametrize("num_samples", [1, 5])
def test_the_phi_gradients_of_dreg_and_iwae_agree_in_expectation(num_samples):
    dreg, iwae = (
        rows(sample_runs()[f"{name} {num_samples}"][2].phi[1]) for name in ("dreg", "iwae")
    )
    # Each alone is far from zero, so that a wrong factor shows.
    assert np.max(np.abs([z_score(samples, 0) for samples in dreg.T])) > 30
    for samples in (dreg - iwae).T:
        assert abs(z_score(samples, 0)) < 4


def test_the_phi_gradient_of_dreg_has_far_less_variance():
    dreg, iwae = (rows(sample_runs()[f"{name} 50"][2].phi[1]) for name in ("dreg", "iwae"))
    assert np.sum(dreg.var(axis=0)) < 0.15 * np.sum(iwae.var(axis=0))
