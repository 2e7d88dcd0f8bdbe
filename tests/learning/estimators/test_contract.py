import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import anneal, log_mean_exp, normalised_weights
from aisle.annealing.ais import sample_start
from aisle.errors import InputError
from aisle.learning.estimators import METHODS, named
from aisle.models import LinearGaussian, PriorProposal
from estimating import (
    CHAINS,
    FULL,
    PROBLEMS,
    Encoder,
    assert_close,
    assert_same,
    contract_batch,
    contract_runs,
    first_observation,
    jit,
    kernel,
    pick,
    problem,
    rows,
    run,
)

over_methods = pytest.mark.parametrize("name", METHODS)
# One layer is what the commands' tests train, so that only the others need be quick.
over_problems = pytest.mark.parametrize(
    "problem_name",
    [pytest.param(p, marks=pytest.mark.slow) if p == "one-layer" else p for p in PROBLEMS],
)


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
def test_the_bound_of_a_vae_is_the_elbo(problem_name):
    """Of two samples, whose weights differ."""
    losses, metrics, _ = contract_runs(problem_name)["vae"]
    assert np.all(metrics.effective_sample_size < 2)
    assert_close(metrics.bound, -losses.phi, 1e-6)


class Plain:
    """A distribution that is no pytree: its arrays cannot be found, and so not be stopped."""

    def __init__(self, inner):
        self.sample, self.log_prob, self.scale = inner.sample, inner.log_prob, inner.scale


class PlainEncoder(Encoder):
    def __call__(self, x):
        return Plain(super().__call__(x))


def test_a_distribution_need_not_be_a_pytree():
    keys, model, proposal, xs = contract_batch("linear-gaussian")
    plain = PlainEncoder(proposal.weight, proposal.bias, proposal.log_scale)
    plan = {name: (name, kernel(**FULL)) for name in METHODS}
    found = run(plan, keys, model, plain, xs)
    assert_close(found, contract_runs("linear-gaussian"), 1e-5)


@over_problems
@over_methods
def test_the_key_and_the_observation_alone_decide_the_result(name, problem_name):
    result = contract_runs(problem_name)[name]
    assert_close(pick(result, 2), pick(result, 0), 1e-6)
    losses = rows(result[0])
    assert np.all(np.abs(losses[3] - losses[0]) > 1e-4)


@pytest.mark.slow
@over_problems
@over_methods
def test_compiled_over_a_batch_equals_plain_on_one_example(name, problem_name):
    keys, model, proposal, xs = contract_batch(problem_name)
    with jax.disable_jit():
        plain = METHODS[name].estimate(keys[1], model, proposal, xs[1], kernel(**FULL))
    assert_close(pick(contract_runs(problem_name)[name][:2], 1), plain, 2e-5)


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

    def path_log_weight(proposal, key):
        z = sample_start(key, proposal(x))
        return log_joint(model, x, z) - q.log_prob(z)

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
        "dreg": lambda p: -(weights**2 @ jax.vmap(lambda k: path_log_weight(p, k))(keys)),
    }.get(name, lambda p: -log_weight(p, key_one))
    return theta, jax.grad(phi)(proposal)


def test_gradients_equal_those_over_constant_draws_and_weights():
    """Nothing flows through a chain or a weight, and every option reaches the sampler."""
    names = tuple(METHODS)
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
