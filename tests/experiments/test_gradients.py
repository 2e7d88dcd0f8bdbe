import functools
import itertools
import shutil
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from aisle.annealing import Kernel, schedules
from aisle.annealing.ais import sample_start
from aisle.annealing.kernel import gradients_per_chain
from aisle.errors import InputError
from aisle.evaluation import gradients as evaluation
from aisle.evaluation.bias import compare, squared_norm
from aisle.evaluation.gradients import (
    Examples,
    average,
    chain_ends,
    chain_stops,
    make_program,
    walk_gradients,
)
from aisle.experiments import gradient_reference, gradients, problems
from aisle.experiments.gradient_bench import Bench, Settings
from aisle.experiments.gradient_table import ESTIMATORS, SCHEDULES, WEIGHTINGS
from aisle.experiments.gradients import Case
from aisle.learning.estimators import METHODS
from aisle.models import DiagonalNormal, LinearGaussian, one_layer
from aisle.models.joint import log_joint
from measures import z_score

pytestmark = pytest.mark.slow

NUM_EXAMPLES = 6

# Enough for an exact answer on a linear-Gaussian model, in seconds.
SMALL = Settings(
    num_examples=NUM_EXAMPLES,
    repeats=4,
    num_samples=2,
    temperatures=(2,),
    num_leapfrog=2,
    reference_temperatures=20,
    reference_parts=8,
    reference_chains=4,
    reference_stops=4,
    reference_moves=3,
)


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly(quick_compilation):
    """Most of the time here goes to compilation."""


class Exact(eqx.Module):
    """The proposal that is the posterior."""

    model: LinearGaussian

    def __call__(self, x):
        return ExactDistribution(self.model, x)


class ExactDistribution(eqx.Module):
    model: LinearGaussian
    x: jax.Array

    def sample(self, key):
        return self.model.posterior(self.x).sample(key)

    def log_prob(self, z):
        return self.model.posterior(self.x).log_prob(z)


class ExactDraws(ExactDistribution):
    """Draws of the posterior with another density, so that the path is one from elsewhere."""

    def log_prob(self, z):
        return Shifted(self.model)(self.x).log_prob(z)


class Shifted(eqx.Module):
    """The mean-field posterior moved and stretched: a poor encoder, and one known exactly."""

    model: LinearGaussian
    shift: float = 0.3
    stretch: float = 1.3

    def __call__(self, x):
        q = self.model.mean_field_posterior(x)
        return DiagonalNormal(q.loc + self.shift, self.stretch * q.scale)


MODEL = problems.linear_gaussian().model


@functools.cache
def examples():
    """Observations of the model, with numbers that are not their places."""
    keys = jax.random.split(jax.random.key(3), NUM_EXAMPLES)
    xs = jax.vmap(lambda k: MODEL.sample_observation(k, 1.5 * MODEL.sample_prior(k)))(keys)
    return Examples(np.asarray(xs), 10 * np.arange(NUM_EXAMPLES) + 4)


def gradient_of(objective):
    """Return the flat gradient of the mean of `objective(model, x)` over the examples."""
    mean = jax.grad(lambda m: jnp.mean(jax.vmap(functools.partial(objective, m))(examples().xs)))
    return np.asarray(ravel_pytree(mean(MODEL))[0], np.float64)


@functools.cache
def exact_gradient():
    return gradient_of(lambda model, x: model.log_marginal(x))


def expected_log_joint(model, x, q):
    """E_q log p(x, z) for a diagonal normal q, which is known as log p is quadratic in z."""
    variance = q.scale**2
    noise = jnp.exp(2 * model.log_sigma)
    spread = jnp.sum(variance * jnp.sum(model.weight**2, axis=0)) / noise + jnp.sum(variance)
    return model.log_prior(q.loc) + model.log_likelihood(x, q.loc) - spread / 2


@functools.cache
def gradient_under_q():
    """The mean of the gradient of log p(x, z) where z has the poor encoder's law."""
    proposal = Shifted(MODEL)
    return gradient_of(lambda model, x: expected_log_joint(model, x, proposal(x)))


