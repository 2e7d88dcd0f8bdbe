"""Estimators of gradients on small problems, many in one compilation."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.annealing import Kernel, schedules
from aisle.experiments import problems
from aisle.learning.estimators import METHODS, Losses
from aisle.models import DiagonalNormal, LinearGaussian, one_layer, two_layer

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
    """The means and deviations of a linear-Gaussian posterior, moved and stretched."""
    noise = jnp.exp(2 * model.log_sigma)
    precision = jnp.eye(model.weight.shape[1]) + model.weight.T @ model.weight / noise
    weight = jnp.linalg.solve(precision, model.weight.T / noise)
    scale = stretch * jnp.sqrt(jnp.diagonal(jnp.linalg.inv(precision)))
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


def kernel(num_temperatures=3, num_samples=2, schedule="linear", **options):
    betas = schedules.named(schedule, num_temperatures)
    sizes = jnp.full(num_temperatures, 0.5)
    return Kernel(betas, sizes, num_samples, **{"num_leapfrog": 2} | options)


# Every option away from its default.
FULL = {"refresh": 0.5, "jitter": 0.2, "precondition": 0.5, "last_move": False}

# The optimiser of the backend changes rounding only, and takes half of the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def one(name, key, model, proposal, x, kernel):
    """Return losses, metrics, and the gradient of each loss in (model, proposal)."""

    def estimate(parts):
        return METHODS[name].estimate(key, *parts, x, kernel)

    losses, pull_back, metrics = jax.vjp(estimate, (model, proposal), has_aux=True)
    (gradients,) = jax.vmap(pull_back)(Losses(*jnp.eye(2)))
    return losses, metrics, Losses(pick(gradients, 0), pick(gradients, 1))


@functools.partial(jit, static_argnames="names")
def run_all(names, kernels, keys, model, proposal, xs):
    def batch(name, kernel):
        single = functools.partial(one, name)
        axes = (0, None, None, 0, None)
        return jax.vmap(single, in_axes=axes)(keys, model, proposal, xs, kernel)

    return [batch(*entry) for entry in zip(names, kernels, strict=True)]


def run(plan, keys, model, proposal, xs):
    """Run several methods over one batch, in one compilation: `plan` has (name, kernel) pairs."""
    names, kernels = zip(*plan.values(), strict=True)
    results = run_all(names, kernels, keys, model, proposal, xs)
    return dict(zip(plan, results, strict=True))


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
    plan = {name: (name, kernel(**FULL)) for name in METHODS}
    return run(plan, *contract_batch(problem_name))


def first_observation(problem_name, num_keys, seed=0):
    """Return the arguments of `run` for many keys and one observation."""
    model, proposal, xs = problem(problem_name)
    keys = jax.random.split(jax.random.key(seed), num_keys)
    return keys, model, proposal, jnp.broadcast_to(xs[0], (num_keys, *xs[0].shape))


def counting_model(counts):
    """Return a linear-Gaussian model whose likelihood is z.b, with counted backward passes."""

    def count(gradient):
        counts["gradient"] += 1
        return gradient

    @jax.custom_vjp
    def log_likelihood(bias, z):
        return bias @ z

    def backward(saved, cotangent):
        bias, z = saved
        both = jnp.stack([z, bias])
        shape = jax.ShapeDtypeStruct(both.shape, both.dtype)
        both = jax.pure_callback(count, shape, both, vmap_method="sequential")
        return cotangent * both[0], cotangent * both[1]

    log_likelihood.defvjp(lambda bias, z: (bias @ z, (bias, z)), backward)

    class Counting(LinearGaussian):
        def log_likelihood(self, x, z):
            return log_likelihood(self.bias, z)

    return Counting(jnp.eye(2), jnp.array([0.3, -0.4]), jnp.zeros(()))
