import functools
import itertools
import sys
from typing import NamedTuple
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from aisle.annealing import Kernel, anneal, schedules
from aisle.errors import InputError
from aisle.experiments import problems
from aisle.learning.estimators import METHODS
from aisle.models import FullNormal, iwae_study, one_layer
from aisle.models.distributions import DiagonalNormal, standard_log_prob
from aisle.models.flow import NUM_COUPLINGS, FlowLayer, FlowNormal
from aisle.models.iwae_study import PROPOSALS
from aisle.models.networks import FullGaussianLayer
from aisle.types import Distribution, Proposal
from measures import z_score

MEAN = np.linspace(0.1, 0.9, 6)
X = jnp.array([0.3, -1.0, 0.8, 1.2, -0.4, 0.6])
LOC = np.array([-2.0, 0.0, 3.0])
FACTOR = np.array([[0.5, 0.0, 0.0], [-1.2, 2.0, 0.0], [0.7, 0.4, 0.1]])

NAMES = ["full", "flow"]
over_names = pytest.mark.parametrize("name", NAMES)
# Odd, so that the halves of a flow are not equal, and as small as it can be.
over_sizes = pytest.mark.parametrize("num_latents", [2, 5])

# The optimiser of the backend changes rounding only, and takes half of the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def initial(name, num_latents):
    """Return a tiny model and its proposal."""
    sizes = {"num_latents": num_latents, "num_hidden": 5}
    build = functools.partial(one_layer, mean=MEAN, proposal=name, **sizes)
    return eqx.filter_jit(build)(jax.random.key(0))


@functools.cache
def moved(name, num_latents):
    """Return a proposal far from its start: every weight and every bias has left it."""

    @jit
    def move(proposal):
        leaves, structure = jax.tree.flatten(proposal)
        keys = jax.random.split(jax.random.key(8), len(leaves))
        sizes = [leaf.shape[-1] ** -0.5 if leaf.ndim == 2 else 0.5 for leaf in leaves]
        leaves = [
            leaf + size * jax.random.normal(key, leaf.shape)
            for leaf, key, size in zip(leaves, keys, sizes, strict=True)
        ]
        return jax.tree.unflatten(structure, leaves)

    return move(initial(name, num_latents)[1])


@functools.cache
def example(name, num_latents):
    return jit(lambda proposal: proposal(X))(moved(name, num_latents))


def draws(function, num_draws=50_000, seed=0):
    keys = jax.random.split(jax.random.key(seed), num_draws)
    return np.asarray(jit(jax.vmap(function))(keys), np.float64)


def push(q, noise):
    """Draw from q with the given standard normal noise."""
    with mock.patch.object(jax.random, "normal", return_value=noise):
        return q.sample(jax.random.key(0))


@over_names
@over_sizes
def test_shapes_and_protocols(name, num_latents):
    proposal, q = moved(name, num_latents), example(name, num_latents)
    z = jax.eval_shape(lambda q: q.sample(jax.random.key(0)), q)
    assert isinstance(proposal, Proposal)
    assert isinstance(q, Distribution)
    assert z.shape == q.scale.shape == (num_latents,)
    assert jax.eval_shape(lambda q, z: q.log_prob(z), q, z).shape == ()
    # Whatever takes a proposal may map over its leaves.
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((proposal, q)))


def test_full_normal_equals_scipy():
    wanted = scipy.stats.multivariate_normal(LOC, FACTOR @ FACTOR.T)
    points = wanted.rvs(20, random_state=0) + np.array([0.0, 1.0, 5.0])
    for is_double, tolerance in ((True, 1e-12), (False, 2e-4)):
        with jax.enable_x64(is_double):
            q = FullNormal(jnp.asarray(LOC, float), jnp.asarray(FACTOR, float))
            found = jit(jax.vmap(q.log_prob))(jnp.asarray(points, float))
        assert found.dtype == (np.float64 if is_double else np.float32)
        np.testing.assert_allclose(found, wanted.logpdf(points), rtol=tolerance)


def test_the_gradients_of_full_normal_equal_those_of_numpyro():
    z = np.array([0.5, -1.0, 2.0])

    def ours(loc, factor, z):
        return FullNormal(loc, factor).log_prob(z)

    def theirs(loc, factor, z):
        return dist.MultivariateNormal(loc, scale_tril=factor).log_prob(z)

    with jax.enable_x64(True):
        found, wanted = (
            jit(jax.grad(f, argnums=(0, 1, 2)))(LOC, FACTOR, z) for f in (ours, theirs)
        )
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.tril(a), np.tril(b), rtol=1e-10)