def kernel(num_temperatures=1, num_samples=5, schedule="linear", size=0.5, **options):
    betas = schedules.named(schedule, num_temperatures)
    sizes = jnp.full(num_temperatures, size)
    return Kernel(betas, sizes, num_samples, **{"num_leapfrog": 2} | options)


def repeated(kind, kernel, number, weighting="equal"):
    """Return the gradients of independent repeats, under one weighting."""
    program, place = program_of(kind), list(WEIGHTINGS).index(weighting)
    keys = jax.random.split(jax.random.key(8), number)
    return np.stack([average(program, kernel, k, examples()).gradients[place] for k in keys])


@functools.cache
def program_of(kind):
    return make_program(MODEL, kind(MODEL), gradients._weigh)


def exactly(gradient):
    """A reference without noise: three parts that agree."""
    return np.tile(gradient, (3, 1))


@functools.cache
def posterior_log_joints():
    """The exact posterior mean of log p(x, z), for each example."""

    def one(x):
        # log p(x, z) is its highest value less half a chi-squared of as many degrees as latents.
        best = MODEL.posterior(x).loc
        return MODEL.log_prior(best) + MODEL.log_likelihood(x, best) - len(best) / 2

    return np.asarray(jax.vmap(one)(jnp.asarray(examples().xs)))


# ---- the reference


def test_the_reference_is_the_exact_gradient(stored):
    found, truth = stored[1].reference.gradients, exact_gradient()
    assert found.shape == (8, len(truth))
    z = [z_score(found[:, i], truth[i]) for i in range(len(truth))]
    # Of Student's law with 7 degrees of freedom: 5 is beyond one in a thousand.
    assert np.abs(z).max() < 5
    assert np.sqrt(np.mean(np.square(z))) < 2
    # And there is little noise that an error could hide in.
    error = found.std(axis=0, ddof=1) / np.sqrt(8)
    assert np.linalg.norm(error) < 0.1 * np.linalg.norm(truth)


def test_the_reference_knows_its_norm_and_its_noise(stored):
    reference, truth = stored[1].reference, np.linalg.norm(exact_gradient())
    assert abs(reference.norm / truth - 1) < 0.1
    spread = np.linalg.norm(reference.gradients.std(axis=0, ddof=1)) / np.sqrt(8)
    assert reference.relative_noise == pytest.approx(spread / reference.norm, rel=1e-4)


def test_the_reference_knows_the_posterior_mean_of_the_log_joint(stored):
    reference, truth = stored[1].reference, posterior_log_joints()
    z = [z_score(reference.log_joint[:, i], truth[i]) for i in range(NUM_EXAMPLES)]
    assert np.abs(z).max() < 5
    assert np.abs(reference.log_joint.mean(axis=0) - truth).max() < 0.5
    assert abs(reference.weights_change.mean) < 0.3
    assert np.all((reference.effective_share > 0.5) & (reference.effective_share <= 1))


def test_a_part_of_the_reference_sees_its_own_chains_only():
    num_parts, num_stops = 3, 2
    log_weights = jnp.repeat(jnp.arange(6.0), num_stops)
    shares = np.asarray(gradient_reference._weigh_parts(num_parts, num_stops, log_weights))
    assert shares.shape == (num_parts + 1, 12)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(shares[-1], 1 / 12, rtol=1e-6)
    for part in range(num_parts):
        is_own = np.arange(12) // num_stops % num_parts == part
        assert np.all((shares[part] > 0) == is_own)
        # Chains 3 apart have weights of a ratio of exp(3), and the stops of a chain equal ones.
        first, again, last, _ = shares[part][is_own]
        assert first == again
        assert last / first == pytest.approx(np.exp(3), rel=1e-5)


# ---- stops of a chain at the posterior


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


def test_stops_have_the_weights_of_their_chains():
    x, key = jnp.asarray(examples().xs[0]), jax.random.key(1)
    q, density, chains = Shifted(MODEL)(x), log_joint(MODEL, x), kernel(last_move=False)
    found = eqx.filter_jit(functools.partial(chain_stops, 2, 1, key, q, density))(chains)
    alone = chain_ends(jax.random.split(key)[0], q, density, chains)
    np.testing.assert_allclose(found.z[::2], alone.z, rtol=1e-4)
    np.testing.assert_allclose(found.log_weight, np.repeat(alone.log_weight, 2), rtol=1e-4)
    assert np.ptp(alone.log_weight) > 0.1


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


