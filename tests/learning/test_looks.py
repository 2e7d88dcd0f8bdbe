import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.data import Split
from aisle.errors import InputError
from aisle.learning import AIS, VAE, EarlyStopping, Look, Validation
from aisle.learning.looks import Bounder
from aisle.learning.methods import importance_bound
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.types import Scalar
from measures import z_score

# With one latent the posterior is a diagonal normal, and so can be a proposal.
MODEL = LinearGaussian(jnp.array([[1.0], [-0.5], [2.0]]), jnp.array([0.2, 0.0, -1.0]), jnp.log(0.8))
X = jnp.array([1.2, -0.4, 0.9])
XS = X[None] + jnp.linspace(-2, 2, 7)[:, None] * jnp.array([[1.0, -0.3, 0.5]])


class Posterior(eqx.Module):
    """The exact posterior, shifted by a part of its scale and widened."""

    shift: Scalar
    wider: Scalar

    def __call__(self, x):
        exact = MODEL.mean_field_posterior(x)
        return DiagonalNormal(exact.loc + self.shift * exact.scale, self.wider * exact.scale)


EXACT = Posterior(jnp.array(0.0), jnp.array(1.0))
# All weights are bounded, as it is wider than the target.
WRONG = Posterior(jnp.array(0.6), jnp.array(1.8))


@eqx.filter_jit
def bounds_of(key, proposal, xs, num_samples):
    keys = jax.random.split(key, len(xs))
    bound = lambda k, x: importance_bound(k, MODEL, proposal, x, num_samples)  # noqa: E731
    return jax.vmap(bound)(keys, xs)


@pytest.fixture(scope="module")
def bounds():
    """Bounds of 8,000 copies of one example, by K."""
    copies = jnp.tile(X, (8000, 1))
    return {k: np.asarray(bounds_of(jax.random.key(0), WRONG, copies, k), float) for k in (1, 16)}


@pytest.mark.slow
def test_one_sample_gives_the_evidence_lower_bound(bounds):
    divergence = -np.log(1.8) + (1.8**2 + 0.6**2 - 1) / 2
    assert abs(z_score(bounds[1], float(MODEL.log_marginal(X)) - divergence)) < 4


@pytest.mark.slow
def test_the_bound_comes_up_to_the_truth_from_below(bounds):
    truth = float(MODEL.log_marginal(X))
    gaps = [truth - bounds[k].mean() for k in (1, 16)]
    assert all(z_score(bounds[k], truth) < -4 for k in (1, 16))
    assert 0 < 8 * gaps[1] < gaps[0]


@pytest.mark.slow
def test_the_exponential_is_unbiased(bounds):
    for k in (1, 16):
        assert abs(z_score(np.exp(bounds[k] - float(MODEL.log_marginal(X))), 1)) < 4


@pytest.mark.slow
def test_the_exact_proposal_gives_the_exact_answer():
    found = bounds_of(jax.random.key(0), EXACT, XS, 4)
    np.testing.assert_allclose(found, jax.vmap(MODEL.log_marginal)(XS), rtol=1e-5, atol=1e-5)


def bound(x, method=VAE(), proposal=WRONG, seed=0):  # noqa: B008
    return Bounder(x, jax.random.key(seed))(method, (MODEL, proposal), method.init())


@pytest.mark.slow
def test_a_bound_is_the_mean_of_those_of_the_examples():
    """The key of each example is of its number, so that other examples do not change its draws."""
    xs = np.asarray(XS)
    found, exact = bound(xs), float(np.mean(jax.vmap(MODEL.log_marginal)(XS)))
    assert found.num_examples == 7
    assert found.standard_error > 0
    assert exact - 0.2 < found.mean < exact + 0.05
    keys = [jax.random.fold_in(jax.random.key(0), number) for number in range(7)]
    one = jax.jit(lambda k, x: importance_bound(k, MODEL, WRONG, x, 64))
    wanted = [float(one(k, x)) for k, x in zip(keys, xs, strict=True)]
    assert found.mean == pytest.approx(np.mean(wanted), rel=1e-5)
    rest = bound(Split(xs, np.array([2, 5])))
    assert rest.mean == pytest.approx(np.mean([wanted[2], wanted[5]]), rel=1e-5)
    assert bound(xs, seed=1).mean != found.mean


def test_the_bound_of_chains_is_by_chains():
    """An encoder five deviations off: samples of it say little, and chains leave it behind."""
    far = Posterior(jnp.array(5.0), jnp.array(1.0))
    truth = float(np.mean(jax.vmap(MODEL.log_marginal)(XS)))
    by_samples, by_chains = (bound(np.asarray(XS), m, far).mean for m in (VAE(), AIS(1, 4)))
    assert by_samples < truth - 2
    assert truth - 0.3 < by_chains < truth + 0.1


def test_bounds_are_so_seldom_that_they_cost_a_tenth_of_training():
    bounder = Bounder(np.zeros((1000, 3), np.float32), jax.random.key(0))
    # 512 examples of 64 samples, and of 4 chains with 49 moves of 2 steps.
    assert bounder.interval(VAE(), 512 * 64) == 10
    assert bounder.interval(VAE(), 512 * 640) == 1
    assert bounder.interval(AIS(), 512 * 4 * 99) == 10


def look(num_since_best, is_last_phase=True):
    return Look(1, 1.0, 0, is_last_phase, 0.0, None, num_since_best, None, None)


def test_early_stopping_waits_for_its_patience_and_for_the_last_phase():
    stop = EarlyStopping(3)
    answers = [stop(look(number), None) for number in range(5)]
    assert answers == [False, False, False, True, True]
    assert not stop(look(9, is_last_phase=False), None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EarlyStopping(0), "patience is 0: it must be at least 1"),
        (lambda: Validation(XS, every=0), "every is 0: it must be at least 1"),
        (lambda: Validation(XS, keep="first"), "keep is 'first': choose from best, last"),
    ],
)
def test_bad_values_get_one_clear_line(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message
