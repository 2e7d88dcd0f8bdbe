"""Estimates of the gradient, their bias and their noise."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import aisle
from aisle.annealing.ais import sample_start
from aisle.models import one_layer
from known_gradients import (
    MODEL,
    NUM_EXAMPLES,
    Exact,
    ExactDraws,
    Shifted,
    exact_gradient,
    exactly,
    examples,
    expected_log_joint,
    gradient_under_q,
    kernel,
    posterior_log_joints,
    program_of,
    repeated,
)
from measures import z_score
from paper.core.chains import gradients_per_chain, log_joint, walk_gradients
from paper.gradients import averages, study
from paper.gradients.averages import Examples, average, chain_ends, chain_stops, make_program
from paper.gradients.bias import compare, squared_norm
from paper.gradients.estimators import CHAIN_SCHEDULES, ESTIMATORS, WEIGHTINGS
from paper.gradients.reference import Reference
from paper.gradients.study import Case

pytestmark = pytest.mark.usefixtures("quick_compilation")


# ---- stops of a chain at the posterior


@pytest.mark.slow
def test_stops_keep_the_posterior():
    """With steps so long that rejection matters, from exact samples that annealing left alone."""
    number, num_stops, key = 4000, 3, jax.random.key(1)
    chains = kernel(num_samples=number, size=0.35, last_move=False, refresh=0.6)
    x, exact = jnp.asarray(examples().xs[0]), MODEL.posterior(jnp.asarray(examples().xs[0]))
    q, density = ExactDraws(MODEL, x), log_joint(MODEL, x)
    run = functools.partial(chain_stops, num_stops, 1, key, q, density)
    found = eqx.filter_jit(run)(chains)
    z = np.asarray(found.z).reshape(number, num_stops, -1)
    # The first stop is where annealing ends, which is here where it starts.
    keys = jax.random.split(jax.random.split(jax.random.split(key)[0])[0], number)
    np.testing.assert_allclose(z[:, 0], jax.vmap(lambda k: sample_start(k, q))(keys), rtol=1e-4)
    moved = np.any(np.diff(z, axis=1) != 0, axis=2).mean(axis=0)
    assert np.all((moved > 0.5) & (moved < 0.9))
    z = z - np.asarray(exact.loc)
    covariance = np.asarray(exact.covariance_matrix)
    for stop, i, j in itertools.product(range(num_stops), range(3), range(3)):
        assert abs(z_score(z[:, stop, i], 0)) < 4
        assert abs(z_score(z[:, stop, i] * z[:, stop, j], covariance[i, j])) < 4
    # A chain's stops are neighbours, and those of other chains are independent of them.
    assert np.corrcoef(z[:, 0, 1], z[:, 1, 1])[0, 1] > 10 / np.sqrt(number)
    assert abs(np.corrcoef(z[1:, 0, 1], z[:-1, 1, 1])[0, 1]) < 4 / np.sqrt(number)


@pytest.mark.slow
def test_stops_have_the_weights_of_their_chains():
    x, key = jnp.asarray(examples().xs[0]), jax.random.key(1)
    q, density, chains = Shifted(MODEL)(x), log_joint(MODEL, x), kernel(last_move=False)
    found = eqx.filter_jit(functools.partial(chain_stops, 2, 1, key, q, density))(chains)
    alone = chain_ends(jax.random.split(key)[0], q, density, chains)
    np.testing.assert_allclose(found.z[::2], alone.z, rtol=1e-4)
    np.testing.assert_allclose(found.log_weight, np.repeat(alone.log_weight, 2), rtol=1e-4)
    assert np.ptp(alone.log_weight) > 0.1


@pytest.mark.slow
def test_walks_cost_what_is_said():
    calls = []
    x = jnp.asarray(examples().xs[0])

    def density(z):
        jax.debug.callback(lambda: calls.append(1))
        return log_joint(MODEL, x)(z)

    chains = kernel(num_samples=1)
    run = functools.partial(chain_stops, 4, 3, jax.random.key(0), Shifted(MODEL)(x), density)
    eqx.filter_jit(run)(chains)
    jax.effects_barrier()
    assert len(calls) == gradients_per_chain(chains) + walk_gradients(4, 3, chains)


# ---- bias and noise, known exactly


def many(kind, number, size):
    """Return groups of repeats, each a small measurement of its own."""
    return repeated(kind, NO_MOVES, number * size).reshape(number, size, -1)


@pytest.mark.slow
def test_exact_samples_have_no_bias():
    truth, found = exact_gradient(), many(Exact, 40, 5)
    compared = [compare(group, exactly(truth)) for group in found]
    assert abs(z_score([c.bias.value for c in compared], 0)) < 4
    # Were noise counted as bias, these repeats would look biased.
    naive = np.sum((found.mean(axis=1) - truth) ** 2, axis=1) / np.sum(truth**2)
    assert z_score(naive, 0) > 8
    trace = np.sum(found.var(axis=1, ddof=1), axis=1) / np.sum(truth**2)
    np.testing.assert_allclose([c.noise.value for c in compared], trace, rtol=1e-4)
    for c in compared:
        assert c.total.value == pytest.approx(c.bias.value + c.noise.value)


@pytest.mark.slow
def test_samples_of_a_poor_encoder_have_the_bias_that_they_must_have():
    truth, found = exact_gradient(), repeated(Shifted, NO_MOVES, 60)
    compared = compare(found, exactly(truth))
    wanted = np.sum((gradient_under_q() - truth) ** 2) / np.sum(truth**2)
    assert wanted > 10 * compared.bias.standard_error
    assert abs(compared.bias.value - wanted) < 4 * compared.bias.standard_error


@pytest.mark.slow
def test_the_references_noise_is_not_bias():
    """Parts as noisy as the repeats, and fewer."""
    found = many(Exact, 40, 8)
    compared = [compare(group[:5], group[5:]) for group in found]
    assert abs(z_score([c.bias.value for c in compared], 0)) < 4
    distances = np.sum((found[:, :5].mean(axis=1) - found[:, 5:].mean(axis=1)) ** 2, axis=1)
    norms = [squared_norm(group[5:]) for group in found]
    assert z_score(distances / norms, 0) > 8


NO_MOVES = kernel(num_samples=3, last_move=False)


@pytest.mark.slow
def test_a_result_says_what_was_measured():
    """Samples of the poor encoder, beside a reference without noise."""
    keys = jax.random.split(jax.random.key(8), 60)
    repeats = [average(program_of(Shifted), NO_MOVES, k, examples()) for k in keys]
    repeats = [repeat._replace(acceptance=np.full(1, 0.5)) for repeat in repeats]
    reference = Reference(
        exactly(exact_gradient()),
        np.tile(posterior_log_joints(), (3, 1)),
        posterior_log_joints(),
        np.ones(NUM_EXAMPLES),
    )
    result = study._result(Case("paper", 1, "immediate"), "mh-hmc", NO_MOVES, repeats, reference)
    compared = compare(np.stack([r.gradients[-1] for r in repeats]), reference.gradients)
    assert (result.squared_bias, result.squared_bias_error) == compared.bias
    # Noise is that of a batch of 128, and here there are six examples.
    assert result.squared_noise == pytest.approx(compared.noise.value * NUM_EXAMPLES / 128)
    xs, proposal = jnp.asarray(examples().xs), Shifted(MODEL)
    under_q = jax.vmap(lambda x: expected_log_joint(MODEL, x, proposal(x)))(xs)
    truth = float(np.mean(under_q - posterior_log_joints()))
    found = [np.mean(r.log_joint[-1] - posterior_log_joints()) for r in repeats]
    assert result.log_joint_bias == pytest.approx(np.mean(found), rel=1e-4)
    assert abs(z_score(found, truth)) < 4
    assert truth < -1
    assert result.effective_sample_size == pytest.approx(3, rel=1e-5)


# ---- the estimators of the library


@functools.cache
def network():
    xs = jax.random.bernoulli(jax.random.key(4), 0.5, (3, 12)).astype(float)
    build = functools.partial(one_layer, mean=np.linspace(0.1, 0.9, 12), num_latents=2)
    model, proposal = eqx.filter_jit(build)(jax.random.key(5), num_hidden=6)
    return model, proposal, Examples(np.asarray(xs), np.array([7, 2, 30]))


def method_of(name, chains):
    """Return the library's method with chains of the same kind."""
    K, T = chains.num_samples, len(chains.step_sizes)
    along = aisle.Kernel(list(np.asarray(chains.betas)), chains.hmc)
    methods = {
        "vae": lambda: aisle.VAE(K),
        "iwae": lambda: aisle.IWAE(K),
        "mh-hmc": lambda: aisle.MHHMC(K, T, along),
        "ais": lambda: aisle.AIS(K, T, along),
    }
    return methods[name]()