def test_samples_of_a_poor_encoder_have_the_bias_that_they_must_have():
    truth, found = exact_gradient(), repeated(Shifted, NO_MOVES, 60)
    compared = compare(found, exactly(truth))
    wanted = np.sum((gradient_under_q() - truth) ** 2) / np.sum(truth**2)
    assert wanted > 10 * compared.bias.standard_error
    assert abs(compared.bias.value - wanted) < 4 * compared.bias.standard_error


def test_the_references_noise_is_not_bias():
    """Parts as noisy as the repeats, and fewer."""
    found = many(Exact, 40, 8)
    compared = [compare(group[:5], group[5:]) for group in found]
    assert abs(z_score([c.bias.value for c in compared], 0)) < 4
    distances = np.sum((found[:, :5].mean(axis=1) - found[:, 5:].mean(axis=1)) ** 2, axis=1)
    norms = [squared_norm(group[5:]) for group in found]
    assert z_score(distances / norms, 0) > 8


NO_MOVES = kernel(num_samples=3, last_move=False)


def test_a_row_says_what_was_measured():
    """Samples of the poor encoder, beside a reference without noise."""
    keys = jax.random.split(jax.random.key(8), 60)
    repeats = [average(program_of(Shifted), NO_MOVES, k, examples()) for k in keys]
    repeats = [repeat._replace(acceptance=np.full(1, 0.5)) for repeat in repeats]
    reference = gradients.Reference(
        exactly(exact_gradient()),
        np.tile(posterior_log_joints(), (3, 1)),
        posterior_log_joints(),
        np.ones(NUM_EXAMPLES),
    )
    row = gradients._row(Case("paper", 1, "immediate"), "mh-hmc", NO_MOVES, repeats, reference)
    compared = compare(np.stack([r.gradients[-1] for r in repeats]), reference.gradients)
    assert (row.squared_bias, row.squared_bias_error) == compared.bias
    # Noise is that of a batch of 128, and here there are six examples.
    assert row.squared_noise == pytest.approx(compared.noise.value * NUM_EXAMPLES / 128)
    xs, proposal = jnp.asarray(examples().xs), Shifted(MODEL)
    under_q = jax.vmap(lambda x: expected_log_joint(MODEL, x, proposal(x)))(xs)
    truth = float(np.mean(under_q - posterior_log_joints()))
    found = [np.mean(r.log_joint[-1] - posterior_log_joints()) for r in repeats]
    assert row.log_joint_bias == pytest.approx(np.mean(found), rel=1e-4)
    assert abs(z_score(found, truth)) < 4
    assert truth < -1
    assert row.effective_sample_size == pytest.approx(3, rel=1e-5)


# ---- the estimators of the library


@functools.cache
def network():
    xs = jax.random.bernoulli(jax.random.key(4), 0.5, (3, 12)).astype(float)
    build = functools.partial(one_layer, mean=np.linspace(0.1, 0.9, 12), num_latents=2)
    model, proposal = eqx.filter_jit(build)(jax.random.key(5), num_hidden=6)
    return model, proposal, Examples(np.asarray(xs), np.array([7, 2, 30]))


def learned(name, kernel, key):
    """Return the flat gradient of theta that an estimator of the library gives."""
    model, proposal, (xs, indices) = network()
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params):
        def one(index, x):
            key_example = jax.random.fold_in(key, index)
            weights = (eqx.combine(params, static), proposal)
            return METHODS[name].estimate(key_example, *weights, x, kernel)[0].theta

        return jnp.mean(jax.vmap(one)(jnp.asarray(indices), jnp.asarray(xs)))

    return -ravel_pytree(jax.jit(jax.grad(loss))(params))[0]


def measured(kernel, key, weighting):
    place = list(WEIGHTINGS).index(weighting)
    return average(network_program(), kernel, key, network()[2]).gradients[place]


