"""Methods of training on small problems, many in one compilation."""

import functools
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.annealing import (
    HMC,
    Kernel,
    effective_sample_size,
    log_mean_exp,
    normalised_weights,
    schedules,
)
from aisle.evaluation import problems
from aisle.learning import AIS, IWAE, MHHMC, VAE, DReG, Losses, Metrics
from aisle.models import DiagonalNormal, LinearGaussian, one_layer, two_layer

PROBLEMS = ["one-layer", "two-layer", "linear-gaussian"]


@dataclass(frozen=True)
class Reweighted:
    """A method of one's own: reweighted wake-sleep without the sleep; its state counts updates."""

    num_samples: int = 2

    @property
    def num_gradients(self):
        return self.num_samples

    def init(self):
        return jnp.zeros((), jnp.int32)

    def estimate(self, key, model, proposal, x, state):
        draw = jax.vmap(lambda k: proposal(x).sample(k))
        z = jax.lax.stop_gradient(draw(jax.random.split(key, self.num_samples)))
        log_p = jax.vmap(lambda z: model.log_prior(z) + model.log_likelihood(x, z))(z)
        log_q = jax.vmap(proposal(x).log_prob)(z)
        log_weights = jax.lax.stop_gradient(log_p - log_q)
        weights = normalised_weights(log_weights)
        bound, size = log_mean_exp(log_weights), effective_sample_size(log_weights)
        losses = Losses(-weights @ log_p, -weights @ log_q)
        return losses, Metrics(bound, size, jnp.zeros(0), jnp.zeros(()))

    def adapt(self, state, metrics):
        return state + 1


# Every option away from its default.
KERNEL = Kernel(schedules.linear, HMC(2, refresh=0.5, precondition=0.5), target_accept=0.7)

# A new method joins here and inherits every test of the contract; two samples, three temperatures.
METHODS = {
    "vae": VAE(2),
    "iwae": IWAE(2),
    "dreg": DReG(2),
    "mh-hmc": MHHMC(2, 3, KERNEL),
    "ais": AIS(2, 3, KERNEL),
    "ais states": AIS(2, 3, replace(KERNEL, schedule=schedules.ramp), num_states=2),
    "own": Reweighted(),
}
CHAINS = ["mh-hmc", "ais", "ais states"]


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


# The optimiser of the backend changes rounding only, and takes half of the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def one(method, key, model, proposal, x, state):
    """Return losses, metrics, and the gradient of each loss in (model, proposal)."""

    def estimate(parts):
        return method.estimate(key, *parts, x, state)

    losses, pull_back, metrics = jax.vjp(estimate, (model, proposal), has_aux=True)
    (gradients,) = jax.vmap(pull_back)(Losses(*jnp.eye(2)))
    return losses, metrics, Losses(pick(gradients, 0), pick(gradients, 1))


@functools.partial(jit, static_argnames="methods")
def run_all(methods, states, keys, model, proposal, xs):
    def batch(method, state):
        single = functools.partial(one, method)
        axes = (0, None, None, 0, None)
        return jax.vmap(single, in_axes=axes)(keys, model, proposal, xs, state)

    return [batch(*entry) for entry in zip(methods, states, strict=True)]


def run(methods, keys, model, proposal, xs, size=0.5):
    """Run several methods over one batch, in one compilation; steps of chains are of one size."""
    states = [state_of(method, size) for method in methods.values()]
    results = run_all(tuple(methods.values()), states, keys, model, proposal, xs)
    return dict(zip(methods, results, strict=True))


def state_of(method, size=0.5):
    state = method.init()
    return jnp.full_like(state, size) if hasattr(method, "kernel") else state


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
    return run(METHODS, *contract_batch(problem_name))


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