def test_full_normal_draws_have_its_moments():
    q = FullNormal(jnp.asarray(LOC, jnp.float32), jnp.asarray(FACTOR, jnp.float32))
    centred = draws(q.sample) - LOC
    covariance = FACTOR @ FACTOR.T
    for i, j in itertools.product(range(3), repeat=2):
        assert abs(z_score(centred[:, i] * centred[:, j], covariance[i, j])) < 4
    for i in range(3):
        assert abs(z_score(centred[:, i], 0)) < 4
        assert abs(z_score(centred[:, i] ** 2, q.scale[i] ** 2)) < 4
    np.testing.assert_allclose(q.scale, np.sqrt(np.diag(covariance)), rtol=1e-6)


def test_full_normal_draws_are_reparameterised():
    """z = loc + F n: its derivatives are 1 in loc and n_j in F_ij."""
    q = FullNormal(jnp.asarray(LOC, jnp.float32), jnp.asarray(FACTOR, jnp.float32))
    noise = jnp.array([0.3, -1.0, 2.0])
    _, pull_back = jax.vjp(lambda q: push(q, noise), q)
    (gradient,) = pull_back(jnp.ones(3))
    np.testing.assert_array_equal(gradient.loc, 1)
    np.testing.assert_allclose(gradient.factor, np.tile(noise, (3, 1)), rtol=1e-6)