@functools.cache
def network_program():
    return make_program(*network()[:2], gradients._weigh)


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
    np.testing.assert_allclose(SCHEDULES[name](number), betas, rtol=1e-6)


def test_every_estimator_has_a_known_schedule_and_weighting():
    for estimator in ESTIMATORS.values():
        assert len(SCHEDULES[estimator.schedule](7)) == 8
        assert estimator.weighting in WEIGHTINGS


# ---- averages over examples


def test_averages_do_not_depend_on_tiles(monkeypatch):
    """Nor on the devices: six examples on eight of them, and one at a time."""
    program, key = program_of(Shifted), jax.random.key(2)
    chains, spent = kernel(), []
    whole = average(program, chains, key, examples(), spent.append)
    single = [
        average(program, chains, key, Examples(*(a[i : i + 1] for a in examples())))
        for i in range(NUM_EXAMPLES)
    ]
    monkeypatch.setattr(evaluation, "_CHAINS_PER_TILE", 1)
    monkeypatch.setattr(jax, "devices", lambda: [None] * 4)
    assert evaluation._tile_size(NUM_EXAMPLES, 3) == 4
    monkeypatch.undo()
    mean = np.mean([one.gradients for one in single], axis=0)
    np.testing.assert_allclose(whole.gradients, mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        whole.log_joint, np.concatenate([one.log_joint for one in single], axis=1), rtol=1e-5
    )
    acceptance = np.mean([one.acceptance for one in single], axis=0)
    np.testing.assert_allclose(whole.acceptance, acceptance, rtol=1e-5)
    assert spent == [NUM_EXAMPLES]


@pytest.mark.parametrize(
    ("num_examples", "num_samples", "size"),
    [(6, 5, 8), (128, 5, 128), (641, 5, 328), (20, 400, 8), (20, 5000, 8), (1, 1, 8)],
)
def test_tiles_are_alike(num_examples, num_samples, size):
    """On eight devices, of which each takes as many examples."""
    assert evaluation._tile_size(num_examples, num_samples) == size


def test_the_figures_of_an_example():
    found = average(program_of(Shifted), kernel(), jax.random.key(2), examples())
    weights, root, equal = found.effective_sample_size
    np.testing.assert_allclose(equal, 5, rtol=1e-5)
    assert np.all((weights >= 1) & (weights < root) & (root < 5))


# ---- the whole measurement


FEW = ("mh-hmc", "ais", "1/2 ais, then hmc, equal weights")


@contextmanager
def fewer():
    """Measure two estimators, and one more for the curve."""
    every = dict(ESTIMATORS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "CURVE", (1, 2))
        for name in every.keys() - set(FEW):
            del ESTIMATORS[name]
        try:
            yield
        finally:
            # In their old order, too.
            ESTIMATORS.clear()
            ESTIMATORS.update(every)


@pytest.fixture
def few():
    with fewer():
        yield


def measure(folder=None, **changes):
    settings = SMALL._replace(**changes)
    xs = jnp.asarray(examples().xs)
    return gradients.measure(
        MODEL, Shifted(MODEL), examples(), xs, settings, folder=folder, show_progress=False
    )


