"""Models and guides of NumPyro, against exact answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.example_libraries import stax
from jax.scipy.stats import norm
from numpyro import handlers
from numpyro.infer.autoguide import (
    AutoDAIS,
    AutoDelta,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.util import log_density

import aisle
from aisle.errors import InputError

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(autouse=True)
def as_numpyro_has_it():
    """Let arrays of different ranks meet, as they do inside NumPyro."""
    with jax.numpy_rank_promotion("allow"):
        yield


EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def many(function):
    """Compiled at once, which is quicker than one operation after another."""
    return jax.jit(jax.vmap(function))


def schools(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    with numpyro.plate("schools", 8):
        unit = numpyro.sample("unit", dist.Normal())
        numpyro.sample("y", dist.Normal(mu + tau * unit, jnp.asarray(ERRORS)), obs=y)


def exact_schools(y):
    """log p(y) with mu and the effects integrated out by hand, and tau by quadrature."""

    taus, step = np.linspace(0, 60, 6001, retstep=True)
    covariances = (taus**2)[:, None, None] * np.eye(8) + np.diag(ERRORS**2) + 25
    halves = np.linalg.solve(covariances, np.broadcast_to(y, (6001, 8))[..., None])[..., 0]
    log_normal = -0.5 * (halves @ y + np.linalg.slogdet(2 * np.pi * covariances)[1])
    terms = np.exp(log_normal + np.asarray(norm.logpdf(taus, 0, 5)) + np.log(2))
    # Even in tau, and zero at the far end, so that the trapezoidal rule is exact to rounding.
    return np.log(step * (terms.sum() - terms[0] / 2))


@pytest.mark.slow
def test_eight_schools_have_their_exact_evidence():
    model, proposal = aisle.from_numpyro(schools, example=EFFECTS)
    sampler = aisle.Sampler(num_chains=256, num_temperatures=50)
    other = np.linspace(-20, 30, 8)
    result = aisle.log_likelihood(model, proposal, np.stack([EFFECTS, other]), sampler=sampler)
    exact = [exact_schools(EFFECTS), exact_schools(other)]
    # The mean of 256 weights, whose logarithms vary by less than one here.
    np.testing.assert_allclose(result.log_p, exact, atol=4 / 16)
    assert abs(result.gap.mean) < 0.2


def test_unconstrained_densities_have_the_volume():
    model, _ = aisle.from_numpyro(schools, example=EFFECTS)
    z = {"mu": jnp.array(1.0), "tau": jnp.array(-0.7), "unit": jnp.linspace(-1, 1, 8)}
    tau = np.exp(-0.7)
    prior = norm.logpdf(1, 0, 5) + np.log(2) + norm.logpdf(tau, 0, 5) - 0.7
    assert float(model.log_prior(z)) == pytest.approx(
        float(prior + norm.logpdf(z["unit"]).sum()), rel=1e-5
    )
    likelihood = norm.logpdf(EFFECTS, 1 + tau * z["unit"], ERRORS).sum()
    assert float(model.log_likelihood(jnp.asarray(EFFECTS), z)) == pytest.approx(
        float(likelihood), rel=1e-5
    )
    assert float(model.values(z)["tau"]) == pytest.approx(tau)


def test_samples_come_from_the_densities():
    model, _ = aisle.from_numpyro(schools, example=EFFECTS)
    keys = jax.random.split(jax.random.key(0), 4000)
    zs = many(model.sample_prior)(keys)
    error = 1 / np.sqrt(4000)
    assert abs(np.exp(zs["tau"]).mean() / 5 - np.sqrt(2 / np.pi)) < 4 * 0.6 * error
    xs = many(model.sample_observation)(keys, zs)
    variance = ERRORS**2 + 25 + 25
    assert np.all(np.abs(xs.var(axis=0) / variance - 1) < 4 * 2 * error)


def batch_model(x):
    """A linear VAE of bits, of latents with bounds, and a parameter with one."""
    weight = numpyro.param("weight", lambda key: jax.random.normal(key, (3, 5)))
    scale = numpyro.param("scale", jnp.array(2.0), constraint=dist.constraints.positive)
    with numpyro.plate("examples", len(x)):
        z = numpyro.sample("z", dist.Normal(0, scale).expand([2]).to_event(1))
        share = numpyro.sample("share", dist.Beta(2.0, 3.0))
        inputs = jnp.concatenate([z, share[:, None]], axis=1)
        numpyro.sample("x", dist.Bernoulli(logits=inputs @ weight).to_event(1), obs=x)


def batch_guide(x):
    slope = numpyro.param("slope", jnp.full((5, 2), 0.1))
    with numpyro.plate("examples", len(x)):
        numpyro.sample("z", dist.Normal(x @ slope, 0.5).to_event(1))
        numpyro.sample("share", dist.Beta(2.0, 2.0 + x.sum(1)))


PARAMS = {"scale": jnp.array(0.5), "slope": jnp.linspace(-1, 1, 10).reshape(5, 2)}


@pytest.fixture(scope="module")
def batch():
    example = np.zeros(5, np.float32)
    options = {"example": example, "params": PARAMS, "plate": "examples"}
    return aisle.from_numpyro(batch_model, batch_guide, **options)


@pytest.mark.slow
def test_an_example_is_a_row_of_the_plate(batch):
    model, proposal = batch
    keys = jax.random.split(jax.random.key(1), 3)
    zs = many(model.sample_prior)(keys)
    xs = many(model.sample_observation)(keys, zs)
    assert jax.tree.map(jnp.shape, zs) == {"z": (3, 2), "share": (3,)} and xs.shape == (3, 5)
    params = model.constrained_params()
    assert float(params["scale"]) == pytest.approx(0.5)
    values = {"z": zs["z"], "share": jax.nn.sigmoid(zs["share"])}
    volume = jnp.log(values["share"] * (1 - values["share"])).sum()
    whole = jax.jit(lambda v: log_density(batch_model, (xs,), {}, v)[0])({**params, **values})
    rows = many(lambda x, z: model.log_prior(z) + model.log_likelihood(x, z))(xs, zs)
    assert float(rows.sum() - volume) == pytest.approx(float(whole), rel=1e-5)
    guided = jax.jit(lambda v: log_density(batch_guide, (xs,), {}, v)[0])({**PARAMS, **values})
    rows = many(lambda x, z: proposal(x).log_prob(z))(xs, zs)
    assert float(rows.sum() - volume) == pytest.approx(float(guided), rel=1e-5)


@pytest.mark.slow
def test_draws_of_a_guide_have_its_density(batch):
    q = batch[1](jnp.array([1.0, 0, 1, 1, 0]))
    assert not hasattr(q, "scale")  # Beta has none that is known
    zs = many(q.sample)(jax.random.split(jax.random.key(2), 4000))
    share = jax.nn.sigmoid(zs["share"])
    assert abs(share.mean() - 2 / 7) < 4 * np.sqrt(10 / 49 / 8 / 4000)
    entropy = -many(q.log_prob)(zs)
    exact = 2 * (0.5 + 0.5 * np.log(2 * np.pi) + np.log(0.5))
    beta = dist.Beta(2.0, 5.0)
    exact -= float(jnp.mean(beta.log_prob(share) + jnp.log(share * (1 - share))))
    assert abs(entropy.mean() - exact) < 4 * entropy.std() / np.sqrt(4000)


@pytest.mark.slow
def test_training_takes_both(batch):
    model, proposal = batch
    x = np.asarray(aisle.sample(model, 30))
    fitted = aisle.fit(
        *(model, proposal, x),
        method=aisle.VAE(),
        optimizer=aisle.Adam(0.1),
        num_updates=2,
        batch_size=10,
    )
    before, after = model.constrained_params(), fitted.model.constrained_params()
    assert all(np.any(before[name] != after[name]) for name in ("scale", "weight"))
    assert np.any(fitted.proposal.params["slope"] != PARAMS["slope"])


@pytest.mark.slow
def test_an_autoguide_knows_its_scale():
    guide = AutoNormal(schools, init_scale=0.3)
    with numpyro.handlers.seed(rng_seed=0):
        guide(EFFECTS)
    _, proposal = aisle.from_numpyro(schools, guide, example=EFFECTS)
    q = proposal(jnp.asarray(EFFECTS))
    assert jax.tree.map(jnp.shape, q.scale) == {"mu": (), "tau": (), "unit": (8,)}
    assert all(np.allclose(leaf, 0.3) for leaf in jax.tree.leaves(q.scale))
    assert len(jax.tree.leaves(eqx.filter(proposal, eqx.is_inexact_array))) == 6


def chained(y):
    mu = numpyro.sample("mu", dist.Normal(numpyro.param("start", jnp.array(0.3))))
    tau = numpyro.sample("tau", dist.LogNormal(mu, 0.5))
    numpyro.sample("unit", dist.Normal(mu, tau).expand([8]))


def test_a_guide_may_draw_one_site_given_another():
    _, proposal = aisle.from_numpyro(schools, chained, example=EFFECTS)
    q = proposal(jnp.asarray(EFFECTS))
    z = {"mu": jnp.array(1.0), "tau": jnp.array(-0.7), "unit": jnp.linspace(-1, 1, 8)}
    # The volume of tau = exp(z) and the 1 / tau of a log-normal density cancel out.
    exact = norm.logpdf(1, 0.3) + norm.logpdf(-0.7, 1, 0.5)
    exact += norm.logpdf(z["unit"], 1, np.exp(-0.7)).sum()
    assert float(q.log_prob(z)) == pytest.approx(float(exact), rel=1e-5)
    zs = many(q.sample)(jax.random.split(jax.random.key(4), 4000))
    assert abs(np.corrcoef(zs["mu"], zs["tau"])[0, 1] - 1 / np.sqrt(1.25)) < 4 * 0.2 / np.sqrt(4000)
    slope = jax.grad(lambda p: p(jnp.asarray(EFFECTS)).log_prob(z))(proposal).params["start"]
    assert float(slope) == pytest.approx(0.7, rel=1e-5)


LOC, LOWER = jnp.linspace(-1, 1, 10), 0.2 * jnp.tri(10) + 0.1 * jnp.diag(jnp.arange(10.0))
FACTOR = {"auto_cov_factor": jnp.ones((10, 2)), "auto_scale": jnp.linspace(0.1, 0.3, 10)}


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (AutoMultivariateNormal, {"auto_loc": LOC, "auto_scale_tril": LOWER}),
        pytest.param(
            AutoLowRankMultivariateNormal,
            {"auto_loc": LOC, **FACTOR},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_autoguide_of_one_vector_has_its_density(kind, params):
    guide = kind(schools)
    _, proposal = aisle.from_numpyro(schools, guide, example=EFFECTS, params=params)
    known = handlers.seed(handlers.substitute(guide, params), 3)
    sites = handlers.trace(known).get_trace(EFFECTS)
    z = {name: sites[name]["value"] for name in ("mu", "tau", "unit")}
    z["tau"] = jnp.log(z["tau"])
    law = sites["_auto_latent"]
    q = proposal(jnp.asarray(EFFECTS))
    wanted = float(law["fn"].log_prob(law["value"]))
    assert float(q.log_prob(z)) == pytest.approx(wanted, rel=1e-4)
    zs = many(q.sample)(jax.random.split(jax.random.key(5), 4000))
    assert jax.tree.map(jnp.shape, q.scale) == jax.tree.map(jnp.shape, z)
    spread = jax.tree.map(lambda a, s: np.abs(a.std(0) / s - 1), zs, q.scale)
    assert all(np.all(a < 4 / np.sqrt(8000)) for a in jax.tree.leaves(spread))


def vae(batch):
    """The VAE of NumPyro's examples, with fewer units."""
    batch = batch.reshape(len(batch), -1)
    layers = (stax.Dense(8), stax.Softplus, stax.Dense(6), stax.Sigmoid)
    decode = numpyro.module("decoder", stax.serial(*layers), (len(batch), 2))
    with numpyro.plate("batch", len(batch)):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
        return numpyro.sample("obs", dist.Bernoulli(decode(z)).to_event(1), obs=batch)


