import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import Kernel, Ladder, anneal, log_mean_exp, normalised_weights, schedules
from aisle.annealing.ais import sample_start
from aisle.errors import InputError
from aisle.learning import AIS, IWAE, MHHMC, VAE, DReG, Method, Metrics
from aisle.learning.methods import importance_bound
from aisle.models import LinearGaussian, PriorProposal
from estimating import (
    CHAINS,
    KERNEL,
    METHODS,
    PROBLEMS,
    Encoder,
    assert_close,
    assert_same,
    contract_batch,
    contract_runs,
    first_observation,
    jit,
    pick,
    problem,
    rows,
    run,
    state_of,
)

over_methods = pytest.mark.parametrize("name", METHODS)
# Networks are what the tests of commands train, so that only the smallest problem need be quick.
over_problems = pytest.mark.parametrize(
    "problem_name",
    [pytest.param(p, marks=[pytest.mark.slow] * (p != "linear-gaussian")) for p in PROBLEMS],
)


@over_methods
def test_methods_have_the_protocol(name):
    """As constants of compiled programs they are hashable; their state keeps its form."""
    method = METHODS[name]
    assert isinstance(method, Method)
    assert hash(method) == hash(replace(method))
    assert method.num_gradients > 0
    num_moves = method.num_temperatures if name in CHAINS else 0
    metrics = Metrics(jnp.zeros(()), jnp.ones(()), jnp.full(num_moves, 0.5), jnp.zeros(()))
    before, after = method.init(), method.adapt(method.init(), metrics)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


@over_problems
@over_methods
def test_losses_are_finite_scalars_and_metrics_have_their_shapes(name, problem_name):
    losses, metrics, _ = contract_runs(problem_name)[name]
    for loss in losses:
        assert loss.shape == (4,)
        assert np.all(np.isfinite(loss))
    assert metrics.acceptance.shape == (4, 3 if name in CHAINS else 0)
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


@pytest.mark.slow
def test_a_distribution_need_not_be_a_pytree():
    keys, model, proposal, xs = contract_batch("linear-gaussian")
    plain = PlainEncoder(proposal.weight, proposal.bias, proposal.log_scale)
    methods = {name: METHODS[name] for name in ("dreg", "ais")}
    found = run(methods, keys, model, plain, xs)
    wanted = {name: contract_runs("linear-gaussian")[name] for name in methods}
    assert_close(found, wanted, 1e-5)


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
        plain = METHODS[name].estimate(keys[1], model, proposal, xs[1], state_of(METHODS[name]))
    assert_close(pick(contract_runs(problem_name)[name][:2], 1), plain, 2e-5)


@dataclass(frozen=True, repr=False)
class Still(AIS):
    """Annealing without the last move, which leaves the weights as they are."""

    def ladder(self, state):
        return self.kernel.ladder(self.num_temperatures, state, last_move=False)


@pytest.mark.slow
def test_special_cases_are_exact():
    """One temperature without its move is iwae; one chain at the posterior at once is mh-hmc.

    Bit for bit: losses, gradients and metrics, where both methods have them.
    """
    jump = replace(KERNEL, schedule=schedules.immediate)
    methods = {"ais still": Still(5, 1, KERNEL), "iwae": IWAE(5)}
    methods |= {"ais jump": AIS(1, 3, jump), "mh-hmc": MHHMC(1, 3, KERNEL)}
    result = run(methods, *first_observation("linear-gaussian", 3))
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


