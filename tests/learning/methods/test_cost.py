import collections
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import HMC, Kernel, schedules
from aisle.learning import AIS, IWAE, MHHMC, VAE, DReG
from aisle.models import one_layer
from estimating import Encoder, contract_batch, counting_model, jit

try:
    from jax.extend.core import jaxprs_in_params
except ImportError:  # JAX 0.9 has it elsewhere
    from jax._src.core import jaxprs_in_params

KERNEL = Kernel(schedules.linear, HMC(2), target_accept=0.6)
CHAINS = [MHHMC, AIS]


def training_gradient(method):
    """Return the step of a training loop up to its optimiser, as a function of arrays."""

    def loss(parts, keys, xs):
        def example(key, x):
            losses, metrics = method.estimate(key, *parts, x, method.init())
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


@pytest.mark.parametrize("kind", CHAINS)
def test_differentiation_adds_no_pass_over_the_chain(kind):
    keys, model, proposal, xs = contract_batch("linear-gaussian")
    method = kind(2, 7, KERNEL)

    def forward(parts, keys, xs):
        estimate = method.estimate
        return jax.vmap(lambda k, x: estimate(k, *parts, x, method.init()))(keys, xs)

    args = ((model, proposal), keys, xs)
    found = scans(jax.make_jaxpr(training_gradient(method))(*args).jaxpr)
    assert [scan["length"] for scan in found if scan["length"] == 7] == [7]
    assert not any(scan["reverse"] for scan in found)
    assert len(found) == len(scans(jax.make_jaxpr(forward)(*args).jaxpr))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_temperatures():
    batch, num_samples = 4, 8
    build = functools.partial(one_layer, mean=np.full(12, 0.5), num_latents=8, num_hidden=32)
    parts = eqx.filter_jit(build)(jax.random.key(0))
    keys, xs = jax.random.split(jax.random.key(0), batch), jnp.ones((batch, 12))

    def temporary(num_temperatures):
        def gradients(*args):
            methods = [kind(num_samples, num_temperatures, KERNEL) for kind in CHAINS]
            return [training_gradient(method)(*args) for method in methods]

        compiled = jit(gradients).lower(parts, keys, xs).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    short, long = temporary(4), temporary(64)
    # What is read off each transition, and nothing of its networks: five numbers.
    diagnostics = len(CHAINS) * 60 * batch * num_samples * 5 * 4
    assert long - short < 0.05 * short + diagnostics


@pytest.mark.slow
def test_chains_spend_the_gradients_that_they_claim():
    methods = [kind(2, 3, KERNEL) for kind in CHAINS]
    methods.append(AIS(1, 1, KERNEL, phi_objective="wake"))
    counts = [collections.Counter() for _ in methods]
    proposal = Encoder(jnp.eye(2), jnp.zeros(2), jnp.zeros(2))
    keys, xs = jax.random.split(jax.random.key(0), 2), jnp.ones((2, 2))

    def gradients(models):
        pairs = zip(methods, models, strict=True)
        return [training_gradient(method)((model, proposal), keys, xs) for method, model in pairs]

    jax.block_until_ready(jit(gradients)([counting_model(count) for count in counts]))
    found = [count["gradient"] for count in counts]
    assert found == [2 * method.num_gradients for method in methods]


@pytest.mark.slow
def test_the_bound_spends_the_gradients_that_it_claims():
    """It never moves at beta = 1, where nothing is weighed any more."""
    counts, method = collections.Counter(), AIS(2, 3, KERNEL)
    model = counting_model(counts)
    proposal = Encoder(jnp.eye(2), jnp.zeros(2), jnp.zeros(2))
    bound = jit(lambda key: method.bound(key, model, proposal, jnp.ones(2), method.init()))
    jax.block_until_ready(bound(jax.random.key(0)))
    assert counts["gradient"] == method.bound_gradients


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VAE, IWAE, DReG])
def test_samples_spend_the_gradients_that_they_claim(kind):
    """Count matrix products: the compiler merges the passes of theta and phi if it can.

    Those whose result has one row for each sample and one column for each hidden unit, or the
    reverse, are two on the way to the output and two on each way back from it.
    """
    num_samples, num_hidden = 5, 7
    build = functools.partial(one_layer, mean=np.full(13, 0.5), num_latents=3, num_hidden=7)
    parts, method = eqx.filter_jit(build)(jax.random.key(0)), kind(num_samples)
    keys = jax.random.split(jax.random.key(0), 1)
    program = jit(training_gradient(method)).lower(parts, keys, jnp.ones((1, 13))).compile()
    shapes = re.findall(r"= f32\[(\d+),(\d+)\]\S* dot\(", program.as_text())
    hidden = [shape for shape in shapes if {*map(int, shape)} == {num_samples, num_hidden}]
    num_passes = (len(hidden) - 2) / 2
    assert method.num_gradients == num_samples * num_passes