def vae_guide(batch):
    batch = batch.reshape(len(batch), -1)
    to_mean, to_scale = (stax.Dense(2), stax.serial(stax.Dense(2), stax.Exp))
    layers = (stax.Dense(8), stax.Softplus, stax.FanOut(2), stax.parallel(to_mean, to_scale))
    encode = numpyro.module("encoder", stax.serial(*layers), (len(batch), 6))
    mean, scale = encode(batch)
    with numpyro.plate("batch", len(batch)):
        return numpyro.sample("z", dist.Normal(mean, scale).to_event(1))


@pytest.mark.slow
def test_the_vae_of_numpyros_examples_has_its_exact_log_likelihood():
    model, proposal = aisle.from_numpyro(vae, vae_guide, example=np.zeros((2, 3)), plate="batch")
    scaled = eqx.tree_at(lambda m: m.params, model, jax.tree.map(lambda a: 2 * a, model.params))
    x = aisle.sample(scaled, 8)
    assert x.shape == (8, 2, 3)
    line = jnp.linspace(-7, 7, 141)
    grid = jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)

    def exact(x):
        joint = jax.vmap(lambda z: scaled.log_prior({"z": z}) + scaled.log_likelihood(x, {"z": z}))
        return jax.scipy.special.logsumexp(joint(grid)) + 2 * jnp.log(0.1)

    sampler = aisle.Sampler(num_chains=64, num_temperatures=300)
    result = aisle.log_likelihood(scaled, proposal, x, sampler=sampler)
    errors = result.log_p - np.asarray(jax.lax.map(exact, x))
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(8) + 0.01 and errors.std() < 0.1


