"""What every family of likelihoods promises, in double precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.errors import InputError
from aisle.models.likelihoods import FAMILIES, Columns, Likelihood, Units, constants_of
from families import CASES, NUM_EXAMPLES, over_cases, over_few_cases
from measures import z_score


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def is_units(node):
    return isinstance(node, Units)


def disturbed(name):
    """Return a case with a likelihood and an output that are not those of its fit."""
    likelihood, output = CASES[name].fit(CASES[name].columns)
    random = np.random.default_rng(1)

    def moved(leaf):
        return leaf if is_units(leaf) else leaf + 0.3 * random.normal(size=leaf.shape)

    likelihood = jax.tree.map(moved, likelihood, is_leaf=is_units)
    return CASES[name], likelihood, jnp.asarray(output + 0.5 * random.normal(size=output.shape))


def log_probs(likelihood, xs, output):
    """Return the log-densities of examples, as an array of NumPy's."""
    function = eqx.filter_jit(eqx.filter_vmap(likelihood.log_probs, in_axes=(0, None)))
    return np.asarray(function(jnp.asarray(xs), jnp.asarray(output)))


def is_discrete(law):
    return hasattr(law, "logpmf")


def expected(laws, xs):
    def one(law, x):
        return law.logpmf(x) if is_discrete(law) else law.logpdf(x)

    return np.stack([one(law, x) for law, x in zip(laws, xs.T, strict=True)], axis=1)


def test_every_family_has_a_case():
    kinds = {type(case.fit(case.columns)[0]) for case in CASES.values()}
    assert kinds == {*FAMILIES.values(), Columns}


@over_few_cases
def test_shapes_and_the_protocol(name):
    case, likelihood, output = disturbed(name)
    assert isinstance(likelihood, Likelihood)
    num_features = case.columns.shape[1]
    assert likelihood.num_features == num_features
    assert likelihood.num_outputs == len(output)
    x = jnp.asarray(case.columns[0])
    for values in (
        likelihood.log_probs(x, output),
        likelihood.sample(jax.random.key(0), output),
        likelihood.mean(output),
    ):
        assert values.shape == (num_features,)
        assert values.dtype == output.dtype
    assert isinstance(likelihood.support, str)


@over_cases
def test_densities_equal_those_of_scipy(name):
    case, likelihood, output = disturbed(name)
    found = log_probs(likelihood, case.columns, output)
    laws = case.laws(likelihood, output)
    np.testing.assert_allclose(found, expected(laws, case.columns), rtol=1e-8, atol=1e-8)
    total = likelihood.log_prob(jnp.asarray(case.columns[0]), output)
    np.testing.assert_allclose(total, found[0].sum(), rtol=1e-12)


@over_few_cases
def test_densities_are_normalised(name):
    """Each feature, on a grid of its own, while the others stay where they are."""
    case, likelihood, output = disturbed(name)
    for feature, law in enumerate(case.laws(likelihood, output)):
        points, weights = grid(law, case.columns[:, feature])
        xs = np.repeat(case.columns[:1], len(points), axis=0)
        xs[:, feature] = points
        is_in = likelihood.is_supported(xs).all(axis=1)
        densities = np.exp(log_probs(likelihood, xs, output)[is_in, feature])
        np.testing.assert_allclose(np.sum(densities * weights[is_in]), 1, rtol=1e-6)


def grid(law, column):
    """Return points, and their weights in an integral or a sum."""
    if is_discrete(law):
        return np.arange(3000.0), np.ones(3000)
    if column.min() > 0 and column.max() < 1:
        steps, width = np.linspace(-60, 30, 40_001, retstep=True)
        points = 1 / (1 + np.exp(-steps))
        return points, points * (1 - points) * width
    steps, width = np.linspace(-25, 25, 20_001, retstep=True)
    return column.mean() + column.std() * np.sinh(steps), column.std() * np.cosh(steps) * width