def learned(name, chains, key):
    """Return the flat gradient of theta that a method of the library gives."""
    model, proposal, (xs, indices) = network()
    method = method_of(name, chains)
    state = chains.step_sizes if hasattr(method, "kernel") else method.init()
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params):
        def one(index, x):
            key_example = jax.random.fold_in(key, index)
            weights = (eqx.combine(params, static), proposal)
            return method.estimate(key_example, *weights, x, state)[0].theta

        return jnp.mean(jax.vmap(one)(jnp.asarray(indices), jnp.asarray(xs)))

    return -ravel_pytree(jax.jit(jax.grad(loss))(params))[0]


def measured(kernel, key, weighting):
    place = list(WEIGHTINGS).index(weighting)
    return average(network_program(), kernel, key, network()[2]).gradients[place]


@functools.cache
def network_program():
    return make_program(*network()[:2], study._weigh)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "method", "schedule", "options"),
    [
        ("ais", "ais", "linear", {"refresh": 0.5, "precondition": 0.5}),
        ("mh-hmc", "mh-hmc", "immediate", {}),
        # Without a move, annealing is importance sampling.
        ("ais", "iwae", "linear", {"last_move": False, "num_temperatures": 1}),
        ("mh-hmc, weighted", "iwae", "immediate", {"last_move": False, "num_temperatures": 1}),
        ("mh-hmc", "vae", "immediate", {"last_move": False, "num_temperatures": 1}),
    ],
)
def test_what_is_measured_is_what_trains(estimator, method, schedule, options):
    assert ESTIMATORS[estimator].schedule == schedule
    key, chains = jax.random.key(9), kernel(schedule=schedule, **{"num_temperatures": 2} | options)
    found = measured(chains, key, ESTIMATORS[estimator].weighting)
    np.testing.assert_allclose(found, learned(method, chains, key), rtol=1e-4, atol=1e-5)