def test_a_full_layer_reads_the_factor_in_units_of_its_rows():
    layer = moved("full", 5)
    features, base = jit(lambda m: (m.diagonal.network.features(X), m.diagonal(X)))(layer)
    below = np.asarray(layer.below.weight) @ np.asarray(features) + np.asarray(layer.below.bias)
    unit = np.eye(5)
    unit[np.tril_indices(5, -1)] = below
    assert np.all(np.abs(below) > 0.01)
    wanted = np.asarray(base.scale)[:, None] * unit
    np.testing.assert_allclose(example("full", 5).factor, wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(example("full", 5).loc, base.loc, rtol=1e-5)


def flow_by_hand(layer, x, noise):
    """Return z in NumPy, with conditioners that see the features themselves."""

    def network(mlp, a):
        for linear in mlp.layers[:-1]:
            a = np.tanh(np.asarray(linear.weight, float) @ a + np.asarray(linear.bias, float))
        last = mlp.layers[-1]
        return np.asarray(last.weight, float) @ a + np.asarray(last.bias, float), a

    output, features = network(layer.diagonal.network, np.asarray(x, float))
    loc, log_scale = np.split(output, 2)
    u, num_kept = np.asarray(noise, float), len(loc) // 2
    for conditioner in layer.conditioners:
        kept, rest = u[:num_kept], u[num_kept:]
        num_kept = len(rest)
        shift, raw = network(conditioner, np.concatenate([kept, features]))[0].reshape(-1, 2).T
        u = np.concatenate([kept, rest * np.log1p(np.exp(raw) * (np.e - 1)) + shift])[::-1]
    return loc + np.exp(log_scale) * u


class Pushed(NamedTuple):
    """Where noise goes, the density there, that by the change of variables, and the Jacobian."""

    noise: np.ndarray
    z: np.ndarray
    log_prob: np.ndarray
    wanted: np.ndarray
    jacobian: np.ndarray


@functools.cache
def pushed(name, num_latents):
    """Push noise through a proposal in double precision."""

    def one(proposal, noise):
        q = proposal(X.astype(float))
        z, jacobian = push(q, noise), jax.jacfwd(lambda n: push(q, n))(noise)
        wanted = standard_log_prob(noise) - jnp.linalg.slogdet(jacobian)[1]
        return z, q.log_prob(z), wanted, jacobian

    single = moved(name, num_latents)
    with jax.enable_x64(True):
        proposal = jax.tree.map(lambda a: a.astype(float), single)
        noise = np.random.default_rng(0).normal(size=(20, num_latents))
        found = jit(jax.vmap(one, in_axes=(None, 0)))(proposal, noise)
    assert all(a.dtype == np.float64 for a in found)
    return Pushed(noise, *map(np.asarray, found))


@over_sizes
def test_a_flow_equals_one_by_hand(num_latents):
    run = pushed("flow", num_latents)
    wanted = [flow_by_hand(moved("flow", num_latents), X, noise) for noise in run.noise]
    np.testing.assert_allclose(run.z, wanted, rtol=1e-10)


@over_names
@over_sizes
def test_the_density_is_that_of_the_change_of_variables(name, num_latents):
    """Of the map that draws, by its Jacobian."""
    run = pushed(name, num_latents)
    np.testing.assert_allclose(run.log_prob, run.wanted, rtol=1e-11)
    # Each latent has a say in each other one, or in those that follow it.
    share = np.median(np.abs(run.jacobian), axis=0)
    assert np.all((share if name == "flow" else share[np.tril_indices(num_latents)]) > 1e-3)


def test_no_program_leaves_the_compiler():
    """Batched LAPACK may hang, and what calls back, as flowjax's checks do, JAX does not cache."""
    for name in NAMES:

        def gradient(proposal, z):
            return jax.vmap(jax.grad(lambda p, z: p(X).log_prob(z)), in_axes=(None, 0))(proposal, z)

        program = jax.jit(gradient).lower(moved(name, 2), jnp.zeros((3, 2))).as_text()
        assert "tanh" in program
        assert "lapack" not in program and "callback" not in program


def test_the_networks_that_flowjax_draws_are_not_compiled():
    compiled = jit(jax.grad(example("flow", 2).log_prob)).lower(jnp.zeros(2)).compile().as_text()
    assert "tanh" in compiled and "xor" not in compiled


def plane(q):
    """Return points around q with what each stands for, in probability."""
    points, width = np.linspace(-9, 9, 500, retstep=True)
    scale = np.asarray(q.scale, np.float64)
    grid = np.stack(np.meshgrid(points, points), axis=-1).reshape(-1, 2)
    if isinstance(q, FullNormal):
        z = np.asarray(q.loc) + grid * scale
    else:
        z = np.asarray(q.base.loc) + 1.5 * grid * scale
        width *= 1.5
    log_prob = jit(jax.vmap(q.log_prob))(jnp.asarray(z, jnp.float32))
    return z, np.exp(np.asarray(log_prob, np.float64)) * width**2 * np.prod(scale)


@over_names
def test_it_integrates_to_one_and_its_draws_have_its_moments(name):
    q = example(name, 2)
    z, mass = plane(q)
    np.testing.assert_allclose(mass.sum(), 1, rtol=1e-4)
    drawn = draws(q.sample)
    for f in (
        lambda a: a[:, 0],
        lambda a: a[:, 1],
        lambda a: a[:, 0] ** 2,
        lambda a: a[:, 1] ** 2,
        lambda a: a[:, 0] * a[:, 1],
        lambda a: np.sin(2 * a[:, 0] + a[:, 1]),
        lambda a: np.cos(a[:, 0] - 3 * a[:, 1]),
    ):
        assert abs(z_score(f(drawn), np.sum(f(z) * mass))) < 4


def test_a_flow_is_not_a_normal():
    """Of all normals that with the same moments is nearest, and yet it is far."""
    q = example("flow", 2)
    z, mass = plane(q)
    mean = mass @ z
    covariance = (mass[:, None] * (z - mean)).T @ (z - mean)
    normal = scipy.stats.multivariate_normal(mean, covariance).logpdf(z)
    log_prob = jit(jax.vmap(q.log_prob))(jnp.asarray(z, jnp.float32))
    assert mass @ (np.asarray(log_prob, np.float64) - normal) > 0.02


@over_names
def test_it_depends_on_the_observation_beyond_the_diagonal(name):
    """Standardised by what the diagonal layer says, one noise goes to another place for each x."""

    @jit
    def place(proposal, x):
        base = proposal.diagonal(x)
        return (push(proposal(x), jnp.array([0.7, -1.1])) - base.loc) / base.scale

    places = [place(moved(name, 2), x) for x in (X, -X)]
    assert np.abs(places[0] - places[1]).max() > 0.05


@over_names
@over_sizes
def test_it_starts_as_the_diagonal_one_of_the_same_seed(name, num_latents):
    (model, proposal), (usual_model, usual) = (
        initial(label, num_latents) for label in (name, "diagonal")
    )
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(usual_model), strict=True):
        np.testing.assert_array_equal(a, b)

    @jit
    def facts(proposal, x, keys, z):
        q = proposal(x)
        return q.scale, jax.vmap(q.sample)(keys), jax.vmap(q.log_prob)(z)

    keys = jax.random.split(jax.random.key(0), 5)
    z = 2 * jax.random.normal(jax.random.key(1), (5, num_latents))
    for x in (X, 3 * X):
        found, wanted = (facts(p, x, keys, z) for p in (proposal, usual))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def elbo_gradient(proposal, model):
    def loss(proposal, key):
        kernel = Kernel(schedules.linear(1), jnp.ones(1), num_samples=2)
        return METHODS["vae"].estimate(key, model, proposal, X, kernel)[0].phi

    keys = jax.random.split(jax.random.key(0), 8)
    average = jit(jax.grad(lambda p: jnp.mean(jax.vmap(lambda k: loss(p, k))(keys))))
    return average(proposal)


