import collections
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from aisle.learning.estimators import METHODS
from aisle.models import one_layer
from estimating import CHAINS, Encoder, contract_batch, counting_model, jit, kernel


def training_gradient(name):
    """Return the step of a training loop up to its optimiser, as a function of arrays."""

    def loss(parts, keys, xs, kernel):
        def example(key, x):
            losses, metrics = METHODS[name].estimate(key, *parts, x, kernel)
            return losses.theta + losses.phi, metrics

        totals, metrics = jax.vmap(example)(keys, xs)
        return jnp.mean(totals), metrics

    return jax.grad(loss, has_aux=True)


def scans(jaxpr):
    """Return the parameters of all scans in a jaxpr, at any depth."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            found.append(equation.params)
        for inner in jaxprs_in_params(equation.params):
            found += scans(inner)
    return found


@pytest.mark.parametrize("name", CHAINS)
def test_differentiation_adds_no_pass_over_the_chain(name):
    keys, model, proposal, xs = contract_batch("one-layer")
    plan = kernel(7)

    def forward(parts, keys, xs, kernel):
        return jax.vmap(lambda k, x: METHODS[name].estimate(k, *parts, x, kernel))(keys, xs)

    args = ((model, proposal), keys, xs, plan)
    found = scans(jax.make_jaxpr(training_gradient(name))(*args).jaxpr)
    assert [scan["length"] for scan in found if scan["length"] == 7] == [7]
    assert not any(scan["reverse"] for scan in found)
    assert len(found) == len(scans(jax.make_jaxpr(forward)(*args).jaxpr))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_temperatures():
    batch, num_samples = 4, 8
    build = functools.partial(one_layer, mean=np.full(12, 0.5), num_latents=8, num_hidden=32)
    parts = eqx.filter_jit(build)(jax.random.key(0))
    keys, xs = jax.random.split(jax.random.key(0), batch), jnp.ones((batch, 12))

    def gradients(*args):
        return [training_gradient(name)(*args) for name in CHAINS]

    def temporary(num_temperatures):
        args = (parts, keys, xs, kernel(num_temperatures, num_samples))
        compiled = jit(gradients).lower(*args).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    short, long = temporary(4), temporary(64)
    # What is read off each transition, and nothing of its networks: five numbers.
    diagnostics = len(CHAINS) * 60 * batch * num_samples * 5 * 4
    assert long - short < 0.05 * short + diagnostics


@pytest.mark.parametrize(
    "plan",
    [kernel(3, 2), kernel(2, 3, last_move=False, num_leapfrog=1)],
    ids=["with last move", "without"],
)
def test_chains_spend_the_gradients_that_they_claim(plan):
    counts = {name: collections.Counter() for name in CHAINS}
    proposal = Encoder(jnp.eye(2), jnp.zeros(2), jnp.zeros(2))
    keys, xs = jax.random.split(jax.random.key(0), 2), jnp.ones((2, 2))

    def gradients(models):
        return [
            training_gradient(name)((model, proposal), keys, xs, plan)
            for name, model in models.items()
        ]

    models = {name: counting_model(counts[name]) for name in CHAINS}
    jax.block_until_ready(jit(gradients)(models))
    for name in CHAINS:
        assert counts[name]["gradient"] == 2 * METHODS[name].num_gradients(plan)


@pytest.mark.parametrize("name", ["vae", "iwae", "dreg"])
def test_samples_spend_the_gradients_that_they_claim(name):
    """Count matrix products: the compiler merges the passes of theta and phi if it can.

    Those whose result has one row for each sample and one column for each hidden unit, or the
    reverse, are two on the way to the output and two on each way back from it.
    """
    num_samples, num_hidden = 5, 7
    build = functools.partial(one_layer, mean=np.full(13, 0.5), num_latents=3, num_hidden=7)
    parts, plan = eqx.filter_jit(build)(jax.random.key(0)), kernel(1, num_samples)
    keys = jax.random.split(jax.random.key(0), 1)
    program = jit(training_gradient(name)).lower(parts, keys, jnp.ones((1, 13)), plan).compile()
    shapes = re.findall(r"= f32\[(\d+),(\d+)\]\S* dot\(", program.as_text())
    hidden = [shape for shape in shapes if {*map(int, shape)} == {num_samples, num_hidden}]
    num_passes = (len(hidden) - 2) / 2
    assert METHODS[name].num_gradients(plan) == num_samples * num_passes