@over_few_cases
def test_gradients_equal_finite_differences(name):
    case, likelihood, output = disturbed(name)
    x = jnp.asarray(case.columns[1])
    learned, constants = eqx.partition(
        likelihood, jax.tree.map(lambda n: not is_units(n), likelihood, is_leaf=is_units)
    )
    point = (learned, output)

    @jax.jit
    def value(point):
        return eqx.combine(point[0], constants).log_prob(x, point[1])

    gradient = jax.jit(jax.grad(value))(point)
    random = np.random.default_rng(2)
    for _ in range(4):
        step = jax.tree.map(lambda a: jnp.asarray(1e-5 * random.normal(size=a.shape)), point)
        up, down = (jax.tree.map(lambda a, d, s=s: a + s * d, point, step) for s in (1, -1))
        wanted = (value(up) - value(down)) / 2
        dots = jax.tree.map(lambda g, d: jnp.vdot(g, d), gradient, step)
        _, forward = jax.jvp(value, (point,), (step,))
        np.testing.assert_allclose(sum(jax.tree.leaves(dots)), wanted, rtol=1e-6, atol=1e-11)
        np.testing.assert_allclose(forward, wanted, rtol=1e-6, atol=1e-11)


@over_few_cases
def test_no_gradient_reaches_the_units(name):
    case, likelihood, output = disturbed(name)
    x = jnp.asarray(case.columns[0])
    gradient = jax.grad(lambda m: m.log_prob(x, output) + jnp.sum(m.standardise(x)))(likelihood)
    for node in jax.tree.leaves(gradient, is_leaf=is_units):
        leaves = jax.tree.leaves(node)
        assert all(np.all(np.asarray(a) == 0) for a in leaves) == is_units(node)


@over_few_cases
def test_samples_have_their_law(name):
    """By their means, by how many lie below three quantiles, and pairwise."""
    case, likelihood, output = disturbed(name)
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: likelihood.sample(k, output)))(keys))
    assert likelihood.is_supported(draws).all()
    laws = case.laws(likelihood, output)
    shares = np.stack([law.cdf(draw) for law, draw in zip(laws, draws.T, strict=True)], axis=1)
    for law, draw in zip(laws, draws.T, strict=True):
        for level in (0.1, 0.5, 0.9):
            point = np.quantile(draw, level)
            point = np.floor(point) if is_discrete(law) else point + 0.01 * draw.std()
            share = float(law.cdf(point))
            error = np.sqrt(share * (1 - share) / len(draw))
            assert abs(np.mean(draw <= point) - share) <= 4 * error
        is_tame = name != "student-t"
        assert not is_tame or abs(z_score(draw, law.mean())) < 4
    for i in range(draws.shape[1] - 1):
        pair = shares[:, i : i + 2] - shares[:, i : i + 2].mean(axis=0)
        assert abs(z_score(pair.prod(axis=1), 0)) < 4


@over_cases
def test_the_mean_is_that_of_the_law(name):
    case, likelihood, output = disturbed(name)
    wanted = [law.mean() for law in case.laws(likelihood, output)]
    np.testing.assert_allclose(likelihood.mean(output), wanted, rtol=1e-5)


@over_cases
def test_values_outside_the_support_are_refused(name):
    case, likelihood, _ = disturbed(name)
    assert likelihood.is_supported(case.columns).all()
    for value in case.wrong:
        columns = case.columns.copy()
        columns[3, 1] = value
        is_wrong = ~likelihood.is_supported(columns)
        assert np.argwhere(is_wrong).tolist() == [[3, 1]], value
        # The highest code of a column is what it was fitted to, and NaN is missing.
        if "units" in name or np.isnan(value) or (name == "categorical" and value == 7):
            continue
        with pytest.raises(InputError, match=rf"has the value {value:g} in column \d, but a "):
            case.fit(columns)


