"""log p(x) of examples in their contexts, in both directions, against what is known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle import HMC, Ladder, LinearGaussian, Split, log_likelihood, sample_posterior, schedules
from aisle.context import Context, InContext
from aisle.errors import InputError
from aisle.evaluation import examples, pilot, refitting, task
from contexts import MODEL, Encoder, draw_contexts, draw_observations, exact_log_p, law, row
from evaluating import chosen
from measures import z_score

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")

NUM_EXAMPLES = 1500
CONTEXTS = draw_contexts(NUM_EXAMPLES)
XS = draw_observations(CONTEXTS)
LADDER = Ladder(schedules.linear(4), jnp.full(4, 0.5), HMC(2, 0.6, 1.0), last_move=False)


def part(number, contexts=CONTEXTS):
    return jax.tree.map(lambda a: a[:number], contexts)


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that are walked."""
    found, walk = [], task.walk

    def recorded(job, *args, **kwargs):
        found.append(job)
        return walk(job, *args, **kwargs)

    monkeypatch.setattr(task, "walk", recorded)
    return found


@pytest.mark.slow
def test_weights_average_to_the_closed_form_of_what_is_observed():
    encoder = Encoder(MODEL, 1.3)
    settings = chosen(num_temperatures=4, importance_samples=5)
    result = log_likelihood(MODEL, encoder, XS, CONTEXTS, **settings)
    errors = result.log_p - exact_log_p(XS, CONTEXTS)
    assert abs(z_score(np.exp(errors), 1)) < 4
    assert z_score(errors, 0) < -3
    assert errors.mean() > -0.3
    # Where nothing is observed, the prior is the posterior and log p(x) is 0.
    is_empty = ~CONTEXTS.is_observed.any(axis=1)
    assert is_empty.any()
    assert abs(result.log_p[is_empty].mean()) < 0.2
    assert result.importance.bound.mean == pytest.approx(exact_log_p(XS, CONTEXTS).mean(), abs=0.3)


def simulate(key, context):
    key_z, key_x, *_ = jax.random.split(key, 4)
    own = MODEL.given(context)
    return own.sample_observation(key_x, own.sample_prior(key_z))


@jax.jit
def both_ways(keys, contexts, width):
    def one(key, context):
        shared = (MODEL, Encoder(MODEL, width), LADDER, 1)
        numbers = examples.both_ways(shared, key, InContext(None, context))
        return numbers["up"][0], numbers["down"][0], simulate(key, context)

    return jax.vmap(one)(keys, contexts)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_both_directions_average_to_the_closed_form(direction):
    """Each of a simulated example in a context; w and 1/w have light tails by the right q."""
    contexts = draw_contexts(4000, seed=3)
    keys = jax.random.split(jax.random.key(1), 4000)
    width = 1.3 if direction == "up" else 1.0
    up, down, xs = both_ways(keys, jax.tree.map(jnp.asarray, contexts), width)
    errors = np.asarray(up if direction == "up" else down, float) - exact_log_p(xs, contexts)
    assert abs(z_score(np.exp(errors if direction == "up" else -errors), 1)) < 4
    assert (z_score(errors, 0) < -4) if direction == "up" else (z_score(errors, 0) > 4)


@pytest.mark.usefixtures("untuned")
def test_the_certificate_speaks_of_data_in_the_contexts_of_real_ones(jobs):
    """Means of log p(x) of simulated data are negative entropies, which differ by the masks."""
    contexts = draw_contexts(50, seed=5)
    settings = chosen(num_temperatures=20, num_chains=4, num_simulated=800)
    result = log_likelihood(MODEL, None, draw_observations(contexts), contexts, **settings)
    laws = [law(row(contexts, i)) for i in range(50)]
    wanted = np.mean([0 if own is None else -own.entropy() for own in laws])
    whole = -law(Context(np.ones(4, bool), np.zeros(1))).entropy()
    lower, upper = result.bdmc.lower, result.bdmc.upper
    assert abs(lower.mean - wanted) < 4 * lower.standard_error + result.bdmc.gap.mean
    assert abs(upper.mean - wanted) < 4 * upper.standard_error + result.bdmc.gap.mean
    assert abs(whole - wanted) > 1
    # Each real context serves as often as any other.
    (job,) = [job for job in jobs if job.function is examples.both_ways]
    assert job.xs.x is None
    found = np.sort(job.xs.context.condition.ravel())
    np.testing.assert_array_equal(found, np.sort(np.tile(contexts.condition.ravel(), 16)))
    assert np.any(job.xs.context.condition[:50] != contexts.condition)
    for i in range(50):
        place = np.flatnonzero(contexts.condition[:, 0] == job.xs.context.condition[i, 0])
        np.testing.assert_array_equal(job.xs.context.is_observed[i], contexts.is_observed[place[0]])


@pytest.mark.slow
@pytest.mark.usefixtures("untuned")
def test_more_simulated_examples_leave_the_first_in_their_contexts(jobs):
    for number in (10, 40):
        settings = chosen(num_simulated=number)
        log_likelihood(MODEL, None, XS[:30], part(30), **settings)
    first, second = (job.xs.context for job in jobs if job.function is examples.both_ways)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:10]), first, second)


