"""Commands compile quickly, and once for this process and those that it starts."""

import os

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def compiled_once(quick_compilation):
    """Return the environment for processes to be like this one."""
    # As many devices as in this process, or other sums would be formed.
    values = quick_compilation | {"jax_num_cpu_devices": jax.device_count()}
    return os.environ | {name.upper(): str(value) for name, value in values.items()}