@over_cases
@pytest.mark.parametrize("is_missing", [False, True])
def test_a_fit_starts_from_the_independent_model(name, is_missing):
    """Each column has the law that is fitted to it alone, and to what of it was observed."""
    case = CASES[name]
    columns = case.columns.copy()
    is_hidden = np.random.default_rng(3).random(columns.shape) < (0.3 if is_missing else 0)
    columns[is_hidden] = np.nan
    likelihood, output = case.fit(columns)
    fits = case.marginal if isinstance(case.marginal, tuple) else [case.marginal] * len(columns.T)
    marginals = [fit(c[~np.isnan(c)]) for fit, c in zip(fits, columns.T, strict=True)]
    found = log_probs(likelihood, case.columns, output)
    tolerance = 2e-3 if name == "student-t" else 1e-6
    np.testing.assert_allclose(
        found, expected(marginals, case.columns), rtol=tolerance, atol=tolerance
    )


@over_few_cases
def test_a_missing_entry_can_be_zero_and_left_out(name):
    case, likelihood, output = disturbed(name)
    is_observed = np.arange(case.columns.shape[1]) != 1
    x = jnp.asarray(np.where(is_observed, case.columns[0], 0))

    def value(output):
        return jnp.sum(jnp.where(is_observed, likelihood.log_probs(x, output), 0))

    found, gradient = jax.value_and_grad(value)(output)
    full = jnp.asarray(case.columns[0])
    wanted = jnp.sum(likelihood.log_probs(full, output)[np.flatnonzero(is_observed)])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert np.all(np.isfinite(gradient)) and np.any(np.asarray(gradient) == 0)


@over_few_cases
def test_what_an_encoder_sees_is_of_order_one_and_zero_where_it_is_missing(name):
    case, likelihood, _ = disturbed(name)
    seen = jax.vmap(constants_of(likelihood).standardise)(jnp.asarray(case.columns))
    assert seen.shape[0] == NUM_EXAMPLES
    assert np.abs(seen).mean() < 5
    np.testing.assert_array_equal(seen, jax.vmap(likelihood.standardise)(case.columns))
    assert np.all(np.std(seen, axis=0)[np.std(seen, axis=0) > 0] > 0.1)
    x = case.columns[0].copy()
    x[1] = np.nan
    hidden = np.asarray(likelihood.standardise(jnp.asarray(x)))
    assert np.all(np.isfinite(hidden))
    is_changed = hidden != np.asarray(likelihood.standardise(jnp.asarray(case.columns[0])))
    assert np.all(hidden[is_changed] == 0)
    assert is_changed.sum() == (case.columns[0, 1] != 0 or name == "categorical")


@over_cases
def test_whole_numbers_are_taken_as_real_ones(name):
    case, likelihood, output = disturbed(name)
    whole = np.round(case.columns[0]).astype(np.int32)
    for method in (lambda x: likelihood.log_probs(x, output), likelihood.standardise):
        found, wanted = method(jnp.asarray(whole)), method(jnp.asarray(whole.astype(float)))
        np.testing.assert_array_equal(found, wanted)


@over_few_cases
def test_extreme_outputs_have_finite_gradients_in_single_precision(name):
    case, likelihood, output = disturbed(name)
    with jax.enable_x64(False):
        single = jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float32), likelihood)
        x = jnp.asarray(case.columns[0], jnp.float32)
        for shift in (-20.0, 20.0):
            extreme = jnp.asarray(np.asarray(output) + shift, jnp.float32)
            value, gradient = jax.value_and_grad(single.log_prob, argnums=1)(x, extreme)
            assert np.isfinite(value) and np.all(np.isfinite(gradient))


@pytest.mark.parametrize("name", ["gaussian", "gaussian, scale of z", "student-t"])
@pytest.mark.parametrize("factor", [1e-3, 250.0])
def test_a_change_of_units_changes_each_density_by_its_factor(name, factor):
    case = CASES[name]
    columns, random = case.columns, np.random.default_rng(4)
    first, output = case.fit(columns)
    second, _ = case.fit(factor * columns)
    output = output + random.normal(size=output.shape)
    found = log_probs(second, factor * columns, output)
    np.testing.assert_allclose(
        found, log_probs(first, columns, output) - np.log(factor), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        second.standardise(factor * jnp.asarray(columns[0])),
        first.standardise(jnp.asarray(columns[0])),
        rtol=1e-9,
        atol=1e-9,
    )