def test_weightings():
    log_weights = jnp.array([0.0, 2.0, -jnp.inf, 1.0])
    found = {name: np.asarray(f(log_weights)) for name, f in WEIGHTINGS.items()}
    np.testing.assert_allclose(found["equal"], 0.25)
    weights = np.exp([0.0, 2.0, -np.inf, 1.0])
    np.testing.assert_allclose(found["weights"], weights / weights.sum(), rtol=1e-6)
    root = np.sqrt(weights)
    np.testing.assert_allclose(found["root"], root / root.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "number", "betas"),
    [
        ("immediate", 3, [0, 1, 1, 1]),
        ("ramp25", 11, [0, 1 / 3, 2 / 3, *[1] * 9]),
        ("ramp50", 4, [0, 0.5, 1, 1, 1]),
        ("ramp75", 5, [0, 0.25, 0.5, 0.75, 1, 1]),
        ("linear", 2, [0, 0.5, 1]),
    ],
)
def test_schedules(name, number, betas):
    np.testing.assert_allclose(CHAIN_SCHEDULES[name](number), betas, rtol=1e-6)


def test_every_estimator_has_a_known_schedule_and_weighting():
    for estimator in ESTIMATORS.values():
        assert len(CHAIN_SCHEDULES[estimator.schedule](7)) == 8
        assert estimator.weighting in WEIGHTINGS


# ---- averages over examples


@pytest.mark.slow
def test_averages_do_not_depend_on_tiles(monkeypatch):
    """Nor on the devices: six examples on eight of them, and one at a time."""
    program, key = program_of(Shifted), jax.random.key(2)
    chains, spent = kernel(), []
    whole = average(program, chains, key, examples(), spent.append)
    single = [
        average(program, chains, key, Examples(*(a[i : i + 1] for a in examples())))
        for i in range(NUM_EXAMPLES)
    ]
    monkeypatch.setattr(averages, "_CHAINS_PER_TILE", 1)
    monkeypatch.setattr(jax, "devices", lambda: [None] * 4)
    assert averages._tile_size(NUM_EXAMPLES, 3) == 4
    monkeypatch.undo()
    mean = np.mean([one.gradients for one in single], axis=0)
    np.testing.assert_allclose(whole.gradients, mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        whole.log_joint, np.concatenate([one.log_joint for one in single], axis=1), rtol=1e-5
    )
    acceptance = np.mean([one.acceptance for one in single], axis=0)
    np.testing.assert_allclose(whole.acceptance, acceptance, rtol=1e-5)
    assert spent == [NUM_EXAMPLES]


@pytest.mark.slow
def test_several_tiles_are_added_up(monkeypatch):
    program, key, spent = program_of(Shifted), jax.random.key(2), []
    many = Examples(np.tile(examples().xs, (4, 1))[:20], np.arange(20))
    whole = average(program, kernel(), key, many)
    monkeypatch.setattr(averages, "_CHAINS_PER_TILE", 1)
    found = average(program, kernel(), key, many, spent.append)
    assert spent == [8, 8, 4]
    for tiled, once in zip(found, whole, strict=True):
        np.testing.assert_allclose(tiled, once, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("num_examples", "num_samples", "size"),
    [(6, 5, 8), (128, 5, 128), (641, 5, 328), (20, 400, 8), (20, 5000, 8), (1, 1, 8)],
)
def test_tiles_are_alike(num_examples, num_samples, size):
    """On eight devices, of which each takes as many examples."""
    assert averages._tile_size(num_examples, num_samples) == size


@pytest.mark.slow
def test_the_numbers_of_an_example():
    found = average(program_of(Shifted), kernel(), jax.random.key(2), examples())
    weights, root, equal = found.effective_sample_size
    np.testing.assert_allclose(equal, 5, rtol=1e-5)
    assert np.all((weights >= 1) & (weights < root) & (root < 5))
