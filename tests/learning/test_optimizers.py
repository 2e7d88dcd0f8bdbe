import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from aisle.errors import InputError
from aisle.learning import Adam, Muon, rates
from aisle.learning.optimizers import Optimizer, as_optimizer, orthogonalised

# A new schedule of the rate joins here.
SCHEDULES = [rates.iwae_study, rates.cosine, rates.constant]


def make(kind=Adam, rate=1e-3, schedule=rates.constant):
    return kind(rate, schedule).build(50, 5)


def one_step(transformation, params, grads):
    return jax.jit(transformation.update)(grads, transformation.init(params), params)[0]


@pytest.mark.parametrize("updates_per_epoch", [1, 7, 468])
def test_the_study_schedule_changes_exactly_at_its_boundaries(updates_per_epoch):
    rate = rates.iwae_study(1e-3, 3280 * updates_per_epoch, updates_per_epoch)
    first = 0
    for i in range(8):
        after = first + 3**i * updates_per_epoch
        wanted = 1e-3 * 10 ** (-i / 7)
        np.testing.assert_allclose([rate(first), rate(after - 1)], wanted, rtol=1e-5)
        first = after
    assert first == 3280 * updates_per_epoch
    np.testing.assert_allclose([rate(first), rate(10 * first)], 1e-4, rtol=1e-5)


def test_the_study_schedule_does_not_depend_on_the_length_of_training():
    short, long = (rates.iwae_study(1e-3, n, 3) for n in (2, 5000))
    updates = jnp.arange(200)
    np.testing.assert_array_equal(jax.vmap(short)(updates), jax.vmap(long)(updates))


def test_cosine_ends_at_zero():
    rate = rates.cosine(0.02, 50, 5)
    np.testing.assert_allclose([rate(0), rate(25)], [0.02, 0.01], rtol=1e-6)
    assert rate(49) > 0
    np.testing.assert_allclose([rate(50), rate(51)], 0, atol=1e-9)


def test_constant_is_constant():
    rate = rates.constant(0.02, 50, 5)
    assert [float(rate(n)) for n in (0, 49, 50, 10_000)] == [0.02] * 4


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_adam_follows_the_schedule(schedule):
    """With a constant gradient each step of Adam is rate x g / (|g| + epsilon)."""
    adam, params = make(Adam, 0.01, schedule), jnp.zeros(2)
    rate, state = schedule(0.01, 50, 5), adam.init(params)
    grads, step = jnp.array([1e-4, -3.0]), jax.jit(adam.update)
    for update in range(50):
        changes, state = step(grads, state, params)
        wanted = -rate(update) * jnp.array([0.5, -3 / 3.0001])
        np.testing.assert_allclose(changes, wanted, rtol=1e-4, atol=1e-8)


def polynomial_of_singular_values(matrix):
    """Muon's definition, by singular values in double precision."""
    u, singular, v = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    singular /= np.sum(singular**4) ** 0.25
    for _ in range(3):
        singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
    return u * singular @ v


@pytest.mark.parametrize("shape", [(5, 2), (2, 5), (30, 40)], ids=str)
def test_muon_makes_the_singular_values_of_averaged_gradients_alike(shape):
    """With Nesterov's momentum, and sqrt(outputs / inputs) where there are more outputs."""
    weight, *all_grads = jax.random.normal(jax.random.key(0), (4, *shape))
    muon, average = make(Muon, 0.1), 0.0
    state, step = muon.init(weight), jax.jit(muon.update)
    for grads in all_grads:
        changes, state = step(grads, state, weight)
        average = 0.95 * average + grads
        wanted = polynomial_of_singular_values(0.95 * average + grads)
        wanted *= -0.1 * max(1, shape[0] / shape[1]) ** 0.5
        np.testing.assert_allclose(changes, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_muon_does_not_depend_on_the_scale_of_gradients(scale):
    matrix = jax.random.normal(jax.random.key(0), (3, 4))
    np.testing.assert_allclose(orthogonalised(scale * matrix), orthogonalised(matrix), rtol=1e-4)


def test_muon_leaves_a_matrix_without_gradient_alone():
    np.testing.assert_array_equal(orthogonalised(jnp.zeros((3, 4))), 0)


def test_muon_leaves_vectors_to_adam_at_a_twentieth_of_the_rate():
    layer = eqx.nn.Linear(3, 4, key=jax.random.key(0))
    # As the trainer has it: what is not an array is None.
    params = eqx.filter((layer, jnp.tanh), eqx.is_inexact_array)
    grads = jax.tree.map(lambda a: jax.random.normal(jax.random.key(1), a.shape), params)
    changes = one_step(make(Muon, 0.1), params, grads)[0]
    # Nesterov's momentum for both.
    wanted = one_step(optax.nadam(0.005), layer.bias, grads[0].bias)
    np.testing.assert_allclose(changes.bias, wanted, rtol=1e-4)
    assert np.ptp(jnp.abs(changes.weight)) > 0.1 * np.max(jnp.abs(changes.weight))


@pytest.mark.parametrize("kind", [Adam, Muon])
def test_decay_shrinks_matrices_by_a_share_of_the_rate_and_nothing_else(kind):
    params = eqx.filter(eqx.nn.Linear(3, 4, key=jax.random.key(0)), eqx.is_inexact_array)
    still = jax.tree.map(jnp.zeros_like, params)
    moving = jax.tree.map(jnp.ones_like, params)
    for grads in (still, moving):
        plain, decayed = (
            one_step(kind(0.1, rates.constant, decay).build(50, 5), params, grads)
            for decay in (0.0, 0.2)
        )
        np.testing.assert_allclose(decayed.weight - plain.weight, -0.02 * params.weight, rtol=1e-4)
        np.testing.assert_array_equal(decayed.bias, plain.bias)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Adam(weight_decay=-0.1), "weight_decay is -0.1: it must be finite, and 0 or more"),
        (lambda: Muon(weight_decay="0.1"), "weight_decay is '0.1': it must be a number"),
        (lambda: Adam(0.0), "learning_rate is 0.0: it must be finite and positive"),
        (lambda: Muon(-0.1), "learning_rate is -0.1: it must be finite and positive"),
        (lambda: Muon(float("nan")), "learning_rate is nan: it must be finite and positive"),
        (lambda: Adam("1e-3"), "learning_rate is '1e-3': it must be a number"),
        (
            lambda: Adam(schedule="cosine"),
            "schedule is 'cosine': give a function, such as aisle.rates.cosine",
        ),
        (
            lambda: as_optimizer("sgd"),
            "optimizer is 'sgd': give an Optax transformation such as optax.adam(1e-3), or "
            "aisle.Adam() or aisle.Muon()",
        ),
    ],
)
def test_bad_arguments_get_one_clear_line(as_users_have_it, call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


def test_any_transformation_of_optax_is_an_optimiser():
    given = optax.chain(optax.clip(1.0), optax.sgd(0.1))
    found = as_optimizer(given)
    assert isinstance(found, Optimizer)
    assert found.build(10, 2) is given
    assert not found.is_shared_out
    assert as_optimizer(Muon()) == Muon()


def test_adam_has_the_epsilon_of_the_study():
    params, grads = jnp.zeros(3), jnp.array([1e-5, 1e-4, 1.0])
    wanted = one_step(optax.adam(1e-3, eps=1e-4), params, grads)
    np.testing.assert_allclose(one_step(make(), params, grads), wanted, rtol=1e-6)