def by_hand(name, key, model, proposal, x):
    """Return theta's and phi's gradients from the module's table, over constants.

    Where a method has chains they come from `anneal`, elsewhere from q; either way their ends and
    weights enter the gradient as numbers that were computed before. A state before the end is that
    of a ladder that ends there.
    """
    method = METHODS[name]
    key_draws, key_phi = jax.random.split(key)
    keys = jax.random.split(key_draws, method.num_samples)
    q = proposal(x)

    def chain(key):
        schedule = schedules.immediate if name == "mh-hmc" else method.kernel.schedule
        betas, sizes = schedule(3), state_of(method)
        runs = [
            anneal(
                key,
                q,
                functools.partial(log_joint, model, x),
                Ladder(betas[: length + 1], sizes[:length], KERNEL.transition),
            )
            for length in range(4 - method.num_states, 4)
        ]
        return jnp.stack([run.z for run in runs]), runs[-1].log_weight

    def log_weight(proposal, key):
        z = sample_start(key, proposal(x))
        return log_joint(model, x, z) - proposal(x).log_prob(z)

    def path_log_weight(proposal, key):
        z = sample_start(key, proposal(x))
        return log_joint(model, x, z) - q.log_prob(z)

    def draw(key):
        z = sample_start(key, q)
        return z, log_joint(model, x, z) - q.log_prob(z)

    z, log_weights = jax.vmap(chain if name in CHAINS else draw)(keys)
    weights = normalised_weights(log_weights)
    if name in ("vae", "mh-hmc"):
        weights = jnp.full(method.num_samples, 1 / method.num_samples)

    z = z.reshape(method.num_samples, -1, z.shape[-1])

    def joints(model):
        each = jax.vmap(jax.vmap(functools.partial(log_joint, model, x)))(z)
        return jnp.mean(each, axis=1)

    theta = jax.grad(lambda model: -weights @ joints(model))(model)
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
    names = tuple(name for name in METHODS if name != "own")
    keys, model, proposal, xs = contract_batch("linear-gaussian")
    wanted = all_by_hand(names, keys[1], model, proposal, xs[1])
    for name, gradients in zip(names, wanted, strict=True):
        theta, phi = contract_runs("linear-gaussian")[name][2]
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


class HalfEmpty(LinearGaussian):
    """A model that has no mass where the first latent is positive."""

    def log_likelihood(self, x, z):
        return jnp.where(z[0] > 0, -jnp.inf, LinearGaussian.log_likelihood(self, x, z))


def half(kind, loc, methods):
    """Run methods on a model that is half of one, from an encoder around `loc`."""
    model, encoder, xs = problem("linear-gaussian")
    own = kind(model.weight, model.bias, model.log_sigma)
    proposal = Encoder(0 * encoder.weight, jnp.array([loc, 0, 0]), jnp.full(3, -2.0))
    keys, xs = jax.random.split(jax.random.key(0), 20), jnp.broadcast_to(xs[0], (20, 4))
    return run(methods, keys, own, proposal, xs)


@pytest.mark.slow
def test_nonfinite_transitions_are_rejected_and_counted():
    methods = {name: METHODS[name] for name in CHAINS}
    for losses, metrics, (theta, phi) in half(HalfBlind, -0.6, methods).values():
        assert np.sum(metrics.num_nonfinite) > 0
        assert np.all(metrics.num_nonfinite <= 6)
        for tree in (losses, theta[0], phi[1], metrics):
            assert np.all(np.isfinite(rows(tree)))


def test_a_sample_of_weight_zero_has_no_say_in_the_losses():
    """Its log p(x, z) is -inf, and 0 x infinity would be NaN."""
    methods = {"iwae": IWAE(8), "dreg": DReG(8), "ais": AIS(8, 1, KERNEL, phi_objective="wake")}
    for losses, metrics, (theta, phi) in half(HalfEmpty, 0.0, methods).values():
        assert np.mean(metrics.effective_sample_size) < 5
        for tree in (losses, theta[0], phi[1], metrics.bound):
            assert np.all(np.isfinite(rows(tree)))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize(("target", "sign"), [(0.9, -1), (0.3, 1)])