def outside(x):
    numpyro.sample("w", dist.Normal())
    batch_model(x)


@pytest.mark.slow
def test_two_arrays_are_observed_by_two_sites():
    def both(x):
        z = numpyro.sample("z", dist.Normal())
        numpyro.sample("counts", dist.Poisson(jnp.exp(z)).expand([3]), obs=x["b"])
        numpyro.sample("size", dist.Normal(z, 1.0).expand([3]), obs=x["a"])

    # Both of one shape, so that their numbers alone tell them apart.
    example = {"a": np.zeros(3), "b": np.zeros(3, int)}
    model, _ = aisle.from_numpyro(both, example=example)
    assert model.observed == ("size", "counts")
    x = aisle.sample(model, 7)
    assert jax.tree.map(jnp.shape, x) == {"a": (7, 3), "b": (7, 3)}


def of(*lines):
    """Return a model of one latent whose other lines are given."""

    def model(x):
        z = numpyro.sample("z", dist.Normal())
        for line in lines:
            line(z, x)

    return model


def observe(z, x):
    numpyro.sample("x", dist.Normal(z, 1.0), obs=x)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (of(lambda z, x: numpyro.factor("f", z), observe), "site f .* is a factor"),
        (of(lambda z, x: numpyro.sample("k", dist.Poisson(3.0)), observe), "site k .* discrete"),
        (of(lambda z, x: numpyro.sample("x", dist.Normal(z), obs=x**2)), "no site .* observes"),
        (of(observe, lambda z, x: numpyro.sample("y", dist.Normal(), obs=1.0)), "site y .* else"),
        (lambda x: numpyro.sample("x", dist.Normal(), obs=x), "model has no latent site"),
        (
            of(lambda z, x: numpyro.sample("x", dist.Normal(z).expand([2]), obs=x)),
            "draws 2 numbers",
        ),
        (numpyro.handlers.scale(of(observe), 2.0), "site z of the model is scaled"),
    ],
)
def test_models_that_cannot_be_taken(model, words):
    with pytest.raises(InputError, match=words):
        aisle.from_numpyro(model, example=np.array(0.0))


