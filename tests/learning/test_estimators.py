import collections
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from aisle.annealing import anneal, log_mean_exp, normalised_weights, schedules
from aisle.annealing.ais import sample_start
from aisle.errors import InputError
from aisle.experiments import problems
from aisle.learning.estimators import METHODS, Kernel, Losses, named
from aisle.models import DiagonalNormal, LinearGaussian, PriorProposal, one_layer, two_layer
from measures import z_score

CHAINS = [name for name, method in METHODS.items() if method.has_chains]
PROBLEMS = ["one-layer", "two-layer", "linear-gaussian"]


class Encoder(eqx.Module):
    """A linear encoder with one scale for each latent, whatever x is."""

    weight: Float[Array, "latent observed"]
    bias: Float[Array, " latent"]
    log_scale: Float[Array, " latent"]

    def __call__(self, x):
        return DiagonalNormal(self.weight @ x + self.bias, jnp.exp(self.log_scale))


@eqx.filter_jit
def ideal_encoder(model, shift=0.0, stretch=1.0):
    """The mean-field posterior of a linear-Gaussian model, moved and stretched."""
    noise = jnp.exp(2 * model.log_sigma)
    precision = jnp.eye(model.weight.shape[1]) + model.weight.T @ model.weight / noise
    weight = jnp.linalg.solve(precision, model.weight.T / noise)
    scale = stretch * jnp.diagonal(precision) ** -0.5
    return Encoder(weight, shift - weight @ model.bias, jnp.log(scale))


@functools.cache
def problem(name):
    """Return a tiny model, its proposal and two observations."""
    key_model, key_x = jax.random.split(jax.random.key(5))
    if name == "linear-gaussian":
        model = problems.linear_gaussian().model
        return model, ideal_encoder(model, 0.3, 1.2), jax.random.normal(key_x, (2, 4))
    build = {"one-layer": one_layer, "two-layer": two_layer}[name]
    build = functools.partial(build, mean=np.linspace(0.1, 0.9, 12), num_latents=2, num_hidden=6)
    xs = jax.random.bernoulli(key_x, 0.5, (2, 12)).astype(float)
    return *eqx.filter_jit(build)(key_model), xs


def kernel(num_temperatures=2, num_samples=2, size=0.4, schedule="linear", **options):
    betas = schedules.named(schedule, num_temperatures)
    sizes = jnp.full(num_temperatures, size)
    return Kernel(betas, sizes, num_samples, **{"num_leapfrog": 2} | options)


def one(name, key, model, proposal, x, kernel):
    """Return losses, metrics, and the gradient of each loss in (model, proposal)."""

    def estimate(parts):
        return METHODS[name].estimate(key, *parts, x, kernel)

    losses, pull_back, metrics = jax.vjp(estimate, (model, proposal), has_aux=True)
    yes, no = jnp.ones_like(losses.theta), jnp.zeros_like(losses.theta)
    theta, phi = pull_back(Losses(yes, no))[0], pull_back(Losses(no, yes))[0]
    return losses, metrics, Losses(theta, phi)


@eqx.filter_jit
def run(plan, keys, model, proposal, xs):
    """Run several methods over one batch, in one compilation: `plan` has (name, kernel) pairs."""

    def batch(name, kernel):
        single = functools.partial(one, name)
        axes = (0, None, None, 0, None)
        return jax.vmap(single, in_axes=axes)(keys, model, proposal, xs, kernel)

    return {label: batch(*entry) for label, entry in plan.items()}


def assert_close(got, wanted, tolerance):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def assert_same(got, wanted):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)


def rows(tree):
    """Return a batch of pytrees as a matrix, an example a row, in double precision."""
    leaves = [np.asarray(a, np.float64) for a in jax.tree.leaves(tree)]
    return np.concatenate([a.reshape(len(a), -1) for a in leaves], axis=1)


def pick(tree, index):
    return jax.tree.map(lambda a: a[index], tree)


@functools.cache
def contract_batch(problem_name):
    """Two observations, and the first one twice more: with its own key, and with another."""
    model, proposal, xs = problem(problem_name)
    keys = jax.random.split(jax.random.key(2), 3)[np.array([0, 1, 0, 2])]
    return keys, model, proposal, xs[np.array([0, 1, 0, 0])]


@functools.cache
def contract_runs(problem_name):
    plan = {name: (name, kernel()) for name in METHODS}
    return run(plan, *contract_batch(problem_name))


over_methods = pytest.mark.parametrize("name", METHODS)
over_problems = pytest.mark.parametrize("problem_name", PROBLEMS)


@over_problems
@over_methods
def test_losses_are_finite_scalars_and_metrics_have_their_shapes(name, problem_name):
    losses, metrics, _ = contract_runs(problem_name)[name]
    for loss in losses:
        assert loss.shape == (4,)
        assert np.all(np.isfinite(loss))
    num_moves = 2 if METHODS[name].has_chains else 0
    assert metrics.acceptance.shape == (4, num_moves)
    assert np.all((metrics.acceptance >= 0) & (metrics.acceptance <= 1))
    for scalar in (metrics.bound, metrics.effective_sample_size, metrics.num_nonfinite):
        assert scalar.shape == (4,)
    assert np.all(np.isfinite(metrics.bound))
    assert np.all(metrics.effective_sample_size >= 1 - 1e-6)
    assert np.all(metrics.effective_sample_size <= 2 + 1e-6)
    assert np.all(metrics.num_nonfinite == 0)


