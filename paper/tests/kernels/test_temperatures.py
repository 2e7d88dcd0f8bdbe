import jax.numpy as jnp
import numpy as np

from paper.core.chains import schedules
from paper.kernels.temperatures import placed


def test_a_steady_rise_keeps_temperatures_even():
    betas = schedules.sigmoid(8)
    found = placed(betas, jnp.asarray(3.0 + 40 * betas[:-1]), 5)
    np.testing.assert_allclose(found, np.linspace(0, 1, 6), atol=1e-6)


def test_adapted_steps_lose_the_same():
    # m'(beta) is 400 up to 0.5 and 100 from there on: the density of temperatures is as 2 to 1.
    betas = schedules.linear(200)
    rise = np.where(betas < 0.5, 400 * betas, 200 + 100 * (betas - 0.5))
    found = np.asarray(placed(betas, jnp.asarray(rise[:-1], jnp.float32), 30))
    assert (found[0], found[-1]) == (0, 1)
    losses = np.diff(found) * np.diff(np.interp(found, betas, rise))
    np.testing.assert_allclose(losses, losses.mean(), rtol=0.06)


def test_noise_does_not_leave_a_stretch_without_temperatures():
    betas = schedules.linear(10)
    falling = jnp.array([0.0, 5, 10, 9, 8, 7, 6, 11, 16, 21])
    found = np.asarray(placed(betas, falling, 50))
    assert np.all(np.diff(found) > 0)
    assert np.max(np.diff(found)) < 0.2


def test_one_temperature_cannot_be_adapted():
    np.testing.assert_array_equal(placed(schedules.linear(1), jnp.zeros(1), 2), [0, 0.5, 1])