@pytest.mark.slow
@pytest.mark.usefixtures("untuned")
def test_missing_entries_are_as_if_they_had_never_been_there():
    """With the same mask for all, the same chains as those of the smaller model."""
    mask = np.array([True, False, True, True])
    plain = LinearGaussian(MODEL.weight, MODEL.bias, MODEL.log_sigma)
    small = LinearGaussian(MODEL.weight[mask], MODEL.bias[mask], MODEL.log_sigma)
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    settings = chosen(num_temperatures=5)
    wanted = log_likelihood(small, None, x[:, mask], **settings)
    gone = np.where(mask, x, np.nan)
    masks = np.broadcast_to(mask, x.shape)
    found = log_likelihood(plain, None, gone, Context(masks), **settings)
    np.testing.assert_allclose(found.log_p, wanted.log_p, rtol=1e-4, atol=1e-4)
    # What stands there does not matter, and a split may hold the context.
    split = Split(x, context=Context(masks))
    again = log_likelihood(plain, None, split, **settings)
    np.testing.assert_array_equal(again.log_p, found.log_p)


@pytest.mark.slow
def test_the_pilot_and_the_refitting_see_the_contexts(monkeypatch):
    pilots = []
    tune = pilot.tune

    def recorded(key, model, proposal, xs, *args):
        pilots.append(xs)
        return tune(key, model, proposal, xs, *args)

    monkeypatch.setattr(pilot, "tune", recorded)
    settings = chosen(refit=2)
    log_likelihood(MODEL, Encoder(MODEL, 1.3), XS[:20], part(20), **settings)
    ((x, context),) = pilots
    np.testing.assert_array_equal(np.isnan(x), ~np.asarray(context.is_observed))
    assert set(np.ravel(context.condition)) == set(np.ravel(part(20).condition))
    log_likelihood(
        MODEL, None, XS[:20], part(20), pilot_x=Split(XS[:5], context=part(5)), **chosen()
    )
    np.testing.assert_array_equal(pilots[1].context.condition[:5], part(5).condition)


def test_refitting_takes_whole_contexts_at_random():
    found = refitting._some(jax.random.key(0), CONTEXTS)
    places = [np.flatnonzero(CONTEXTS.condition[:, 0] == c)[0] for c in np.ravel(found.condition)]
    np.testing.assert_array_equal(found.is_observed, CONTEXTS.is_observed[places])
    assert len(places) == refitting.BATCH_SIZE
    assert len(set(places)) > refitting.BATCH_SIZE / 2
    assert refitting._some(jax.random.key(0), None) is None


@pytest.mark.slow
def test_draws_are_of_the_posterior_of_what_was_observed():
    contexts = Context(np.array([[True, False, True, False]]), np.float32([[0.7]]))
    x = np.array([[1.0, np.nan, 0.5, np.nan]], np.float32)
    draws = sample_posterior(MODEL, Encoder(MODEL, 1.3), x, contexts, num_draws=3000)
    draws = np.asarray(draws, float)[0]
    exact = MODEL.given(row(contexts, 0)).posterior(jnp.asarray(x[0]))
    mean, covariance = np.asarray(exact.mean, float), np.asarray(exact.covariance_matrix, float)
    for i in range(2):
        assert abs(z_score(draws[:, i], mean[i])) < 4
        for j in range(i + 1):
            product = (draws[:, i] - mean[i]) * (draws[:, j] - mean[j])
            assert abs(z_score(product, covariance[i, j])) < 4


@pytest.mark.usefixtures("untuned")
def test_a_folder_is_of_one_context(tmp_path):
    settings = chosen(out=tmp_path / "out")
    first = log_likelihood(MODEL, None, XS[:5], part(5), **settings)
    again = log_likelihood(MODEL, None, XS[:5], part(5), **settings)
    np.testing.assert_array_equal(first.log_p, again.log_p)
    other = part(5)._replace(condition=part(5).condition + 1)
    with pytest.raises(InputError, match="is an evaluation with other examples"):
        log_likelihood(MODEL, None, XS[:5], other, **settings)


def test_what_does_not_go_together_is_refused():
    plain = LinearGaussian(MODEL.weight, MODEL.bias, MODEL.log_sigma)
    with pytest.raises(InputError, match=r"^context is Context.*: a LinearGaussian takes"):
        log_likelihood(plain, None, XS[:5], part(5), **chosen())
    with pytest.raises(InputError, match=r"has no given\(context\), but the examples have a con"):
        log_likelihood(MODEL, lambda x: Encoder(MODEL, 1.0)(x), XS[:5], part(5), **chosen())
    with pytest.raises(InputError, match=r"^context has an array of shape \(6, 4\)"):
        log_likelihood(MODEL, None, XS[:5], part(6), **chosen())
    with pytest.raises(InputError, match=r"x has the value nan in row \d+: .*has_missing=True"):
        log_likelihood(plain, None, XS[:20], **chosen())
