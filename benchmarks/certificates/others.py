"""The error of log p(x) by the ways of others and by aisle, for the same gradients."""

import argparse
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from jax.flatten_util import ravel_pytree
from numpyro import distributions as dist
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDAIS

import aisle
from aisle.models.joint import log_joint
from aisle.statistics import summarise
from benchmarks.certificates.shared import (
    KERNEL,
    NUM_CHAINS,
    Case,
    Study,
    each,
    examples_of,
    networks,
)

# A long run of aisle's stands for the truth; its gap is on record beside the errors.
_LONG = aisle.Sampler(NUM_CHAINS, 1000)


def cases(options: argparse.Namespace) -> Study:
    """Return cases of model, way and gradients for each example."""
    values = {"model": options.models, "way": list(WAYS), "gradients": options.gradients}
    return each(error, options.num_examples, values)


def error(name: str, way: str, gradients: int, number: int) -> Case:
    """Return how far the mean of log p(x) is from the long run's, of the same examples."""
    known = truth(name, number)
    assert known.gap is not None
    x, train = examples_of(name, number)
    found = WAYS[way](*networks(name), x, train, gradients)
    # AutoDAIS has one bound for all examples.
    reference = known.mean if way == "AutoDAIS" else known.log_p
    return {
        "error": summarise(found - reference)._asdict(),
        "gap_of_truth": known.gap._asdict(),
    }


@functools.cache
def truth(name: str, number: int) -> aisle.LogLikelihood:
    """Return the long run, which has a seed of its own."""
    x, train = examples_of(name, number)
    certificate = aisle.Certificate(number)
    return aisle.log_likelihood(
        *networks(name), x, sampler=_LONG, certificate=certificate, pilot_x=train, seed=1
    )


def importance(model: Any, proposal: Any, x: Any, train: Any, gradients: int) -> np.ndarray:
    """Weigh samples of the encoder, as pythae and scvi-tools do; two values cost a gradient."""
    del train

    def bound(example: tuple[Any, Any]) -> Any:
        key, x = example
        keys = jax.random.split(key, (gradients // 50, 100))
        q, density = proposal(x), log_joint(model, x)

        def weight(key: Any) -> Any:
            z = q.sample(key)
            return density(z) - q.log_prob(z)

        return aisle.log_mean_exp(jax.lax.map(jax.vmap(weight), keys).reshape(-1))

    keys = jax.random.split(jax.random.key(0), len(x))
    return np.asarray(jax.lax.map(bound, (keys, jnp.asarray(x))))


def from_the_prior(model: Any, proposal: Any, x: Any, train: Any, gradients: int) -> np.ndarray:
    """Anneal from the prior on a linear schedule, 10 leapfrogs a move, as public BDMC code does."""
    del proposal
    kernel = aisle.Kernel(aisle.schedules.linear, aisle.HMC(10), 0.65)
    return _annealed(model, None, x, train, gradients, kernel)


def by_aisle(model: Any, proposal: Any, x: Any, train: Any, gradients: int) -> np.ndarray:
    """Anneal from the encoder by aisle's default kernel."""
    return _annealed(model, proposal, x, train, gradients, KERNEL)


def _annealed(
    model: Any, start: Any, x: Any, train: Any, gradients: int, kernel: aisle.Kernel
) -> np.ndarray:
    moves = gradients // NUM_CHAINS // kernel.transition.num_gradients
    return aisle.log_likelihood(
        model,
        start,
        x,
        sampler=aisle.Sampler(NUM_CHAINS, moves + 1, kernel),
        certificate=aisle.Certificate(0),
        pilot_x=train,
    ).log_p


def auto_dais(model: Any, proposal: Any, x: Any, train: Any, gradients: int) -> np.ndarray:
    """Bound all examples by NumPyro's AutoDAIS, whose settings learn; it starts at the encoder.

    Half of the gradients are for learning by Adam. An update differentiates a chain, which costs
    about three gradients for each of its moves. The rest is for draws of the reported bound.
    """
    del train
    qs = jax.vmap(proposal)(jnp.asarray(x))
    size = ravel_pytree(jax.tree.map(lambda a: a[0], qs.loc))[0].size

    def density(q_loc: Any, q_scale: Any, x: Any, noise: Any) -> Any:
        loc, back = ravel_pytree(q_loc)
        scale = ravel_pytree(q_scale)[0]
        return log_joint(model, x)(back(loc + scale * noise)) + jnp.sum(jnp.log(scale))

    def joint() -> None:
        # In units of the encoder, whose normal distribution is what the guide starts from.
        flat = dist.ImproperUniform(dist.constraints.real_matrix, (), (len(x), size))
        noise = numpyro.sample("noise", flat)
        logs = jax.vmap(density)(qs.loc, qs.scale, jnp.asarray(x), noise)
        numpyro.factor("log_joint", jnp.sum(logs))

    # A quarter as many moves as updates: their product is G / 6.
    moves = max(2, round((gradients / 6) ** 0.5 / 2))
    updates = max(1, gradients // (6 * moves))
    start = init_to_value(values={"noise": jnp.zeros((len(x), size))})
    guide = AutoDAIS(joint, K=moves, eta_init=0.1, eta_max=1.0, init_loc_fn=start, init_scale=1.0)
    svi = SVI(joint, guide, optax.adam(1e-2), Trace_ELBO())
    params = svi.run(jax.random.key(0), updates, progress_bar=False).params
    draws = max(2, gradients // (2 * moves))

    def bound(key: Any) -> Any:
        return -Trace_ELBO().loss(key, params, joint, guide)

    # Of all examples together: draws of their mean.
    return np.asarray(jax.lax.map(bound, jax.random.split(jax.random.key(1), draws))) / len(x)


WAYS: dict[str, Callable[..., np.ndarray]] = {
    "importance sampling": importance,
    "AIS from the prior": from_the_prior,
    "AutoDAIS": auto_dais,
    "aisle": by_aisle,
}