@over_problems
@over_methods
def test_each_loss_reaches_its_own_parameters_and_no_others(name, problem_name):
    gradients = contract_runs(problem_name)[name][2]
    (theta_model, theta_proposal), (phi_model, phi_proposal) = gradients
    for own in (theta_model, phi_proposal):
        assert np.all(np.isfinite(rows(own)))
        assert all(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(own))
    for other in (theta_proposal, phi_model):
        np.testing.assert_array_equal(rows(other), 0)


@over_problems
@over_methods
def test_the_key_and_the_observation_alone_decide_the_result(name, problem_name):
    result = contract_runs(problem_name)[name]
    assert_close(pick(result, 2), pick(result, 0), 1e-6)
    losses = rows(result[0])
    assert np.all(np.abs(losses[3] - losses[0]) > 1e-4)


@over_problems
@over_methods
def test_compiled_over_a_batch_equals_plain_on_one_example(name, problem_name):
    keys, model, proposal, xs = contract_batch(problem_name)
    with jax.disable_jit():
        plain = METHODS[name].estimate(keys[1], model, proposal, xs[1], kernel())
    assert_close(pick(contract_runs(problem_name)[name][:2], 1), plain, 2e-5)


def first_observation(problem_name, num_keys, seed=0):
    """Return the arguments of `run` for many keys and one observation."""
    model, proposal, xs = problem(problem_name)
    keys = jax.random.split(jax.random.key(seed), num_keys)
    return keys, model, proposal, jnp.broadcast_to(xs[0], (num_keys, *xs[0].shape))


def test_special_cases_are_exact():
    """One temperature without its move is iwae; one chain at the posterior at once is mh-hmc.

    Bit for bit: losses, gradients and metrics, where both methods have them.
    """
    jump = kernel(3, 1, schedule="immediate", refresh=0.5, jitter=0.2, precondition=0.5)
    still = kernel(1, 5, last_move=False)
    plan = {"ais still": ("ais", still), "iwae": ("iwae", still)}
    plan |= {"ais jump": ("ais", jump), "mh-hmc": ("mh-hmc", jump)}
    result = run(plan, *first_observation("one-layer", 3))
    assert_same(result["ais jump"], result["mh-hmc"])

    (ais, ais_metrics, ais_gradients) = result["ais still"]
    (iwae, iwae_metrics, iwae_gradients) = result["iwae"]
    np.testing.assert_array_equal(ais.theta, iwae.theta)
    assert_same(ais_gradients.theta, iwae_gradients.theta)
    assert_same(ais_metrics, iwae_metrics)


def log_joint(model, x, z):
    return model.log_prior(z) + model.log_likelihood(x, z)


@eqx.filter_jit
def by_hand(name, key, model, proposal, x, kernel):
    """Return theta's and phi's gradients from the module's table, over constants.

    Where a method has chains they come from `anneal`, elsewhere from q; either way their ends and
    weights enter the gradient as numbers that were computed before.
    """
    key_draws, key_phi = jax.random.split(key)
    keys = jax.random.split(key_draws, kernel.num_samples)
    q = proposal(x)

    def chain(key):
        scale = jax.tree.map(lambda s: s**kernel.precondition, q.scale)
        jump = jnp.minimum(jnp.arange(len(kernel.betas)), 1).astype(float)
        return anneal(
            key,
            q,
            functools.partial(log_joint, model, x),
            jump if name == "mh-hmc" else kernel.betas,
            kernel.step_sizes,
            kernel.num_leapfrog,
            scale=scale,
            refresh=kernel.refresh,
            jitter=kernel.jitter,
            last_move=kernel.last_move,
        )[:2]

    def log_weight(proposal, key):
        z = sample_start(key, proposal(x))
        return log_joint(model, x, z) - proposal(x).log_prob(z)

    def draw(key):
        z = sample_start(key, q)
        return z, log_joint(model, x, z) - q.log_prob(z)

    z, log_weights = jax.vmap(chain if METHODS[name].has_chains else draw)(keys)
    weights = normalised_weights(log_weights)
    if name in ("vae", "mh-hmc"):
        weights = jnp.full(kernel.num_samples, 1 / kernel.num_samples)

    theta = jax.grad(
        lambda model: -weights @ jax.vmap(functools.partial(log_joint, model, x))(z)
    )(model)
    # `sample_start` of the chains' convention: one split for the samples, one more for the sample.
    key_one = jax.random.split(jax.random.split(key_phi)[0], 1)[0]
    phi = {
        "vae": lambda p: -jnp.mean(jax.vmap(lambda k: log_weight(p, k))(keys)),
        "iwae": lambda p: -log_mean_exp(jax.vmap(lambda k: log_weight(p, k))(keys)),
    }.get(name, lambda p: -log_weight(p, key_one))
    return theta, jax.grad(phi)(proposal)


@pytest.mark.parametrize("name", ["vae", "iwae", "mh-hmc", "ais"])
def test_gradients_equal_those_over_constant_draws_and_weights(name):
    """Nothing flows through a chain or a weight, and every option reaches the sampler."""
    options = {"refresh": 0.5, "jitter": 0.2, "precondition": 0.5, "last_move": False}
    plan = {name: (name, kernel(3, 4, size=0.6, **options))}
    keys, model, proposal, xs = first_observation("two-layer", 2)
    _, _, (theta, phi) = run(plan, keys, model, proposal, xs)[name]
    wanted = by_hand(name, keys[1], model, proposal, xs[1], plan[name][1])
    assert_close((pick(theta[0], 1), pick(phi[1], 1)), wanted, 1e-5)
