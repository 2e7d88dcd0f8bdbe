import collections
import functools
import itertools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from jaxtyping import Array, Float

from aisle.annealing import Kernel, anneal, log_mean_exp, normalised_weights, schedules
from aisle.annealing.ais import sample_start
from aisle.annealing.kernel import run_forward
from aisle.errors import InputError
from aisle.experiments import problems
from aisle.learning.estimators import METHODS, Losses, named
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


@pytest.mark.slow
@pytest.mark.parametrize("problem_name", ["one-layer", "two-layer", "linear-gaussian"])
@over_methods
def test_compiled_over_a_batch_equals_plain_on_one_example(name, problem_name):
    keys, model, proposal, xs = contract_batch(problem_name)
    with jax.disable_jit():
        plain = METHODS[name].estimate(keys[1], model, proposal, xs[1], kernel(**FULL))
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
    jump = kernel(3, 1, "immediate", refresh=0.5, jitter=0.2, precondition=0.5)
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


@functools.partial(jit, static_argnames="names")
def all_by_hand(names, *args):
    return [by_hand(name, *args) for name in names]


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

    theta = jax.grad(lambda model: -weights @ jax.vmap(functools.partial(log_joint, model, x))(z))(
        model
    )
    # `sample_start` of the chains' convention: one split for the samples, one more for the sample.
    key_one = jax.random.split(jax.random.split(key_phi)[0], 1)[0]
    phi = {
        "vae": lambda p: -jnp.mean(jax.vmap(lambda k: log_weight(p, k))(keys)),
        "iwae": lambda p: -log_mean_exp(jax.vmap(lambda k: log_weight(p, k))(keys)),
    }.get(name, lambda p: -log_weight(p, key_one))
    return theta, jax.grad(phi)(proposal)


def test_gradients_equal_those_over_constant_draws_and_weights():
    """Nothing flows through a chain or a weight, and every option reaches the sampler."""
    names = ("vae", "iwae", "mh-hmc", "ais")
    keys, model, proposal, xs = contract_batch("one-layer")
    wanted = all_by_hand(names, keys[1], model, proposal, xs[1], kernel(**FULL))
    for name, gradients in zip(names, wanted, strict=True):
        theta, phi = contract_runs("one-layer")[name][2]
        assert_close((pick(theta[0], 1), pick(phi[1], 1)), gradients, 1e-5)


@over_problems
def test_dreg_has_the_theta_gradient_and_the_bound_of_iwae(problem_name):
    (dreg, dreg_metrics, dreg_gradients), (iwae, iwae_metrics, iwae_gradients) = (
        contract_runs(problem_name)[name] for name in ("dreg", "iwae")
    )
    np.testing.assert_array_equal(dreg.theta, iwae.theta)
    assert_same(dreg_gradients.theta, iwae_gradients.theta)
    assert_same(dreg_metrics, iwae_metrics)


SAMPLE_PLAN = {
    f"{name} {num_samples}": (name, kernel(1, num_samples))
    for name, sizes in {"vae": (1, 50), "iwae": (1, 5, 50), "dreg": (1, 5, 50)}.items()
    for num_samples in sizes
}


def chain_plan(num_temperatures, longest=16):
    """Chains of any length in one compilation: a move with a step of size zero moves nothing."""
    betas = jnp.ones(longest + 1).at[: num_temperatures + 1].set(schedules.linear(num_temperatures))
    sizes = jnp.where(jnp.arange(longest) < num_temperatures, 0.35, 0.0)
    return {name: (name, Kernel(betas, sizes, 1, 2)) for name in CHAINS}


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
        chains = run(chain_plan(length), *batch)
        results |= {f"{name} {length}": chains[name] for name in CHAINS}
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
@pytest.mark.slow
def test_theta_gradients_approach_that_of_the_exact_marginal(name, sizes):
    found = [distances()[f"{name} {size}"] for size in sizes]
    for (before, error_before), (after, error_after) in itertools.pairwise(found):
        assert before - after > 4 * np.hypot(error_before, error_after)
    assert found[-1][0] < 0.15 * found[0][0]