@pytest.fixture(scope="module")
def stored(compiled_quickly, tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured") / "parts"
    with fewer():
        return folder, measure(folder)


def test_a_measurement_has_a_row_for_every_estimator(stored):
    _, outcome = stored
    found = {(row.kernel, row.num_temperatures, row.estimator) for row in outcome.rows}
    wanted = {(kernel, 2, name) for kernel in ("paper", "tuned") for name in FEW}
    assert found == wanted
    assert len(outcome.rows) == len(wanted)
    assert [(row.num_temperatures, row.estimator) for row in outcome.curve] == [
        (1, "mh-hmc"),
        (1, "ais"),
        (1, "1/2 ais, then hmc, equal weights"),
    ]
    for row in (*outcome.rows, *outcome.curve):
        assert np.all(np.isfinite(list(row[5:])))
        # Repeats differ.
        assert row.squared_noise > 1e-4
        assert 1 <= row.effective_sample_size <= 2.001
        assert 0 < row.acceptance <= 1


def test_kernels_cost_the_same(stored):
    paper, tuned = ({r.kernel: r for r in stored[1].rows}[name] for name in ("paper", "tuned"))
    assert (paper.num_transitions, paper.num_leapfrog) == (2, 2)
    assert tuned.num_transitions * tuned.num_leapfrog == 4
    assert paper.gradients == tuned.gradients == 2 * (1 + 4 + 1)


def bench(kind=Shifted, **changes):
    xs, settings = jnp.asarray(examples().xs), SMALL._replace(**changes)
    return Bench(MODEL, kind(MODEL), examples(), xs, settings, None, False)


@pytest.mark.parametrize(("T", "L", "transitions"), [(5, 5, 12), (11, 5, 27), (1, 1, 1), (3, 4, 6)])
def test_shorter_transitions_are_more_of_them(T, L, transitions):
    paper, tuned = (
        gradients._first_kernel(bench(num_leapfrog=L), Case(name, T, "linear"))
        for name in ("paper", "tuned")
    )
    assert (len(paper.step_sizes), paper.num_leapfrog) == (T, L)
    assert (paper.precondition, paper.refresh) == (0, 1)
    assert (len(tuned.step_sizes), tuned.num_leapfrog) == (transitions, 2)
    assert (tuned.precondition, tuned.refresh) == (0.75, 0.6)


def test_a_proposal_without_a_scale_does_not_precondition():
    tuned = gradients._first_kernel(bench(Exact), Case("tuned", 2, "linear"))
    assert (tuned.precondition, tuned.refresh) == (0, 0.6)


def test_a_second_start_reads_what_is_done(monkeypatch, few, stored, tmp_path):
    folder, outcome = stored
    shutil.copytree(folder, tmp_path / "parts")
    (tmp_path / "parts" / "paper-T2-linear.json").write_text('[{"kernel": "pap')
    (tmp_path / "parts" / "tuned-T2-immediate.json").unlink()
    made, original = [], gradients._measure

    def counted(bench, case, *rest):
        made.append(case.name)
        return original(bench, case, *rest)

    monkeypatch.setattr(gradients, "_measure", counted)
    again = measure(tmp_path / "parts")
    assert made == ["paper-T2-linear", "tuned-T2-immediate"]
    assert (again.rows, again.curve) == (outcome.rows, outcome.curve)
    np.testing.assert_array_equal(again.reference.gradients, outcome.reference.gradients)
    assert not list(tmp_path.rglob("*.partial"))


def test_draws_do_not_depend_on_what_else_is_measured(monkeypatch, few, stored):
    monkeypatch.setattr(gradients, "CURVE", ())
    monkeypatch.setattr(gradients, "KERNELS", ("tuned",))
    alone = measure()
    assert alone.rows == [row for row in stored[1].rows if row.kernel == "tuned"]
    assert alone.curve == []


def test_step_sizes_are_tuned_for_the_very_schedule():
    found = gradients._tuned(bench(), Case("paper", 2, "immediate"))
    np.testing.assert_array_equal(found.betas, [0, 1, 1])
    chains = Kernel(found.betas, found.step_sizes, 400, found.num_leapfrog)
    accepted = average(program_of(Shifted), chains, jax.random.key(5), examples()).acceptance
    np.testing.assert_allclose(accepted, 0.6, atol=0.1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_examples": 0}, "num_examples is 0: it must be at least 1"),
        ({"repeats": 2}, "repeats is 2: it must be at least 3"),
        ({"num_samples": 0}, "num_samples is 0: it must be at least 1"),
        ({"temperatures": (5, 0)}, r"temperatures is \(5, 0\): it must be one or more numbers"),
        ({"temperatures": ()}, r"temperatures is \(\): it must be one or more numbers"),
        ({"num_leapfrog": 0}, "num_leapfrog is 0: it must be at least 1"),
        ({"seed": -1}, "seed is -1: it must be from 0 to 4294967295"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, changes, words):
    with pytest.raises(InputError, match=words):
        gradients.run(tmp_path / "no run", SMALL._replace(**changes))