def test_step_sizes_move_towards_the_target(name, target, sign):
    kernel = replace(METHODS[name].kernel, target_accept=target)
    method = replace(METHODS[name], kernel=kernel)
    metrics = Metrics(jnp.zeros(()), jnp.ones(()), jnp.full(3, 0.6), jnp.zeros(()))
    sizes = method.init()
    assert np.all(sign * np.asarray(method.adapt(sizes, metrics) - sizes) > 0)
    largest = KERNEL.transition.largest_step_size
    np.testing.assert_allclose(method.adapt(jnp.full(3, 99.0), metrics), largest)


@pytest.mark.slow
def test_the_bound_of_chains_is_by_chains_whatever_their_schedule():
    """From a poor encoder, chains at the posterior alone would have the weights of its samples."""
    model, _, xs = problem("linear-gaussian")
    far = Encoder(jnp.zeros((3, 4)), jnp.array([1.5, -1.0, 0.5]), jnp.full(3, -1.0))
    keys = jax.random.split(jax.random.key(1), 8)
    method = METHODS["mh-hmc"]

    @jit
    @jax.vmap
    def bounds(key):
        by_chains = method.bound(key, model, far, xs[0], state_of(method))
        by_samples = importance_bound(key, model, far, xs[0], 64)
        return by_chains, by_samples, model.log_marginal(xs[0])

    by_chains, by_samples, truth = map(np.mean, bounds(keys))
    assert by_samples < truth - 2
    assert truth - 0.3 < by_chains < truth + 0.1


@pytest.mark.slow
def test_more_states_have_less_noise_and_no_other_mean():
    """Of moves at the posterior; the sixth state before the end has nearly the law of the last."""
    kernel = replace(KERNEL, schedule=schedules.ramp)
    methods = {str(n): AIS(1, 16, kernel, num_states=n) for n in (1, 6)}
    keys, model, proposal, xs = first_observation("linear-gaussian", 4000)
    found = run(methods, keys, model, proposal, xs, size=0.35)
    one, six = (rows(found[str(n)][2].theta[0]) for n in (1, 6))
    error = (six - one).std(axis=0) / np.sqrt(len(one))
    assert np.all(np.abs((six - one).mean(axis=0)) < 4 * error)
    assert np.sum(six.var(axis=0)) < 0.7 * np.sum(one.var(axis=0))


BAD = [
    (lambda: VAE(0), "num_samples is 0: it must be at least 1"),
    (lambda: IWAE(2.0), "num_samples is 2.0: it must be a whole number"),
    (lambda: AIS(num_temperatures=0), "num_temperatures is 0: it must be at least 1"),
    (lambda: AIS(num_states=0), "num_states is 0: it must be at least 1"),
    (
        lambda: AIS(num_temperatures=4, num_states=4),
        "num_states is 4 but the moves at the posterior are 3 of 4: give fewer, or a schedule such "
        "as ramp",
    ),
    (lambda: AIS(kernel="tuned"), "kernel is 'tuned': give a kernel, such as aisle.Kernel.tuned()"),
    (
        lambda: MHHMC(phi_objective="sleep"),
        "phi_objective is 'sleep': choose from elbo, elbo+wake, wake",
    ),
    (lambda: AIS(precision="half"), "precision is 'half': choose from float32, bfloat16"),
    (
        lambda: AIS(num_temperatures=5, kernel=Kernel([0, 0.5, 1])),
        "num_temperatures is 5 but the schedule has 3 inverse temperatures: give one more than "
        "temperatures, or a function of their number",
    ),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_values_get_one_clear_line(as_users_have_it, make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message


def test_a_proposal_without_a_scale_cannot_be_preconditioned():
    model, _, xs = problem("linear-gaussian")
    method = METHODS["ais"]
    with pytest.raises(
        InputError, match=r"precondition is 0\.5 but the proposal's distribution has"
    ):
        key, prior, sizes = jax.random.key(0), PriorProposal(model), method.init()
        jax.eval_shape(lambda: method.estimate(key, model, prior, xs[0], sizes))