@over_names
def test_gradients_reach_every_weight(name):
    """Those of the ELBO, and those that flow through a draw alone."""
    model, proposal = initial(name, 5)[0], moved(name, 5)

    @jit
    @jax.grad
    def path(proposal):
        return jnp.sum(jnp.linspace(-1, 2, 5) * proposal(X).sample(jax.random.key(1)))

    for gradient in (elbo_gradient(proposal, model), path(proposal)):
        for leaf in jax.tree.leaves(gradient):
            assert np.all(np.isfinite(leaf))
            assert np.mean(np.asarray(leaf) != 0) > 0.99


@over_names
def test_what_starts_at_zero_leaves_it(name):
    model, proposal = initial(name, 5)
    gradient = elbo_gradient(proposal, model)
    if name == "full":
        zeros = [(proposal.below, gradient.below)]
    else:
        pairs = zip(proposal.conditioners, gradient.conditioners, strict=True)
        zeros = [(network.layers[-1], grads.layers[-1]) for network, grads in pairs]
        assert len(zeros) == NUM_COUPLINGS
    for layer, grads in zeros:
        for leaf, slope in zip(jax.tree.leaves(layer), jax.tree.leaves(grads), strict=True):
            np.testing.assert_array_equal(leaf, 0)
            assert np.all(np.asarray(slope) != 0)


def test_no_two_layers_share_their_weights():
    leaves = jax.tree.leaves(initial("flow", 5))
    firsts = [np.ravel(a)[0] / np.abs(a).max() for a in leaves if a.ndim == 2 and np.any(a != 0)]
    assert len(set(firsts)) == len(firsts) == 3 + 3 + NUM_COUPLINGS


def test_the_scale_of_a_flow_is_that_of_its_base():
    base = jit(lambda proposal: proposal.diagonal(X))(moved("flow", 5))
    np.testing.assert_allclose(example("flow", 5).scale, base.scale, rtol=1e-5)


def wide(name):
    """Return a start that is wider than the linear-Gaussian posterior, in every direction."""
    model, x, _ = problems.linear_gaussian()
    exact = model.posterior(x)
    loc, covariance = jnp.asarray(exact.loc) + 0.2, jnp.asarray(exact.covariance_matrix)
    if name == "full":
        return FullNormal(loc, 1.3 * jnp.linalg.cholesky(covariance))
    # The whole strength of these layers would make tails in which no standard error is to be had.
    mild = [
        eqx.tree_at(lambda n: n.layers[-1], c, jax.tree.map(lambda a: 0.4 * a, c.layers[-1]))
        for c in example("flow", 3).conditioners
    ]
    return FlowNormal(DiagonalNormal(loc, 2.2 * jnp.sqrt(jnp.diagonal(covariance))), tuple(mild))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "step_size"), [("full", 0.6), ("flow", 0.4)])
def test_annealing_weights_average_to_the_exact_evidence(name, step_size):
    _, _, problem = problems.linear_gaussian()
    q = wide(name)

    @jax.jit
    @jax.vmap
    def run(key):
        plan = (q, problem.log_joint, schedules.sigmoid(8), jnp.full(8, step_size), 2)
        return anneal(key, *plan, scale=q.scale, refresh=0.6)

    result = run(jax.random.split(jax.random.key(0), 20_000))
    assert 0.4 < result.info.acceptance.mean() < 0.95
    weight = np.exp(np.asarray(result.log_weight, np.float64) - problem.log_normaliser)
    assert 0.2 < weight.std() < 2.5
    assert abs(z_score(weight, 1)) < 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proposal": "cubic"}, "proposal is 'cubic': choose from diagonal, full, flow"),
        ({"num_latents": 1}, "proposal is 'full' but num_latents is 1: use diagonal"),
        (
            {"name": "two-layer"},
            "proposal is 'full' but that of the two-layer model is always diagonal: leave it out, "
            "or use the one-layer model",
        ),
    ],
)
def test_bad_arguments_get_one_clear_line(options, message):
    options = {"name": "one-layer", "num_latents": 2, "num_hidden": 3, "proposal": "full"} | options
    with pytest.raises(InputError) as caught:
        build = functools.partial(iwae_study.build, mean=MEAN, **options)
        eqx.filter_eval_shape(build, key=jax.random.key(0))
    assert str(caught.value) == message


def test_without_flowjax_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "flowjax.bijections", None)
    build = functools.partial(one_layer, mean=MEAN, num_latents=2, num_hidden=3)
    with pytest.raises(InputError) as caught:
        eqx.filter_eval_shape(build, jax.random.key(0), proposal="flow")
    message = "proposal is 'flow' but flowjax is not installed: pip install 'aisle[flow]'"
    assert str(caught.value) == message
    eqx.filter_eval_shape(build, jax.random.key(0), proposal="full")


def test_the_names_are_those_of_the_classes():
    kinds = [type(initial(name, 2)[1]) for name in NAMES]
    assert kinds == [FullGaussianLayer, FlowLayer] == [PROPOSALS[name] for name in NAMES]
