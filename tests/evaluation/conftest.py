"""What makes evaluations in tests quick."""

import jax
import jax.numpy as jnp
import pytest

from aisle.evaluation import pilot


@pytest.fixture(scope="module")
def one_device():
    """Work on one device: compiling for eight takes longer."""
    with pytest.MonkeyPatch.context() as patch:
        devices = jax.devices()[:1]
        patch.setattr(jax, "devices", lambda: devices)
        yield


@pytest.fixture
def untuned(monkeypatch):
    """Have fixed step sizes, where those of a pilot do not matter."""

    def tune(key, model, proposal, xs, kernel, num_temperatures):
        return jnp.full(num_temperatures, 0.5)

    monkeypatch.setattr(pilot, "tune", tune)