class Unknown(dist.Normal):
    def log_prob(self, value):
        raise NotImplementedError


def without_a_density(y):
    numpyro.sample("mu", Unknown())
    numpyro.sample("tau", dist.LogNormal())
    numpyro.sample("unit", dist.Normal().expand([8]))


def elsewhere(y):
    numpyro.sample("mu", dist.Normal())
    numpyro.sample("tau", dist.Normal())
    numpyro.sample("unit", dist.Normal().expand([8]))


@pytest.mark.parametrize(
    ("guide", "words"),
    [
        (elsewhere, "guide draws tau from another support than the model"),
        (without_a_density, "guide has no density that can be computed at a given point"),
        (lambda y: numpyro.sample("mu", dist.Normal()), r"guide has the latent sites \['mu'\]"),
    ],
)
def test_guides_that_cannot_be_taken(guide, words):
    with pytest.raises(InputError, match=words):
        aisle.from_numpyro(schools, guide, example=EFFECTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (AutoDelta, "site mu of the guide is a point"),
        (AutoDAIS, "which is not one vector of all of them"),
    ],
)
def test_autoguides_that_cannot_be_taken(kind, words):
    with pytest.raises(InputError, match=words):
        aisle.from_numpyro(schools, kind(schools), example=EFFECTS)


@pytest.mark.slow
def test_latents_outside_of_the_plate():
    with pytest.raises(InputError, match="site w of the model is outside of the plate examples"):
        aisle.from_numpyro(outside, example=np.zeros(5), plate="examples")