@pytest.mark.slow
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


class HalfBlind(LinearGaussian):
    """A model that has no likelihood where the first latent is positive."""

    def log_likelihood(self, x, z):
        return jnp.where(z[0] > 0, jnp.nan, LinearGaussian.log_likelihood(self, x, z))


def test_nonfinite_transitions_are_rejected_and_counted():
    model, encoder, xs = problem("linear-gaussian")
    blind = HalfBlind(model.weight, model.bias, model.log_sigma)
    proposal = Encoder(0 * encoder.weight, jnp.array([-1.0, 0, 0]), jnp.full(3, -2.0))
    keys = jax.random.split(jax.random.key(0), 20)
    plan = {name: (name, kernel(3, 2)) for name in CHAINS}
    xs = jnp.broadcast_to(xs[0], (20, 4))
    for losses, metrics, (theta, phi) in run(plan, keys, blind, proposal, xs).values():
        assert np.sum(metrics.num_nonfinite) > 0
        assert np.all(metrics.num_nonfinite <= 6)
        for tree in (losses, theta[0], phi[1], metrics):
            assert np.all(np.isfinite(rows(tree)))


def test_bad_arguments_get_one_clear_line():
    with pytest.raises(InputError, match=r"^method is 'nuts': choose from vae, iwae, .*, ais$"):
        named("nuts")
    model, _, xs = problem("linear-gaussian")
    with pytest.raises(InputError, match="precondition is 1 but PriorDistribution has no `scale`"):
        METHODS["ais"].estimate(
            jax.random.key(0), model, PriorProposal(model), xs[0], kernel(precondition=1.0)
        )


@over_methods
def test_methods_are_found_by_name(name):
    assert named(name) is METHODS[name]


@pytest.mark.parametrize("name", CHAINS)
def test_phi_learns_from_the_ends_of_the_chains_if_asked(name):
    model, proposal, xs = problem("linear-gaussian")
    plan, key = kernel(**FULL), jax.random.key(8)

    @functools.partial(jit, static_argnums=0)
    def gradients(objective):
        def estimate(parts):
            return named(name, objective).estimate(key, *parts, xs[0], plan)[0]

        return jax.vmap(jax.vjp(estimate, (model, proposal))[1])(Losses(*jnp.eye(2)))[0]

    @jit
    def by_hand():
        stages = eqx.tree_at(lambda k: k.betas, plan, schedules.immediate(3))
        used = stages if name == "mh-hmc" else plan
        keys = jax.random.split(jax.random.split(key)[0], plan.num_samples)

        def joint(z):
            return model.log_prior(z) + model.log_likelihood(xs[0], z)

        ends = jax.vmap(lambda k: run_forward(k, proposal(xs[0]), joint, used))(keys)
        equal = jnp.full(plan.num_samples, 1 / plan.num_samples)
        weights = equal if name == "mh-hmc" else normalised_weights(ends.log_weight)
        return jax.grad(lambda q: -jnp.sum(weights * jax.vmap(q(xs[0]).log_prob)(ends.z)))(proposal)

    elbo, wake, both = map(gradients, ("elbo", "wake", "elbo+wake"))
    assert_same([elbo[0], elbo[0]], [wake[0], both[0]])  # theta's gradients, and zeros
    assert_close(pick(wake[1], 1), by_hand(), 1e-4)
    assert_close(both[1], jax.tree.map(jnp.add, elbo[1], wake[1]), 1e-4)


def test_phi_objectives_have_their_rules():
    with pytest.raises(InputError, match="'sleep': choose from elbo, elbo"):
        named("ais", "sleep")
    with pytest.raises(InputError, match="vae has no chains"):
        named("vae", "wake")
    plan = kernel(**FULL)
    spent = [named("ais", objective).num_gradients(plan) for objective in ("elbo", "wake")]
    assert spent[0] - spent[1] == 1
